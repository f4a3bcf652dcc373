"""Whether a process tried to reach the network from a namespace that has only loopback, as the kernel counted it."""

import os
from contextlib import suppress
from typing import Final, Self

# No route, which every address but loopback lacks; and nothing listens at the port, as for a name server on loopback.
_COUNTERS: Final = {("Ip", "OutNoRoutes"), ("Udp", "NoPorts")}
_LARGEST: Final = 65_536


class NetworkAttempts:
    """The counters of one network namespace. They can be read after its last process has ended."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def of(cls, pid: int | None) -> Self | None:
        """Open the counters of a process's namespace; None if it has ended."""
        if pid is not None:
            with suppress(OSError):
                return cls(os.open(f"/proc/{pid}/net/snmp", os.O_RDONLY | os.O_CLOEXEC))
        return None

    def close(self) -> None:
        os.close(self._descriptor)

    @property
    def any(self) -> bool:
        """Whether the namespace's processes sent anything that was refused."""
        # The kernel writes pairs of lines: the names of a protocol's counters, then their values.
        lines = os.pread(self._descriptor, _LARGEST, 0).decode().splitlines()
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            protocol, _, rest = names.partition(": ")
            counted = zip(rest.split(), values.split()[1:], strict=True)
            if any((protocol, name) in _COUNTERS and value != "0" for name, value in counted):
                return True
        return False

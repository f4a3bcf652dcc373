"""Machines without privileges: network namespaces that veth pairs and bridges join, inside one user namespace.

Everything is inside a process namespace too: when its first process ends, however it ends, the kernel ends the rest.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from tests.wait_until import PATIENCE

# What a machine is connected to, each by a cable of its own: the clients, PostgreSQL, and the other machines.
NETWORKS = {"clients": 1, "database": 2, "nodes": 3}
# Programs run as this user, as seen from inside: PostgreSQL refuses to run as root.
_USER = 1000
_FIRST = 11
_LOOK_EVERY_SECONDS = 0.01


def enter(module: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process by a module that runs inside new namespaces, as their root and their first process."""
    namespaces = ["--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    os.execvp("unshare", ["unshare", *namespaces, "--", sys.executable, "-m", module, *arguments])


def is_inside() -> bool:
    """Whether this process is the first one of such namespaces."""
    return os.getpid() == 1


# Starts a program as an ordinary user, on the machine that has the bridges.
AS_USER = ("unshare", "--user", f"--map-user={_USER}", f"--map-group={_USER}", "--")


def center(network: str) -> str:
    """The address, in a network, of the machine that has the bridges."""
    return f"10.77.{NETWORKS[network]}.1"


class Machines:
    """The bridges, and the machines that are connected to them."""

    def __init__(self) -> None:
        self._count = 0
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        _ip("link", "set", "lo", "up")
        for name in NETWORKS:
            _ip("link", "add", name, "type", "bridge")
            _ip("address", "add", f"{center(name)}/24", "dev", name)
            _ip("link", "set", name, "up")
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def connect(self) -> "Machine":
        """Connect another machine. It exists until it is closed, or all are."""
        self._count += 1
        return self._opened.enter_context(Machine(self._count))


class Machine:
    """A network namespace, which a process holds that does nothing else."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.addresses = {name: f"10.77.{net}.{_FIRST + number}" for name, net in NETWORKS.items()}
        self._holder: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        _wait_until_apart(self._holder.pid)
        self._inside("link", "set", "lo", "up")
        for name, address in self.addresses.items():
            _ip("link", "add", self._port(name), "type", "veth", "peer", "name", name, "netns", str(self._holder.pid))
            _ip("link", "set", self._port(name), "master", name, "up")
            self._inside("address", "add", f"{address}/24", "dev", name)
            self._inside("link", "set", name, "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the machine. Its cables vanish with it."""
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
            self._holder = None

    @property
    def program(self) -> list[str]:
        """The words before a command that run it on this machine, as an ordinary user."""
        return [*self._entry(), *AS_USER]

    def cut(self, network: str) -> None:
        """Pull a cable: packets vanish in both directions, and no connection is closed."""
        _ip("link", "set", self._port(network), "down")

    def join(self, network: str) -> None:
        """Plug a cable in again."""
        _ip("link", "set", self._port(network), "up")

    def _port(self, network: str) -> str:
        """The name of the cable's end at the bridge."""
        return f"{network}{self._number}"

    def _entry(self) -> list[str]:
        assert self._holder is not None, "The machine has ended."
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", "--"]

    def _inside(self, *words: str) -> None:
        subprocess.run([*self._entry(), "ip", *words], check=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _wait_until_apart(pid: int) -> None:
    """Wait until a process has a network namespace of its own."""
    ours, tick = Path("/proc/self/ns/net").readlink(), threading.Event()
    for _ in range(int(PATIENCE / _LOOK_EVERY_SECONDS)):
        if Path(f"/proc/{pid}/ns/net").readlink() != ours:
            return
        tick.wait(_LOOK_EVERY_SECONDS)
    raise AssertionError("The network namespace was not created.")

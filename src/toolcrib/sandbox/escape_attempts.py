"""Attempts to escape, run inside a sandbox by the probe. Prints as JSON which attempts failed, as they should.

Runs as a program on a bare interpreter with its targets in ``sys.argv[1]``; imports only the standard library.
"""

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Callable

CLONE_NEWUSER = 0x10000000
TIOCSTI = 0x5412
AF_VSOCK = 40


def main() -> None:
    aims = json.loads(sys.argv[1])
    status = _status()
    # Without isolation, the view is missing too.
    folder = aims["writable"] if os.path.isdir(aims["writable"]) else tempfile.mkdtemp()
    held = {
        "outside-files": not _reads(aims["canary"]),
        "host-network": not _works(lambda: socket.create_connection(("127.0.0.1", aims["port"]), timeout=1).close()),
        "server-environment": not _sees_environment(aims["environment"]),
        "read-only-mounts": not any(_opens_for_writing(path) for path in aims["unwritable"]),
        "user-namespaces": not _unshares(),
        "terminal-injection": not _injects(),
        "vsock": not _works(lambda: socket.socket(AF_VSOCK, socket.SOCK_STREAM).close()),
        "no-capabilities": int(status["CapEff"], 16) == 0 and int(status["CapBnd"], 16) == 0,
        "no-new-privileges": status["NoNewPrivs"] == "1",
        "seccomp": status["Seccomp"] == "2",
        "pid-namespace": os.getpid() < aims["most_processes"] and len(_processes()) < aims["most_processes"],
        "not-root": os.getuid() != 0,
        "set-id-files": not _makes_set_id(folder),
        "devices": not _makes_device(folder),
        "capabilities-on-files": not _gives_capability(folder),
    }
    sys.stdout.write(json.dumps(held))


def _status() -> dict[str, str]:
    with open("/proc/self/status") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def _works(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


def _opens_for_writing(path: str) -> bool:
    """Whether a path could be opened for writing. Writes nothing: it might be a kernel setting."""
    return _works(lambda: os.close(os.open(path, os.O_WRONLY | os.O_CREAT)))


def _reads(path: str) -> bool:
    try:
        with open(path) as file:
            return bool(file.read())
    except OSError:
        return False


def _processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _sees_environment(digest: str) -> bool:
    for process in _processes():
        try:
            with open(f"/proc/{process}/environ", "rb") as file:
                if hashlib.sha256(file.read()).hexdigest() == digest:
                    return True
        except OSError:
            continue
    return False


def _unshares() -> bool:
    return bool(ctypes.CDLL(None).unshare(CLONE_NEWUSER) == 0)


def _injects() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    # The filter denies it before the descriptor is used: any error other than EPERM came from the terminal.
    refused = [
        libc.ioctl(0, ctypes.c_ulong(request), b"x") == -1 and ctypes.get_errno() == errno.EPERM
        for request in (TIOCSTI, TIOCSTI | 1 << 32)
    ]
    return not all(refused)


def _makes_set_id(folder: str) -> bool:
    path = f"{folder}/set-id"
    for mode in (stat.S_ISUID, stat.S_ISGID):
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, mode | 0o700))
        with contextlib.suppress(OSError):
            os.mknod(path, stat.S_IFREG | mode | 0o700)
        with open(path, "a") as file:
            for make in (os.fchmod, os.chmod):
                with contextlib.suppress(OSError):
                    make(file.fileno(), mode | 0o700)
        with contextlib.suppress(OSError):
            os.chmod(path, mode | 0o700)
    made = os.stat(path).st_mode
    os.unlink(path)
    return bool(made & (stat.S_ISUID | stat.S_ISGID))


def _makes_device(folder: str) -> bool:
    for kind in (stat.S_IFCHR, stat.S_IFBLK):
        with contextlib.suppress(OSError):
            os.mknod(f"{folder}/device", kind | 0o600, os.makedev(1, 3))
            return True
    return False


def _gives_capability(folder: str) -> bool:
    path = f"{folder}/capability"
    with open(path, "w"):
        pass
    # All capabilities, for any user who runs it.
    capability = struct.pack("<5I", 0x02000001, 2**32 - 1, 0, 2**32 - 1, 0)
    given = _works(lambda: os.setxattr(path, "security.capability", capability))
    os.unlink(path)
    return given


if __name__ == "__main__":
    main()

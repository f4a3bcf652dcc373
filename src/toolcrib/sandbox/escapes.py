"""Attempts to escape, run inside a sandbox by its probe. Says as JSON which attempts failed, as they should.

Run as a program, by a bare interpreter, with what to look for in ``sys.argv[1]``; imports nothing of ours.
"""

import ctypes
import errno
import hashlib
import json
import os
import socket
import sys

_CLONE_NEWUSER = 0x10000000
_TIOCSTI = 0x5412
_AF_VSOCK = 40


def main() -> None:
    aims = json.loads(sys.argv[1])
    status = _status()
    held = {
        "outside-files": not _reads(aims["canary"]),
        "host-network": not _connects(aims["port"]),
        "server-environment": not _sees_environment(aims["environment"]),
        "read-only-zones": not any(_writes(place) for place in aims["unwritable"]),
        "user-namespaces": not _unshares(),
        "terminal-injection": not _injects(),
        "vsock": not _opens_vsock(),
        "no-capabilities": int(status["CapEff"], 16) == 0 and int(status["CapBnd"], 16) == 0,
        "no-new-privileges": status["NoNewPrivs"] == "1",
        "seccomp": status["Seccomp"] == "2",
        "pid-namespace": os.getpid() < aims["most_processes"] and len(_processes()) < aims["most_processes"],
        "not-root": os.getuid() != 0,
    }
    sys.stdout.write(json.dumps(held))


def _status() -> dict[str, str]:
    with open("/proc/self/status") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def _reads(path: str) -> bool:
    try:
        with open(path) as file:
            return bool(file.read())
    except OSError:
        return False


def _writes(path: str) -> bool:
    """Whether it could be written. Nothing is: it might be a setting of the kernel."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
    except OSError:
        return False
    return True


def _connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


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
    return bool(ctypes.CDLL(None).unshare(_CLONE_NEWUSER) == 0)


def _injects() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    # Refused by the filter before the descriptor is looked at: anything else than EPERM came from the terminal's side.
    refused = [
        libc.ioctl(0, ctypes.c_ulong(request), b"x") == -1 and ctypes.get_errno() == errno.EPERM
        for request in (_TIOCSTI, _TIOCSTI | 1 << 32)
    ]
    return not all(refused)


def _opens_vsock() -> bool:
    try:
        socket.socket(_AF_VSOCK, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()

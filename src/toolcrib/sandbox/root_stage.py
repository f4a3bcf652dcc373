"""The way from a root server to bubblewrap: root is given up, and the views are made the nobody's that we become.

Inside a user namespace root's number keeps what the kernel gives to that number alone: writing ``/proc/sys``, for one,
which is root on the host. So the views are mounted with the owner's number mapped to one that owns nothing at all, and
everything after runs under it. Run as a program, by a bare interpreter, with its instructions in ``sys.argv[1]``;
imports nothing of ours.
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

UNPREPARED = 125
# Where, in our own mount namespace, the views are laid for one who may not pass through the folders of the server.
BASE = "/mnt"
_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000
_READ_ONLY, _RECURSIVE, _PRIVATE = 0x1, 0x4000, 0x40000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_HERE, _CLONE, _EMPTY_PATH, _FROM_EMPTY_PATH = -100, 0x1, 0x1000, 0x4
_IDMAP = 0x00100000
_SET_DEATH_SIGNAL, _SET_SECURE_BITS = 1, 28
_KEEP_POWERS = 0x4  # SECBIT_NO_SETUID_FIXUP

_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("users", ctypes.c_uint64),
    )


def main() -> None:
    told = json.loads(sys.argv[1])
    try:
        _prepare(told)
        _become(told["nobody"])
    except OSError as error:
        sys.stderr.write(f"the view could not be prepared for a server that is root: {error}\n")
        sys.exit(UNPREPARED)
    _libc.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != told["parent"]:
        sys.exit(UNPREPARED)
    os.execvp(told["command"][0], told["command"])  # noqa: S606 - bubblewrap


def _prepare(told: dict[str, object]) -> None:
    users = _mapping(told["owner"], told["nobody"])  # type: ignore[arg-type]
    _checked(_libc.unshare(_NEW_MOUNTS))
    _mount(None, "/", None, _RECURSIVE | _PRIVATE, None)
    staging = _mapped(str(told["staging"]), users)
    zones = [(_mapped(zone["tree"], users), zone) for zone in told["zones"]]  # type: ignore[attr-defined]
    _mount("tmpfs", BASE, "tmpfs", 0, "mode=755,size=64k")
    _attach(staging, f"{BASE}/staging")
    os.chdir(f"{BASE}/staging")
    for number, (tree, zone) in enumerate(zones):
        lower = f"{BASE}/{number}"
        _attach(tree, lower)
        if zone["options"] is None:
            continue
        here = os.open(lower, os.O_RDONLY | os.O_DIRECTORY)
        os.dup2(here, 3)
        options = zone["options"]
        flags = _READ_ONLY if options.startswith("ro,") else 0
        with _making_as(told["nobody"]):  # type: ignore[arg-type]
            _mount("overlay", zone["merged"], "overlay", flags, options.removeprefix("ro,"))
        os.close(3)
        if here != 3:
            os.close(here)


def _mapping(owner: list[int], nobody: int) -> int:
    """A descriptor of a user namespace in which the owner's numbers are those that we become."""
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        failed = _libc.unshare(_NEW_USERS)
        os.write(tell, b"n" if failed else b"y")
        signal.pause()
    try:
        if os.read(ready, 1) != b"y":
            raise OSError("no user namespace can be made")
        for name, number in zip(("uid_map", "gid_map"), owner, strict=True):
            with open(f"/proc/{child}/{name}", "w") as file:
                file.write(f"{number} {nobody} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _mapped(path: str, users: int) -> int:
    """A detached mount of ``path`` under the mapping."""
    tree = _checked(_libc.syscall(_OPEN_TREE, _HERE, os.fsencode(path), _CLONE | os.O_CLOEXEC))
    wanted = _Attributes(_IDMAP, 0, 0, users)
    _checked(_libc.syscall(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH, ctypes.byref(wanted), ctypes.sizeof(wanted)))
    return tree


def _attach(tree: int, place: str) -> None:
    os.mkdir(place)
    _checked(_libc.syscall(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(place), _FROM_EMPTY_PATH))
    os.close(tree)


def _mount(source: str | None, place: str, kind: str | None, flags: int, options: str | None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, place, kind, options)]
    _checked(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]))


@contextmanager
def _making_as(nobody: int) -> Iterator[None]:
    """Make files as another, with root's powers: an overlay makes its own as who mounted it, and root is not mapped."""
    _checked(_libc.prctl(_SET_SECURE_BITS, _KEEP_POWERS))
    _libc.setfsgid(nobody)
    _libc.setfsuid(nobody)
    try:
        yield
    finally:
        _libc.setfsuid(0)
        _libc.setfsgid(0)
        _checked(_libc.prctl(_SET_SECURE_BITS, 0))


def _become(nobody: int) -> None:
    os.setgroups([])
    os.setresgid(nobody, nobody, nobody)
    os.setresuid(nobody, nobody, nobody)


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer


if __name__ == "__main__":
    main()

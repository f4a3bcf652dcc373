"""A small process that forks, mounts the view of a command and becomes bubblewrap, for each spawn request.

A command must start in its own namespaces with its views mounted, and only a program between the server and bubblewrap
can do that. Starting one per command costs more than everything else, so this process waits and clones itself for each
request. The clone is the server's child (``CLONE_PARENT``) and dies with the server. This process lives a moment
longer: a bubblewrap that is killed between creating its inner process and releasing it leaves that process waiting for
ever, so this process kills what is left of the commands that it started.

If the server is root, root is given up. Inside a user namespace, uid 0 keeps what the kernel grants to that uid alone,
such as writing ``/proc/sys``, which is root on the host. So the views are mounted with the owner's ids mapped to an id
that owns nothing, and everything after runs under that id.

Runs as a program on a bare interpreter, with its end of a socket and the server's pid as arguments; imports only the
standard library. ``contained_process`` defines the requests.
"""

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

# The exit code when the setup failed. The reason is in the output.
EXIT_SETUP_FAILED = 125
# Where the view is mounted, in its own mount namespace, for a user who may not enter the folders of a root server.
VIEW_ROOT = "/mnt"
LENGTH, ANSWER = struct.Struct("<I"), struct.Struct("<q")
MAX_DESCRIPTORS = 16
_PIECE = 1 << 16
# More than ever start at once. Earlier commands are tied to the server by now.
_REMEMBERED = 256
_MOST_MAPPINGS = 64
_NICE = 5
_LAST_LOOKS, _POLL_SECONDS = 3, 0.05

SYS_clone = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine, -1)
SYS_open_tree, SYS_move_mount, SYS_mount_setattr = 428, 429, 442
CLONE_PARENT, CLONE_NEWNS, CLONE_NEWUSER = 0x8000, 0x00020000, 0x10000000
MS_RDONLY, MS_REC, MS_PRIVATE = 0x1, 0x4000, 0x40000
AT_FDCWD, OPEN_TREE_CLONE, AT_EMPTY_PATH, MOVE_MOUNT_F_EMPTY_PATH = -100, 0x1, 0x1000, 0x4
MOUNT_ATTR_IDMAP = 0x00100000
PR_SET_PDEATHSIG, PR_SET_SECUREBITS = 1, 28
SECBIT_NO_SETUID_FIXUP = 0x4

# Not CDLL, which releases the GIL around a call: the clone must hold it when it returns.
_libc = ctypes.PyDLL(None, use_errno=True)


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("users", ctypes.c_uint64),
    )


def main() -> None:
    server = socket.socket(fileno=int(sys.argv[1]))
    server.set_inheritable(False)
    parent = int(sys.argv[2])
    started: deque[tuple[int, bytes]] = deque(maxlen=_REMEMBERED)
    with suppress(ConnectionError):
        _serve(server, parent, started)
    _kill_leftovers(frozenset(started))


def _serve(server: socket.socket, parent: int, started: deque[tuple[int, bytes]]) -> None:
    """Serve until the server is gone, which shows as end of file or an error on the socket."""
    mappings: dict[tuple[int, int, int], int] = {}
    while request := _receive_request(server):
        stage, descriptors = request
        try:
            users = _mapping(mappings, stage["owner"], stage["nobody"]) if stage["owner"] else None
            copy = _checked(_libc.syscall(SYS_clone, ctypes.c_ulong(CLONE_PARENT), 0, 0, 0, 0))
            if copy == 0:
                _run_child(stage, descriptors, users, server, parent)
            started.append((copy, _joined(_shown(stage))))
        except OSError as error:
            server.sendall(ANSWER.pack(-(error.errno or 1)))
        for descriptor in descriptors:
            os.close(descriptor)


def _receive_request(server: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Receive the next request with its descriptors; None once the server is gone."""
    data, descriptors, _, _ = socket.recv_fds(server, LENGTH.size, MAX_DESCRIPTORS)
    if len(data) < LENGTH.size:
        return None
    (left,) = LENGTH.unpack(data)
    pieces = []
    while left:
        piece = server.recv(min(left, _PIECE))
        if not piece:
            return None
        pieces.append(piece)
        left -= len(piece)
    return json.loads(b"".join(pieces)), descriptors


def _run_child(
    stage: dict[str, Any], descriptors: list[int], users: int | None, server: socket.socket, parent: int
) -> NoReturn:
    """Run in the clone: set up descriptors, report the pid, mount the views and exec the command."""
    try:
        # One process group, so that it can be killed before bubblewrap has tied its processes together.
        os.setsid()
        server.sendall(ANSWER.pack(os.getpid()))
        users = users and fcntl.fcntl(users, fcntl.F_DUPFD_CLOEXEC, _options_number(stage) + 1)
        _take(descriptors, stage["descriptors"])
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored, signal.SIG_DFL)
        # The server has priority. No process inside can undo this.
        os.nice(_NICE)
        for cgroup_file in stage["cgroup_files"]:
            _write(cgroup_file, "0")
        os.chdir(stage["staging"])
        if users is not None:
            _mount_idmapped(stage, users)
            _drop_privileges(stage["nobody"])
        elif any(layer["overlay"] for layer in stage["layers"]):
            _mount_as_user(stage["layers"])
        # Last, because a change of credentials clears it.
        _set_parent_death_signal(parent)
        _lay_options(stage)
        os.execve(stage["command"][0], _shown(stage), stage["environment"])  # noqa: S606 - bubblewrap
    except OSError as error:
        os.write(2, f"the view could not be prepared: {error}\n".encode())
    finally:
        os._exit(EXIT_SETUP_FAILED)


def _shown(stage: dict[str, Any]) -> list[str]:
    """The command line that everyone on this machine can read: without bubblewrap's options, which contain secrets."""
    command: list[str] = stage["command"]
    return [command[0], "--args", str(_options_number(stage)), *command[_end_of_options(stage) :]]


def _lay_options(stage: dict[str, Any]) -> None:
    """Pass bubblewrap's options through a descriptor that only it reads."""
    options = os.memfd_create("options")
    os.write(options, _joined(stage["command"][1 : _end_of_options(stage)]))
    os.lseek(options, 0, os.SEEK_SET)
    os.dup2(options, _options_number(stage))


def _end_of_options(stage: dict[str, Any]) -> int:
    """The place of the `--` between bubblewrap's options and the program."""
    return len(stage["command"]) - int(stage["own_words"]) - 1


def _options_number(stage: dict[str, Any]) -> int:
    return int(max(stage["descriptors"])) + 1


def _joined(words: list[str]) -> bytes:
    return b"".join(os.fsencode(word) + b"\0" for word in words)


def _kill_leftovers(started: frozenset[tuple[int, bytes]]) -> None:
    """Kill what the server left of these: processes of their sessions with their command lines, until none is found.

    Repeats the search, because a process can fork in between.
    """
    clean = 0
    while clean < _LAST_LOOKS:
        found = [
            process for process in map(int, filter(str.isdecimal, os.listdir("/proc"))) if _is_of(process, started)
        ]
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        clean = 0 if found else clean + 1
        time.sleep(_POLL_SECONDS)


def _is_of(process: int, started: frozenset[tuple[int, bytes]]) -> bool:
    try:
        with open(f"/proc/{process}/cmdline", "rb") as words:
            return (os.getsid(process), words.read()) in started
    except OSError:
        return False


def _take(descriptors: list[int], numbers: list[int]) -> None:
    """Move each descriptor to its expected number, through numbers that are not in use."""
    above = max(numbers) + 1
    aside = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, number in zip(aside, numbers, strict=True):
        os.dup2(descriptor, number)


def _mount_as_user(layers: list[dict[str, Any]]) -> None:
    """Mount overlays in a user namespace, where an ordinary user may do that."""
    user, group = os.getuid(), os.getgid()
    _checked(_libc.unshare(CLONE_NEWUSER | CLONE_NEWNS))
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        _write(f"/proc/self/{name}", text)
    _mount(None, "/", None, MS_REC | MS_PRIVATE, None)
    for layer in layers:
        if layer["overlay"]:
            _overlay(layer["tree"], layer["overlay"])


def _mount_idmapped(stage: dict[str, Any], users: int) -> None:
    """Mount the whole view below its own root, with mapped ids."""
    _checked(_libc.unshare(CLONE_NEWNS))
    _mount(None, "/", None, MS_REC | MS_PRIVATE, None)
    staging = _mapped(stage["staging"], users)
    trees = [_mapped(layer["tree"], users) for layer in stage["layers"]]
    _mount("tmpfs", VIEW_ROOT, "tmpfs", 0, "mode=755,size=64k")
    _attach(staging, f"{VIEW_ROOT}/staging")
    os.chdir(f"{VIEW_ROOT}/staging")
    for number, (tree, layer) in enumerate(zip(trees, stage["layers"], strict=True)):
        _attach(tree, f"{VIEW_ROOT}/{number}")
        if layer["overlay"]:
            with _with_fsuid(stage["nobody"]):
                _overlay(f"{VIEW_ROOT}/{number}", layer["overlay"])


def _overlay(tree: str, layers: dict[str, str | None]) -> None:
    """Mount an overlay. The tree is named by a descriptor, because its path may contain option separators."""
    here = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    lower = f"/proc/self/fd/{here}"
    if layers["mask"]:
        lower = f"{layers['mask']}:{lower}"
    options = f"lowerdir={lower},userxattr"
    if layers["upper"]:
        # Without `volatile`, every command would end with a sync of the whole file system. Its marker, that the upper
        # may not survive a crash, is in the work folder: each mount has its own.
        options += f",upperdir={layers['upper']},workdir={layers['work']},volatile"
    _mount("overlay", str(layers["merged"]), "overlay", 0 if layers["upper"] else MS_RDONLY, options)
    os.close(here)


def _mapping(known: dict[tuple[int, int, int], int], owner: tuple[int, int], nobody: int) -> int:
    """Return a descriptor of a user namespace that maps the owner's ids to those of the command."""
    key = (owner[0], owner[1], nobody)
    if key not in known:
        if len(known) >= _MOST_MAPPINGS:
            os.close(known.pop(next(iter(known))))
        known[key] = _made_mapping((owner[0], owner[1]), nobody)
    return known[key]


def _made_mapping(owner: tuple[int, int], nobody: int) -> int:
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        failed = _libc.unshare(CLONE_NEWUSER)
        os.write(tell, b"n" if failed else b"y")
        signal.pause()
    try:
        if os.read(ready, 1) != b"y":
            raise PermissionError(1, "no user namespace can be made")
        for name, number in zip(("uid_map", "gid_map"), owner, strict=True):
            _write(f"/proc/{child}/{name}", f"{number} {nobody} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(tell)


def _mapped(path: str, users: int) -> int:
    """Return a detached mount of ``path`` with mapped ids."""
    tree = _checked(_libc.syscall(SYS_open_tree, AT_FDCWD, os.fsencode(path), OPEN_TREE_CLONE | os.O_CLOEXEC))
    wanted = _MountAttr(MOUNT_ATTR_IDMAP, 0, 0, users)
    _checked(_libc.syscall(SYS_mount_setattr, tree, b"", AT_EMPTY_PATH, ctypes.byref(wanted), ctypes.sizeof(wanted)))
    return tree


def _attach(tree: int, path: str) -> None:
    os.mkdir(path)
    _checked(_libc.syscall(SYS_move_mount, tree, b"", AT_FDCWD, os.fsencode(path), MOVE_MOUNT_F_EMPTY_PATH))
    os.close(tree)


def _mount(source: str | None, path: str, kind: str | None, flags: int, options: str | None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, path, kind, options)]
    _checked(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]))


@contextmanager
def _with_fsuid(nobody: int) -> Iterator[None]:
    """Create files as another user with root's capabilities.

    An overlay creates its own files as the user who mounts it, and root is not mapped.
    """
    _checked(_libc.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP))
    _libc.setfsgid(nobody)
    _libc.setfsuid(nobody)
    try:
        yield
    finally:
        _libc.setfsuid(0)
        _libc.setfsgid(0)
        _checked(_libc.prctl(PR_SET_SECUREBITS, 0))


def _drop_privileges(nobody: int) -> None:
    os.setgroups([])
    os.setresgid(nobody, nobody, nobody)
    os.setresuid(nobody, nobody, nobody)


def _set_parent_death_signal(parent: int) -> None:
    """Set the signal before checking the parent, so that nothing keeps running if the server dies in between."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(EXIT_SETUP_FAILED)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _checked(answer: int) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer


if __name__ == "__main__":
    main()

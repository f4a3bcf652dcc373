"""Sends spawn requests to the fork server: which views to mount before bubblewrap starts."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from toolcrib.core.errors import ToolFailed
from toolcrib.sandbox import fork_server

Owner = tuple[int, int]

PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
UNPREPARED: Final = fork_server.EXIT_SETUP_FAILED
BASE: Final = fork_server.VIEW_ROOT
# User ids that own nothing and run nothing else. A root server runs commands as one of them, chosen by tree. bubblewrap
# writes an id of 2**31 or more as a negative number.
_NOBODIES: Final = range(2_000_000_001, 2**31)
# It answers within milliseconds; starting it takes some tens of them.
_PATIENCE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class OverlayDirs:
    """Folders of an overlay, by their names in the staging directory. Without ``upper`` it is read-only."""

    merged: str
    mask: str | None = None
    upper: str | None = None
    work: str | None = None


@dataclass(frozen=True, slots=True)
class ViewLayer:
    """A tree, and the overlay on top of it."""

    tree: Path
    overlay: OverlayDirs | None = None


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A command, and the views to mount for it. If the server is root, ``mapped_owner`` owns the trees."""

    command: Sequence[str]
    layers: Sequence[ViewLayer]
    staging: Path
    mapped_owner: Owner | None
    # Files through which the process enters its cgroups.
    cgroup_files: Sequence[str] = ()

    def encode(self, numbers: Sequence[int]) -> bytes:
        """Encode for the fork server. ``numbers`` are the descriptor numbers in the new process."""
        return json.dumps(
            {
                "command": list(self.command),
                "environment": {"PATH": PATH},
                "layers": [
                    {"tree": str(layer.tree), "overlay": layer.overlay and asdict(layer.overlay)}
                    for layer in self.layers
                ],
                "staging": str(self.staging),
                "owner": self.mapped_owner,
                "nobody": _nobody_for(self.layers[0].tree),
                "cgroup_files": list(self.cgroup_files),
                "descriptors": list(numbers),
            }
        ).encode()


def _nobody_for(tree: Path) -> int:
    return _NOBODIES[int.from_bytes(hashlib.sha256(os.fsencode(tree)).digest()[:8]) % len(_NOBODIES)]


def staged(
    command: Sequence[str], layers: Sequence[ViewLayer], *, staging: Path, root_for: Owner | None
) -> SpawnRequest:
    """Build the request for a command."""
    return SpawnRequest(command, layers, staging, root_for)


def spawn(what: SpawnRequest, *, stdin: int, output: int, inherit: Sequence[int]) -> int:
    """Start the command as a child of this process and return its pid. ``inherit`` descriptors keep their numbers.

    The child dies with the calling thread, and so does the thread's fork server.
    """
    placed = {0: stdin, 1: output, 2: output, **{descriptor: descriptor for descriptor in inherit}}
    message = what.encode(tuple(placed))
    try:
        with suppress(ConnectionError):
            return _stager().spawn(message, tuple(placed.values()))
        # Something ended the fork server: start another one.
        return _stager(anew=True).spawn(message, tuple(placed.values()))
    except (ConnectionError, TimeoutError) as error:
        # A late answer would be taken for the answer to the next request.
        _of_this_thread.stager = None
        raise ToolFailed(f"The fork server does not respond ({error}). Try again in a moment.") from error


_of_this_thread = threading.local()


def _stager(*, anew: bool = False) -> "_ForkServer":
    kept: _ForkServer | None = getattr(_of_this_thread, "stager", None)
    if anew or kept is None or kept.server != os.getpid():
        kept = _of_this_thread.stager = _ForkServer()
    return kept


class _ForkServer:
    """A fork server with its socket. It ends when the last reference is dropped."""

    def __init__(self) -> None:
        self.server = os.getpid()
        self._way, its = socket.socketpair()
        self._way.settimeout(_PATIENCE_SECONDS)
        with its:
            process = subprocess.Popen(  # noqa: S603 - Toolcrib's own program
                [sys.executable, "-I", "-S", fork_server.__file__, str(its.fileno()), str(self.server)],
                cwd="/",
                env={"PATH": PATH},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                # Signals from the server's terminal must not reach it.
                start_new_session=True,
            )
        weakref.finalize(self, _end, self.server, self._way, process)

    def spawn(self, message: bytes, descriptors: Sequence[int]) -> int:
        socket.send_fds(self._way, [fork_server.LENGTH.pack(len(message))], list(descriptors))
        self._way.sendall(message)
        answer = self._way.recv(fork_server.ANSWER.size, socket.MSG_WAITALL)
        if len(answer) < fork_server.ANSWER.size:
            raise ConnectionResetError("it ended")
        (pid,) = fork_server.ANSWER.unpack(answer)
        if pid < 0:
            raise ToolFailed(f"The sandbox did not start: {os.strerror(-pid)}.")
        return int(pid)


def _end(server: int, way: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    way.close()
    if server == os.getpid():
        process.kill()
        process.wait()

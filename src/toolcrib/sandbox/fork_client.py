"""The way from the server to bubblewrap: what must be laid before it starts, and the stager that is told to do so."""

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
# Own nothing on any disk and run nothing else: whom commands of a root server run as, those of each tree as another.
# bubblewrap writes a number of 2**31 or more as a negative one.
_NOBODIES: Final = range(2_000_000_001, 2**31)
# It answers within milliseconds; its own start takes some tens of them.
_PATIENCE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class OverlayDirs:
    """Folders of the staging, by their paths in it: what lies over a tree, and where both are seen together.

    Without an upper nothing can be written.
    """

    merged: str
    mask: str | None = None
    upper: str | None = None
    work: str | None = None


@dataclass(frozen=True, slots=True)
class ViewLayer:
    """A tree, and what is laid over it."""

    tree: Path
    overlay: OverlayDirs | None = None


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A command, and what must be laid for it. Where the server is root, ``root_for`` owns the trees."""

    command: Sequence[str]
    layers: Sequence[ViewLayer]
    staging: Path
    mapped_owner: Owner | None
    # Files of control groups to which it writes that it comes.
    cgroup_files: Sequence[str] = ()

    def encode(self, numbers: Sequence[int]) -> bytes:
        """As the stager reads it; ``numbers`` are those that the descriptors sent along are to have."""
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
                "doors": list(self.cgroup_files),
                "descriptors": list(numbers),
            }
        ).encode()


def _nobody_for(tree: Path) -> int:
    return _NOBODIES[int.from_bytes(hashlib.sha256(os.fsencode(tree)).digest()[:8]) % len(_NOBODIES)]


def staged(
    command: Sequence[str], layers: Sequence[ViewLayer], *, staging: Path, root_for: Owner | None
) -> SpawnRequest:
    """``command`` behind all that must be done before it."""
    return SpawnRequest(command, layers, staging, root_for)


def spawn(what: SpawnRequest, *, stdin: int, output: int, inherit: Sequence[int]) -> int:
    """Start it as a child of this process, and tell its number. ``inherit`` keep their numbers in it.

    It dies with the calling thread, and so does the stager that is kept for that thread.
    """
    placed = {0: stdin, 1: output, 2: output, **{descriptor: descriptor for descriptor in inherit}}
    message = what.encode(tuple(placed))
    try:
        with suppress(ConnectionError):
            return _stager().spawn(message, tuple(placed.values()))
        # It was ended by someone.
        return _stager(anew=True).spawn(message, tuple(placed.values()))
    except (ConnectionError, TimeoutError) as error:
        # What one that is late may still say would be taken for an answer to the next.
        _of_this_thread.stager = None
        raise ToolFailed(
            f"The process that starts commands does not answer ({error}). Try again in a moment."
        ) from error


_of_this_thread = threading.local()


def _stager(*, anew: bool = False) -> "_ForkServer":
    kept: _ForkServer | None = getattr(_of_this_thread, "stager", None)
    if anew or kept is None or kept.server != os.getpid():
        kept = _of_this_thread.stager = _ForkServer()
    return kept


class _ForkServer:
    """A stager and the way to it. It ends when nobody here holds it any more."""

    def __init__(self) -> None:
        self.server = os.getpid()
        self._way, its = socket.socketpair()
        self._way.settimeout(_PATIENCE_SECONDS)
        with its:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", fork_server.__file__, str(its.fileno()), str(self.server)],
                cwd="/",
                env={"PATH": PATH},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                # What is typed at the server's terminal is not for it.
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

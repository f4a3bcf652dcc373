"""The way from the server to bubblewrap: what must be laid before it starts, and the stager that is told to do so."""

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

from toolcrib.domain.errors import ToolFailed
from toolcrib.sandbox import stager

Owner = tuple[int, int]

PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
UNPREPARED: Final = stager.UNPREPARED
BASE: Final = stager.BASE
# Owns nothing on any disk and runs nothing else: whom commands of a root server run as.
NOBODY: Final = 2_000_000_001
# It answers within milliseconds; its own start takes some tens of them.
_PATIENCE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Overlay:
    """Folders of the staging, by their paths in it: what lies over a tree, and where both are seen together.

    Without an upper nothing can be written.
    """

    merged: str
    mask: str | None = None
    upper: str | None = None
    work: str | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """A tree, and what is laid over it."""

    tree: Path
    overlay: Overlay | None = None


@dataclass(frozen=True, slots=True)
class Staged:
    """A command, and what must be laid for it. Where the server is root, ``root_for`` owns the trees."""

    command: Sequence[str]
    layers: Sequence[Layer]
    staging: Path
    root_for: Owner | None
    # Files of control groups to which it writes that it comes.
    doors: Sequence[str] = ()

    def told(self, numbers: Sequence[int]) -> bytes:
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
                "owner": self.root_for,
                "nobody": NOBODY,
                "doors": list(self.doors),
                "descriptors": list(numbers),
            }
        ).encode()


def staged(command: Sequence[str], layers: Sequence[Layer], *, staging: Path, root_for: Owner | None) -> Staged:
    """``command`` behind all that must be done before it."""
    return Staged(command, layers, staging, root_for)


def spawn(what: Staged, *, stdin: int, output: int, inherit: Sequence[int]) -> int:
    """Start it as a child of this process, and tell its number. ``inherit`` keep their numbers in it.

    It dies with the calling thread, and so does the stager that is kept for that thread.
    """
    placed = {0: stdin, 1: output, 2: output, **{descriptor: descriptor for descriptor in inherit}}
    message = what.told(tuple(placed))
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


def _stager(*, anew: bool = False) -> "_Stager":
    kept: _Stager | None = getattr(_of_this_thread, "stager", None)
    if anew or kept is None or kept.server != os.getpid():
        kept = _of_this_thread.stager = _Stager()
    return kept


class _Stager:
    """A stager and the way to it. It ends when nobody here holds it any more."""

    def __init__(self) -> None:
        self.server = os.getpid()
        self._way, its = socket.socketpair()
        self._way.settimeout(_PATIENCE_SECONDS)
        with its:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-I", "-S", stager.__file__, str(its.fileno()), str(self.server)],
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
        socket.send_fds(self._way, [stager.LENGTH.pack(len(message))], list(descriptors))
        self._way.sendall(message)
        answer = self._way.recv(stager.ANSWER.size, socket.MSG_WAITALL)
        if len(answer) < stager.ANSWER.size:
            raise ConnectionResetError("it ended")
        (pid,) = stager.ANSWER.unpack(answer)
        if pid < 0:
            raise ToolFailed(f"The sandbox did not start: {os.strerror(-pid)}.")
        return int(pid)


def _end(server: int, way: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    way.close()
    if server == os.getpid():
        process.kill()
        process.wait()

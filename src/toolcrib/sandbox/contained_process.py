"""Contained processes: started by the fork server, with the views to mount before bubblewrap; read, awaited, killed."""

import asyncio
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from toolcrib.core.errors import ToolFailed
from toolcrib.sandbox import fork_server
from toolcrib.sandbox.bubblewrap import BindMount, arguments

Owner = tuple[int, int]

PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
UNPREPARED: Final = fork_server.EXIT_SETUP_FAILED
BASE: Final = fork_server.VIEW_ROOT
# User ids that own nothing and run nothing else. A root server runs commands as one of them, chosen by tree. bubblewrap
# writes an id of 2**31 or more as a negative number.
_NOBODIES: Final = range(2_000_000_001, 2**31)
# It answers within milliseconds; starting it takes some tens of them.
_PATIENCE_SECONDS: Final = 30.0
_PIECE: Final = 1 << 16
_PIECES_AT_ONCE: Final = 8
# How long the kernel may take to remove a namespace whose first process is dead.
_BURIAL_SECONDS: Final = 10.0
# The first byte of output, written inside once bubblewrap has set up its processes.
READY: Final = b"\x06"
_DECODER: Final = json.JSONDecoder()


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
    """A command, what it sees, and the views to mount for it.

    If the server is root, ``mapped_owner`` owns the trees.
    """

    binary: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    cwd: str
    binds: Sequence[BindMount]
    layers: Sequence[ViewLayer]
    staging: Path
    mapped_owner: Owner | None

    def encode(self, numbers: Sequence[int], *, seccomp: int, status: int, cgroup_files: Sequence[str]) -> bytes:
        """Encode for the fork server.

        Args:
            numbers: The descriptor numbers in the new process.
            seccomp: The one from which bubblewrap reads the filter.
            status: The one on which bubblewrap reports its status.
            cgroup_files: Files through which the process enters its cgroups.
        """
        return json.dumps(
            {
                "command": arguments(
                    self.binary,
                    self.argv,
                    binds=self.binds,
                    cwd=self.cwd,
                    environment=self.environment,
                    seccomp=seccomp,
                    status=status,
                ),
                # How many words at its end are the program's. A value of an option may be `--` too.
                "own_words": len(self.argv),
                "environment": {"PATH": PATH},
                "layers": [
                    {"tree": str(layer.tree), "overlay": layer.overlay and asdict(layer.overlay)}
                    for layer in self.layers
                ],
                "staging": str(self.staging),
                "owner": self.mapped_owner,
                "nobody": _nobody_for(self.layers[0].tree),
                "cgroup_files": list(cgroup_files),
                "descriptors": list(numbers),
            }
        ).encode()


def _nobody_for(tree: Path) -> int:
    return _NOBODIES[int.from_bytes(hashlib.sha256(os.fsencode(tree)).digest()[:8]) % len(_NOBODIES)]


@dataclass(slots=True)
class SandboxStarts:
    """How many programs this process has started in sandboxes, and how many did not start."""

    succeeded: int = 0
    failed: int = 0


# Of the whole process, as the fork servers are.
starts: Final = SandboxStarts()


class ContainedProcess:
    """bubblewrap with everything inside. Killing it kills everything: its processes cannot leave their namespace.

    Start and use it in the thread of the event loop: the parent death signal is bound to the starting thread.
    """

    def __init__(self, pid: int, input_: int, output: int, status: int) -> None:
        self.pid = pid
        # Its standard input, where it first waits for the go-ahead; None once it is closed.
        self.input: int | None = input_
        # The exit status, once the process was waited for. Until then its pid cannot be reused.
        self.returned: int | None = None
        self._output = output
        self._status = status
        for descriptor in (input_, output, status):
            os.set_blocking(descriptor, False)
        self._pidfd = os.pidfd_open(pid)
        self._loop = asyncio.get_running_loop()
        self._quiet = asyncio.Event()
        # Set at its first output, or when there will be none.
        self.ready = asyncio.Event()
        self._first: int | None = None
        self._loop.add_reader(self._status, self._meet_first)
        self._met = asyncio.Event()
        self._status_text = b""
        self._status_ended = False
        self._is_over = False

    @classmethod
    def start(cls, request: SpawnRequest, seccomp: int, *, cgroup_files: Sequence[str] = ()) -> Self:
        """Start a request with a seccomp filter. It waits inside until it is admitted."""
        stdin, input_ = os.pipe2(os.O_CLOEXEC)
        output, stdout = os.pipe2(os.O_CLOEXEC)
        status, reported = os.pipe2(os.O_CLOEXEC)
        placed = {0: stdin, 1: stdout, 2: stdout, reported: reported, seccomp: seccomp}
        try:
            message = request.encode(tuple(placed), seccomp=seccomp, status=reported, cgroup_files=cgroup_files)
            pid = _spawn(message, tuple(placed.values()))
        except BaseException:
            starts.failed += 1
            for descriptor in (input_, output, status):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (stdin, stdout, reported):
                os.close(descriptor)
        starts.succeeded += 1
        return cls(pid, input_, output, status)

    def listen(self, take: Callable[[bytes], None]) -> None:
        """Pass every piece of output to ``take``, until the last writer has closed it."""

        def readable() -> None:
            for _ in range(_PIECES_AT_ONCE):
                try:
                    piece = os.read(self._output, _PIECE)
                except BlockingIOError:
                    return
                if not piece:
                    self._loop.remove_reader(self._output)
                    self._quiet.set()
                    self.ready.set()
                    return
                if not self.ready.is_set():
                    piece = piece.removeprefix(READY)
                    self.ready.set()
                take(piece)

        self._loop.add_reader(self._output, readable)

    async def admit(self) -> None:
        """Wait until the process is inside the sandbox, then let it run."""
        await self.ready.wait()
        await self.first_inside()
        if self.input is not None:
            # It may be dead already; its exit status reports that.
            with suppress(BrokenPipeError):
                os.write(self.input, b"\n")

    def end_input(self) -> None:
        """Close its standard input."""
        if self.input is not None:
            os.close(self.input)
            self.input = None

    async def first_inside(self) -> int | None:
        """Return the host pid of the namespace's first process; None if it was never created."""
        await self._met.wait()
        return self._reported().get("child-pid")

    def kill(self) -> None:
        """Kill the process group and the namespace's first process, and with it everything inside."""
        if self.returned is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        if self._first is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)

    async def ended(self) -> int | None:
        """Wait until nothing of it runs and all output was read. Returns None if it was killed or never ran."""
        if not self._is_over:
            await self._over()
        return self._reported().get("exit-code")

    async def _over(self) -> None:
        await _readable(self._pidfd)
        self._reap()
        self._meet_first()
        if self._first is not None:
            self.kill()
            async with asyncio.timeout(_BURIAL_SECONDS):
                # The kernel reaps the first process of a namespace only after all the others.
                await _readable(self._first)
        await self._quiet.wait()
        self._is_over = True

    def _reap(self) -> None:
        if self.returned is None:
            # Kill what is not yet tied to it, while its pid cannot be reused.
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.returned = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self) -> None:
        """Close the descriptors. The caller kills and awaits what still runs first."""
        self.end_input()
        self._loop.remove_reader(self._output)
        self._loop.remove_reader(self._status)
        for descriptor in (self._output, self._status, self._pidfd, self._first):
            if descriptor is not None:
                os.close(descriptor)
        self._first = None

    def _meet_first(self) -> None:
        """Open a pidfd of the namespace's first process while its pid cannot be reused."""
        report = self._reported()
        if self._met.is_set() or not ("child-pid" in report or self._status_ended):
            return
        self._loop.remove_reader(self._status)
        self._met.set()
        if "child-pid" in report:
            with suppress(ProcessLookupError):
                self._first = os.pidfd_open(report["child-pid"])

    def _reported(self) -> dict[str, int]:
        """Return everything that bubblewrap reported so far: JSON documents, one after the other."""
        try:
            while piece := os.read(self._status, 4096):
                self._status_text += piece
            self._status_ended = True
        except BlockingIOError:
            pass
        report: dict[str, int] = {}
        rest = self._status_text.decode().lstrip()
        while rest:
            try:
                document, end = _DECODER.raw_decode(rest)
            except json.JSONDecodeError:
                break  # The document is not complete yet.
            report |= document
            rest = rest[end:].lstrip()
        return report


async def _readable(descriptor: int) -> None:
    """Wait until a descriptor is readable: data, end of file or, for a pidfd, the end of the process."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _spawn(message: bytes, descriptors: Sequence[int]) -> int:
    """Start an encoded request as a child of this process and return its pid.

    The child dies with the calling thread, and so does the thread's fork server.
    """
    try:
        with suppress(ConnectionError):
            return _stager().spawn(message, descriptors)
        # Something ended the fork server: start another one.
        return _stager(anew=True).spawn(message, descriptors)
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

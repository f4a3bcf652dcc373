"""Runs ripgrep in a mount's root and parses its output.

The output is not trusted, because ripgrep opens files by path. Callers read each line again through the confined
reader.
"""

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, Self

from toolcrib.core.errors import Misconfigured
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.runtime.fair_queue import FairQueue
from toolcrib.workspace.fs.mount_writer import MountWriter

# For longer lines ripgrep reports only the number.
LONGEST_LINE = 4_096
# Larger files are not searched. The history does not track them either.
LARGEST_FILE = 256_000_000
OMITTED = b"[Omitted long"

_OPTIONS = (
    "--no-config", "--no-ignore", "--hidden", "--no-follow", "--one-file-system", "--text", "--encoding=none",
    "--no-mmap", "--no-messages", "--color=never", "--no-heading", "--with-filename", "--null", "--line-number",
    "--byte-offset",
    f"--max-columns={LONGEST_LINE}", f"--max-filesize={LARGEST_FILE}",
)  # fmt: skip
# A path that has no meaning beyond itself in a glob.
_PLAIN_PATH = re.compile(r"(/[A-Za-z0-9._@+-]+)+")
_FOUND = re.compile(rb"\./([^\0\n]*)\0(\d+):(\d+):([^\n]*)\n")
_PIPE = 1 << 18
_LITTLE = 1 << 13
# Concurrent searches per server. Each uses every core for a moment.
_AT_ONCE = 8


class RipgrepHit(NamedTuple):
    """A line that ripgrep reports: the file's path from the root, the line number and the byte offset."""

    path: bytes
    number: bytes
    offset: bytes
    text: bytes


class Ripgrep:
    """The ripgrep program, located once."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._turns = FairQueue(_AT_ONCE, what="searches")

    @classmethod
    def found(cls) -> Self:
        """Locate the program. Raises ``Misconfigured`` if it is missing."""
        program = shutil.which("rg")
        if program is None:
            raise Misconfigured("ripgrep is missing: there is no `rg` on the PATH. Install it, then start again.")
        return cls(program)

    @asynccontextmanager
    async def search(
        self,
        disk: MountWriter,
        expression: str,
        *,
        in_order: bool = False,
        eager: bool = False,
        names: Sequence[str] = (),
        without: Sequence[str] = (),
    ) -> AsyncIterator["RipgrepProcess"]:
        """Search for lines that match ``expression``.

        Args:
            in_order: Report in path order. Slower.
            eager: Report each line immediately. Costs more if there are many.
            names: Case-insensitive globs; only files with a matching name are searched.
            without: Paths of folders that need not be searched. Some may be searched all the same.
        """
        command = [self._program, *_OPTIONS]
        command += ["--sort=path"] if in_order else []
        command += ["--line-buffered"] if eager else []
        command += [f"--iglob={glob}" for glob in names]
        command += [f"--glob=!{folder}/" for folder in without if _PLAIN_PATH.fullmatch(folder)]
        async with self._turns.turn():
            run = RipgrepProcess(await in_thread(_started, [*command, f"--regexp={expression}", "--", "./"], disk))
            try:
                yield run
            finally:
                run.end()


class RipgrepProcess:
    """One running search."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._process = process
        self._output = process.stdout.fileno()
        self._rest = b""
        self.is_done = False

    async def hits(self, seconds: float) -> list[RipgrepHit]:
        """Return new hits. Empty after ``seconds`` without any, or at the end of the output."""
        if self.is_done or not await _readable(self._output, seconds):
            return []
        # Read on the event loop, so that the descriptor cannot be closed meanwhile.
        piece = os.read(self._output, _PIPE)
        self.is_done = not piece
        whole, newline, rest = piece.rpartition(b"\n")
        text, self._rest = (self._rest + whole + newline, rest) if newline else (b"", self._rest + piece)
        # For little text, parsing takes less time than a thread switch.
        return await in_thread(_parse_hits, text) if len(text) > _LITTLE else _parse_hits(text)

    @property
    def was_refused(self) -> bool:
        """Whether ripgrep rejected the expression."""
        assert self._process.stderr is not None
        return self.is_done and self._process.wait() == 2 and bool(self._process.stderr.read())

    def end(self) -> None:
        """Kill the search."""
        self._process.kill()
        self._process.communicate()


def _parse_hits(text: bytes) -> list[RipgrepHit]:
    return list(map(RipgrepHit._make, _FOUND.findall(text)))


def _started(command: Sequence[str], disk: MountWriter) -> subprocess.Popen[bytes]:
    # The arguments are a list and no shell runs; a pattern cannot become an option.
    return subprocess.Popen(  # noqa: S603
        command,
        # The root directory itself, even if its path changed.
        cwd=f"/proc/self/fd/{disk.root}",
        env={},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pipesize=_PIPE,
    )


async def _readable(descriptor: int, seconds: float) -> bool:
    """Wait without a thread for data or the end of the output."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await ready.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
    return True

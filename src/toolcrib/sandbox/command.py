"""Runs one command from start to end: contained, watched, with captured output and a time limit."""

import asyncio
import codecs
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Final

from toolcrib.core.errors import ToolFailed
from toolcrib.policy.environment import clean_environment
from toolcrib.sandbox import seccomp
from toolcrib.sandbox.bubblewrap import HOME
from toolcrib.sandbox.contained_process import UNPREPARED, ContainedProcess, SpawnRequest
from toolcrib.sandbox.network_attempts import NetworkAttempts
from toolcrib.sandbox.resource_limits import Cgroup, KeptUsage, ResourceLimits, watch

KEPT_BYTES: Final = 100_000
# Bytes streamed while a command runs. A reader has no use for gigabytes.
STREAMED_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The output of a command: all of it, or head and tail with ``dropped`` bytes in between."""

    head: bytes
    tail: bytes
    dropped: int

    @property
    def text(self) -> str:
        """The output as text. Says where bytes were left out."""
        if not self.dropped:
            return (self.head + self.tail).decode(errors="replace")
        return (
            f"{self.head.decode(errors='replace')}\n[… {self.dropped} bytes omitted …]\n"
            f"{self.tail.decode(errors='replace')}"
        )


class OutputCollector:
    """Collects output in constant memory: keeps head and tail, and counts the rest.

    Passes the first part on as text.
    """

    def __init__(self, emit: Callable[[str], None], *, kept: int = KEPT_BYTES, streamed: int = STREAMED_BYTES) -> None:
        self._emit = emit
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._to_stream = streamed
        self._head_size = kept // 2
        self._tail_size = kept - self._head_size
        self._head = bytearray()
        self._tail = bytearray()
        self._taken = 0

    def take(self, piece: bytes) -> None:
        """Add the next piece of output."""
        self._taken += len(piece)
        self._stream(piece)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += piece[:room]
            piece = piece[room:]
        self._tail += piece[-self._tail_size :]
        # Cut at twice the size: moving the tail for every piece would cost more than reading it.
        if len(self._tail) > 2 * self._tail_size:
            del self._tail[: -self._tail_size]

    def finish(self) -> CommandOutput:
        """Return the collected output."""
        if self._to_stream > 0 and (rest := self._decoder.decode(b"", final=True)):
            self._emit(rest)
        tail = bytes(self._tail[-self._tail_size :])
        return CommandOutput(bytes(self._head), tail, self._taken - len(self._head) - len(tail))

    def _stream(self, piece: bytes) -> None:
        if self._to_stream <= 0:
            return
        shown = piece[: self._to_stream]
        self._to_stream -= len(shown)
        if text := self._decoder.decode(shown):
            self._emit(text)
        if self._to_stream <= 0:
            self._emit("\n[… more output follows; its end is in the result …]\n")


DEFAULT_SECONDS: Final = 60.0
# One program argument can have 128 KiB.
LONGEST_COMMAND: Final = 100_000
_OURS: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": HOME,
    "USER": "agent",
    "LOGNAME": "agent",
    "SHELL": "/bin/sh",
    "TMPDIR": "/tmp",  # noqa: S108 - a path in the sandbox
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    # The author of commits, if nothing else is configured: a person's git identity is in files that are hidden.
    "GIT_AUTHOR_NAME": "agent",
    "GIT_AUTHOR_EMAIL": "agent@toolcrib.invalid",
    "GIT_COMMITTER_NAME": "agent",
    "GIT_COMMITTER_EMAIL": "agent@toolcrib.invalid",
    # Reading a repository must not change it.
    "GIT_OPTIONAL_LOCKS": "0",
}
# Without a network, package managers must fail at once and not wait between retries.
_OFFLINE: Final = {
    "CARGO_NET_RETRY": "0",
    "NPM_CONFIG_FETCH_RETRIES": "0",
    # With none, pip does not say why it found nothing. It does not wait before the first one.
    "PIP_RETRIES": "1",
    "UV_HTTP_RETRIES": "0",
}
_FROM_THE_SERVER: Final = ("LANG", "LANGUAGE", "TZ", "NO_COLOR")


@cache
def _inherited() -> dict[str, str]:
    """Return the variables of the server that every command gets."""
    return clean_environment({name: os.environ[name] for name in _FROM_THE_SERVER if name in os.environ})


@dataclass(frozen=True, slots=True)
class SandboxCommand:
    """A command to run.

    Attributes:
        cwd: A path in the view; None is the first mount.
        env: Variables. Those that look like secrets are dropped.
        secrets: Variables that are meant for it, whatever they look like.
        hosts: What it may contact.
    """

    text: str
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    seconds: float = DEFAULT_SECONDS
    hosts: tuple[str, ...] = ()
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """Toolcrib's variables, a few of the server's, and the caller's."""
        added = clean_environment(self.env, allow=("*",)) if self.env else {}
        return {**_OURS, **({} if self.hosts else _OFFLINE), **_inherited(), **added, **self.secrets}

    def check(self) -> None:
        """Raise ``ToolFailed`` if the text cannot be passed to a shell."""
        if len(os.fsencode(self.text)) > LONGEST_COMMAND:
            raise ToolFailed(
                f"The command has {len(self.text)} characters; the limit is {LONGEST_COMMAND} bytes. "
                "Write it to a file and run that."
            )
        if "\0" in self.text:
            raise ToolFailed("The command contains a NUL byte. Remove it.")

    def argv(self, *, reads_input: bool = False) -> list[str]:
        """Build the shell command with its limits.

        It waits for a go-ahead, so that it never runs if the server dies first.
        """
        self.check()
        source = "" if reads_input else " < /dev/null"
        go = f'{self.limits.shell}; printf "\\006"; read -r _ || exit {UNPREPARED}; exec /bin/sh -c "$1"{source}'
        return ["/bin/sh", "-c", go, "sh", self.text]


@dataclass(frozen=True, slots=True)
class HostContact:
    """One attempt to reach a host, and why it was denied, if it was."""

    host: str
    port: int
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended. ``exit_code`` is None if the server ended it: see ``timed_out`` and ``stopped``.

    ``tried_network`` says whether it sent anything past the proxy, which reaches nobody.
    """

    exit_code: int | None
    output: CommandOutput
    timed_out: bool
    stopped: str | None
    seconds: float
    contacted: tuple[HostContact, ...] = ()
    tried_network: bool = False

    @property
    def dropped(self) -> int:
        return self.output.dropped


async def execute(
    command: SandboxCommand,
    request: SpawnRequest,
    emit: Callable[[str], None],
    *,
    watched: Sequence[Path],
    kept: Sequence[KeptUsage] = (),
) -> CommandResult:
    """Run a command until it ends, times out or exceeds a limit.

    Cancelling kills it. When this returns, none of its processes runs.
    """
    gathering = OutputCollector(emit)
    began = monotonic()
    reasons: list[str] = []
    timed_out = tried_network = False
    attempts: NetworkAttempts | None = None
    group = Cgroup.make(command.limits)
    contained = start(request, group)
    watcher: asyncio.Task[None] | None = None
    try:
        contained.listen(gathering.take)

        def stop(reason: str) -> None:
            reasons.append(reason)
            contained.kill()

        watcher = asyncio.create_task(
            watch(contained.pid, watched, command.limits, stop, kept=kept, grouped=group is not None)
        )
        try:
            async with asyncio.timeout(command.seconds):
                attempts = NetworkAttempts.of(await contained.first_inside())
                await contained.admit()
                contained.end_input()
                exit_code = await contained.ended()
        except TimeoutError:
            timed_out = True
            contained.kill()
            exit_code = await contained.ended()
        tried_network = attempts is not None and attempts.any
    finally:
        if attempts is not None:
            attempts.close()
        if watcher is not None:
            watcher.cancel()
        await asyncio.shield(end(contained, group))
    output = gathering.finish()
    if exit_code is None and not timed_out and not reasons:
        raise ToolFailed(f"The sandbox did not start (status {contained.returned}): {output.text.strip()[:500]}")
    return CommandResult(
        exit_code=None if timed_out or reasons else exit_code,
        output=output,
        timed_out=timed_out,
        stopped=reasons[0] if reasons else None,
        seconds=monotonic() - began,
        tried_network=tried_network,
    )


def start(request: SpawnRequest, group: Cgroup | None, *, unix_sockets: bool = True) -> ContainedProcess:
    """Start a contained process in its cgroup. It waits inside until it is admitted."""
    # One descriptor per command, because reading the filter moves its offset.
    filter_ = os.memfd_create("seccomp", 0)
    try:
        os.write(filter_, seccomp.program(unix_sockets=unix_sockets, shared_memory=group is not None))
        os.lseek(filter_, 0, os.SEEK_SET)
        return ContainedProcess.start(request, filter_, cgroup_files=group.doors if group else ())
    finally:
        os.close(filter_)


async def end(contained: ContainedProcess, group: Cgroup | None) -> None:
    """Kill the process with everything inside, wait for its end, and remove its cgroup."""
    contained.kill()
    await contained.ended()
    contained.close()
    if group:
        await group.remove()

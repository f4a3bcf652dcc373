"""One command from start to end: started contained, watched, listened to, ended in time. Knows nothing of views."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from toolcrib.domain.errors import ToolFailed
from toolcrib.policy.environment import clean_environment
from toolcrib.sandbox import seccomp
from toolcrib.sandbox.bubblewrap import HOME
from toolcrib.sandbox.cgroups import Cgroup
from toolcrib.sandbox.levels import Level
from toolcrib.sandbox.limits import Limits, watch
from toolcrib.sandbox.output import Gathering, Output
from toolcrib.sandbox.process import Contained

DEFAULT_SECONDS: Final = 60.0
# One argument of a program can hold 128 KiB.
LONGEST_COMMAND: Final = 100_000
_OURS: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": HOME,
    "USER": "agent",
    "LOGNAME": "agent",
    "SHELL": "/bin/sh",
    "TMPDIR": "/tmp",  # noqa: S108 - of the view
    "LANG": "C.UTF-8",
    "TERM": "dumb",
}
_FROM_THE_SERVER: Final = ("LANG", "LANGUAGE", "TZ", "NO_COLOR")


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. ``cwd`` is a path of the view; None is the first zone's target. ``hosts`` may be contacted."""

    text: str
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    seconds: float = DEFAULT_SECONDS
    hosts: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    @property
    def environment(self) -> dict[str, str]:
        """Ours, a few of the server's, and the caller's own less what looks like a secret."""
        inherited = clean_environment({name: os.environ[name] for name in _FROM_THE_SERVER if name in os.environ})
        return {**_OURS, **inherited, **clean_environment(self.env, allow=("*",))}

    @property
    def argv(self) -> list[str]:
        """The command under its own limits."""
        if len(os.fsencode(self.text)) > LONGEST_COMMAND:
            raise ToolFailed(
                f"The command has {len(self.text)} characters; {LONGEST_COMMAND} bytes are the most. "
                "Write it to a file and run that."
            )
        if "\0" in self.text:
            raise ToolFailed("The command holds a NUL byte, which no shell takes. Remove it.")
        return ["/bin/sh", "-c", f'{self.limits.shell}; exec /bin/sh -c "$1"', "sh", self.text]


@dataclass(frozen=True, slots=True)
class Contact:
    """One attempt to reach a host, and why it was refused, if it was."""

    host: str
    port: int
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended. ``exit_code`` is None if it was ended by us: ``timed_out``, or ``stopped`` says why."""

    exit_code: int | None
    output: Output
    timed_out: bool
    stopped: str | None
    seconds: float
    level: Level
    contacted: tuple[Contact, ...] = ()

    @property
    def dropped(self) -> int:
        return self.output.dropped


Arguments = Callable[[int, int, int | None], Sequence[str]]
"""Given the descriptors of the seccomp filter, of the state and, if it is to wait for us, of the go-ahead."""


async def execute(
    command: Command,
    arguments: Arguments,
    emit: Callable[[str], None],
    *,
    cwd: Path,
    watched: Sequence[Path],
    level: Level = Level.NAMESPACES,
) -> CommandResult:
    """Run to the end, the time limit or an excess. Cancelling ends it; when this returns nothing of it runs."""
    gathering = Gathering(emit)
    began = monotonic()
    reasons: list[str] = []
    timed_out = False
    group = Cgroup.make(command.limits)
    contained = start(arguments, cwd=cwd, group=group)
    watcher: asyncio.Task[None] | None = None
    try:
        contained.listen(gathering.take)
        if group:
            await admit(contained, group)

        def stop(reason: str) -> None:
            reasons.append(reason)
            contained.kill()

        watcher = asyncio.create_task(watch(contained.pid, watched, command.limits, stop))
        try:
            async with asyncio.timeout(command.seconds):
                exit_code = await contained.ended()
        except TimeoutError:
            timed_out = True
            contained.kill()
            exit_code = await contained.ended()
    finally:
        if watcher is not None:
            watcher.cancel()
        await asyncio.shield(_end(contained, group))
    output = gathering.finish()
    if exit_code is None and not timed_out and not reasons:
        raise ToolFailed(f"The sandbox did not start (status {contained.returned}): {output.text.strip()[:500]}")
    return CommandResult(
        exit_code=None if timed_out or reasons else exit_code,
        output=output,
        timed_out=timed_out,
        stopped=reasons[0] if reasons else None,
        seconds=monotonic() - began,
        level=level,
    )


def start(arguments: Arguments, *, cwd: Path, group: Cgroup | None, stdin: int | None = None) -> "Started":
    """Start contained; with a group it waits inside until it was admitted to it."""
    program = seccomp.filter_file()
    waits, go = os.pipe2(os.O_CLOEXEC) if group else (None, None)
    inherit = [program] if waits is None else [program, waits]
    try:
        contained = Started.start(
            lambda status: arguments(program, status, waits), cwd=cwd, inherit=inherit, stdin=stdin
        )
        contained.go = go
        return contained
    except BaseException:
        if go is not None:
            os.close(go)
        raise
    finally:
        for descriptor in inherit:
            os.close(descriptor)


class Started(Contained):
    """A contained process that may wait for our go-ahead."""

    go: int | None = None

    def close(self) -> None:
        self.release()
        super().close()

    def release(self) -> None:
        if self.go is not None:
            os.close(self.go)
            self.go = None


async def admit(contained: Started, group: Cgroup) -> None:
    """Put it, and the first process inside, into the group; then let it run."""
    group.add(contained.pid)
    first = await contained.first_inside()
    if first is not None:
        group.add(first)
    if contained.go is not None:
        # It may be dead already; that is told by its status.
        with suppress(BrokenPipeError):
            os.write(contained.go, b"\n")
    contained.release()


async def _end(contained: Started, group: Cgroup | None) -> None:
    contained.kill()
    await contained.ended()
    contained.close()
    if group:
        await group.remove()

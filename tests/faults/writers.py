"""Several processes, each with its own engine, that change one workspace. They get jobs together."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from tests.faults.processes import FORKED, Site, engine_at
from toolcrib.core.callers import Caller
from toolcrib.core.ids import CallId, new_id
from toolcrib.core.tool_calls import Outcome, ToolCall
from toolcrib.wiring.tool_runtime import ToolRuntime


@dataclass(frozen=True)
class Job:
    """What every writer does, and as whom: the name of a ``Writer``'s method, and its arguments."""

    name: str
    caller: Caller
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Done:
    """What was acknowledged to one writer, and how often it had to retry."""

    acknowledged: list[str]
    conflicts: int = 0


@dataclass(frozen=True)
class Writers:
    """Processes that wait for a job."""

    ends: list[Connection]

    def __len__(self) -> int:
        return len(self.ends)

    def all_do(self, name: str, caller: Caller, **arguments: Any) -> list[Done]:
        """Give all of them the same job at once and return each result."""
        for end in self.ends:
            end.send(Job(name, caller, arguments))
        return [end.recv() for end in self.ends]


@contextmanager
def writers(count: int, site: Site) -> Iterator[Writers]:
    pipes = [FORKED.Pipe() for _ in range(count)]
    processes = [
        FORKED.Process(target=_run, args=(theirs, site, f"w{number}"), daemon=True)
        for number, (_, theirs) in enumerate(pipes)
    ]
    for process, (_, theirs) in zip(processes, pipes, strict=True):
        process.start()
        # So that a writer that dies causes an end of file here, not an endless wait.
        theirs.close()
    try:
        started = Writers([ours for ours, _ in pipes])
        assert [end.recv() for end in started.ends] == ["ready"] * count
        yield started
    finally:
        for process, (ours, _) in zip(processes, pipes, strict=True):
            ours.close()
            process.kill()
            process.join()


class Writer:
    """One writer process."""

    def __init__(self, engine: ToolRuntime, caller: Caller, name: str) -> None:
        self._engine = engine
        self._caller = caller
        self._name = name

    async def edit(self, path: str, count: int, *, by_hash: bool) -> Done:
        """Add its own lines to a file, half of them by replacing its end, half by inserting."""
        lines: list[str] = []
        conflicts = 0
        while len(lines) < count:
            line = f"{self._name}-{len(lines)}"
            seen = await self._call("read", path=path)
            assert seen.succeeded, seen.error
            base = {"last_read_hash": seen.result["hash"]} if by_hash else {}
            change: dict[str, Any] = {"old_string": "END\n", "new_string": f"{line}\nEND\n"}
            if len(lines) % 2:
                change = {"insert_line": 1, "insert_content": f"{line}\n"}
            outcome = await self._call("edit", path=path, **change, **base)
            if outcome.succeeded:
                lines.append(line)
                continue
            assert outcome.error is not None
            assert outcome.error.code == "CONFLICT", outcome.error.message
            conflicts += 1
        return Done(lines, conflicts)

    async def create(self, folders: list[str], count: int) -> Done:
        """Write files into folders that do not exist yet, and that others create at the same moment."""
        paths = [f"{folder}/{self._name}-{number}.txt" for folder in folders for number in range(count)]
        for path in paths:
            outcome = await self._call("write", path=path, content=path)
            assert outcome.succeeded, outcome.error
        return Done(paths)

    async def _call(self, tool: str, **arguments: Any) -> Outcome:
        caller = replace(self._caller, call_id=CallId(new_id()))
        return await self._engine.executor.execute(ToolCall(tool, arguments), caller)


def _run(end: Connection, site: Site, name: str) -> None:
    asyncio.run(_serve(end, site, name))


async def _serve(end: Connection, site: Site, name: str) -> None:
    async with engine_at(site) as engine:
        end.send("ready")
        while True:
            job: Job = end.recv()
            done = await getattr(Writer(engine, job.caller, name), job.name)(**job.arguments)
            end.send(done)

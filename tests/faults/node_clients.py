"""Clients of several nodes: each keeps one workspace busy through any node, and knows what it was told.

A client repeats a request only if that is safe: the response says that nothing happened, or the request never left.
When a connection breaks, it is unknown what happened, and the request is not repeated. ``check`` compares what it was
told with the history.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any
from uuid import UUID

import httpx2

from tests.faults.consistency_check import Workspace
from tests.faults.scripted import folder
from tests.faults.server import Server
from tests.wait_until import PATIENCE

LOG = "/log.txt"
# A frozen node answers nothing; a client does not wait for long.
ANSWER_SECONDS = 5.0
_PAUSE_SECONDS = 0.05
# Of what a client does, if its workspace has no run. A run makes dozens of calls.
_RUNS_SHARE = 0.1
# Responses after which nothing has happened: the workspace is elsewhere, others hold its locks, or an earlier command,
# for which nobody waits any more, has changed the same file meanwhile.
_NOTHING_HAPPENED = ("SUPERSEDED", "CONFLICT")
# What the node that took a call says if it ended the call itself, because the home stopped answering.
_NOTHING_CHANGED = "Nothing was changed. Call again."


async def pause(seconds: float) -> None:
    """Let time pass: a load has pauses, and a client waits as long as a response says."""
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, passed.set)
    await passed.wait()


@dataclass
class Told:
    """What a client was told, in all: acknowledged, or unknown."""

    files: dict[str, bytes] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    lines: set[str] = field(default_factory=set)
    unknown_files: dict[str, bytes] = field(default_factory=dict)
    unknown_lines: set[str] = field(default_factory=set)
    tasks: set[int] = field(default_factory=set)
    unknown_tasks: set[int] = field(default_factory=set)

    def copy(self) -> "Told":
        return Told(
            dict(self.files), set(self.removed), set(self.lines), dict(self.unknown_files), set(self.unknown_lines),
            set(self.tasks), set(self.unknown_tasks),
        )  # fmt: skip


def _refusal(answer: httpx2.Response) -> tuple[str, str] | None:
    """Return the code and the text with which a call was refused, or None. A command has both in its result."""
    said = answer.json()
    if not answer.is_success:
        return str(said["code"]), str(said["error"])
    result = said.get("result")
    if isinstance(result, dict) and result.get("is_error"):
        return str(result["metadata"].get("code")), str(result["output"])
    return None


def _interrupted(answer: httpx2.Response) -> str | None:
    """Return what is said about a call whose home was lost while it ran; None if it was not."""
    refusal = _refusal(answer)
    return refusal[1] if refusal is not None and refusal[0] == "INTERRUPTED" else None


class Unanswered(Exception):
    """The connection broke, so it is unknown what happened."""


@dataclass
class WorkspaceClient:
    """One workspace and its load.

    Attributes:
        nodes: The nodes that exist now.
        forwarding: Nodes pass requests on to the home. Without it the client itself tries one node after the other.
    """

    id: UUID
    token: str
    agent: str
    nodes: Callable[[], Sequence[Server]]
    random: Random
    forwarding: bool
    told: Told = field(default_factory=Told)
    counts: Counter[str] = field(default_factory=Counter)
    _number: int = 0

    async def work(self, stop: asyncio.Event, next_task: Callable[[], int], is_idle: Callable[[], bool]) -> None:
        """Keep the workspace busy until ``stop`` is set: files, commands, undo, and one run at a time."""
        deeds = [self._write, self._write, self._read, self._append, self._append, self._write_and_undo]
        while not stop.is_set():
            if self.random.random() < _RUNS_SHARE and await asyncio.to_thread(is_idle):
                await self._start_run(next_task())
            else:
                await self.random.choice(deeds)()
            await pause(_PAUSE_SECONDS)

    async def probe(self, node: Server) -> str | None:
        """Read a file of this workspace from a node. Returns None, or why the node does not serve it now."""
        call = {"tool": "read", "args": {"path": LOG}}
        try:
            async with self._client(node) as http:
                answer = await http.post(f"/workspaces/{self.id}/tools", json=call)
        except httpx2.TransportError as error:
            return repr(error)
        return None if answer.status_code == 200 else answer.text

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Make a call that may be repeated, until a node answers it."""
        answer = await self._send_until_answered("tools", {"tool": tool, "args": arguments})
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()["result"]
        return result

    def check(self, truth: Workspace) -> None:
        """Check the history against what was told until now: nothing is lost, and nothing happened twice."""
        told = self.told.copy()
        found = truth.live()
        for path, content in told.files.items():
            assert found.get(path) == sha256(content).digest(), f"{path} of {self.id} was acknowledged, and is lost"
        for path, content in told.unknown_files.items():
            assert found.get(path) in (None, sha256(content).digest()), f"{path} of {self.id} has other content"
        back = told.removed & found.keys()
        assert not back, f"undone in {self.id}, and there again: {back}"
        log = found[LOG]
        assert log is not None
        lines = Counter(truth.content(log).decode().split())
        lost = told.lines - lines.keys()
        assert not lost, f"lines of {self.id} were acknowledged, and are lost: {lost}"
        twice = {line for line, count in lines.items() if count > 1}
        assert not twice, f"lines of {self.id} happened twice: {twice}"

    def check_end(self, truth: Workspace) -> None:
        """Check everything when nothing is at work any more: also that nothing happened that nobody asked for."""
        self.check(truth)
        log = truth.live()[LOG]
        assert log is not None
        lines = set(truth.content(log).decode().split())
        assert lines <= self.told.lines | self.told.unknown_lines
        asked = {*self.told.files, *self.told.unknown_files, LOG}
        tasks = {folder(task) for task in self.told.tasks | self.told.unknown_tasks}
        others = {
            path
            for path, digest in truth.live().items()
            if digest is not None and path not in asked and f"/{path.split('/')[1]}" not in {*tasks, "/plans"}
        }
        assert not others, f"files of {self.id} that nobody wrote: {others}"

    # What the client does

    async def _write(self) -> None:
        path, content = self._new()
        await self._write_file(path, content)

    async def _write_file(self, path: str, content: bytes, session: str | None = None) -> bool:
        self.told.unknown_files[path] = content

        async def is_there() -> bool:
            return await self._exists(path)

        call = {"tool": "write", "args": {"path": path, "content": content.decode()}, "session_id": session}
        if await self._change("write", call, is_there):
            self.told.files[path] = self.told.unknown_files.pop(path)
            return True
        return False

    async def _read(self) -> None:
        if not self.told.files:
            return
        path = self.random.choice(list(self.told.files))
        found = await self.call("read", path=path)
        assert found["content"].encode() == self.told.files[path], f"{path} of {self.id} has other content"
        self.counts["read"] += 1

    async def _append(self) -> None:
        line = self._next("line")
        self.told.unknown_lines.add(line)

        async def is_there() -> bool:
            counted = await self.call("bash", command=f"grep -cx {line} .{LOG} || true")
            return int(counted["output"]) > 0

        call = {"tool": "bash", "args": {"command": f"echo {line} >> .{LOG}"}}
        if await self._change("bash", call, is_there):
            self.told.unknown_lines.remove(line)
            self.told.lines.add(line)

    async def _write_and_undo(self) -> None:
        path, content = self._new()
        session = await self._new_session()
        if not await self._write_file(path, content, session):
            return
        self.told.unknown_files[path] = self.told.files.pop(path)

        async def is_gone() -> bool:
            return not await self._exists(path)

        call = {"tool": "undo", "args": {"session_id": session}}
        if await self._change("undo", call, is_gone):
            del self.told.unknown_files[path]
            self.told.removed.add(path)

    async def _start_run(self, task: int) -> None:
        # A session of its own, as people do: in a common one, each task's turns would send all earlier tasks again.
        session = await self._new_session(agent_id=self.agent)
        self.told.unknown_tasks.add(task)
        path = f"/workspaces/{self.id}/sessions/{session}/messages"
        try:
            answer = await self._send(path, {"text": f"Task {task}"})
        except Unanswered:
            self.counts["run unknown"] += 1
            return
        if answer.is_success:
            self.told.unknown_tasks.remove(task)
            self.told.tasks.add(task)
            self.counts["run"] += 1
            return
        # The next number is tried soon.
        assert answer.status_code == 503, answer.text
        await self._wait_as_told(answer)

    async def _new_session(self, **fields: str) -> str:
        answer = await self._send_until_answered("sessions", fields)
        assert answer.is_success, answer.text
        return str(answer.json()["id"])

    async def _exists(self, path: str) -> bool:
        answer = await self._send_until_answered("tools", {"tool": "read", "args": {"path": path}})
        assert answer.status_code in (200, 404), answer.text
        return answer.status_code == 200

    # How the client speaks

    async def _change(self, name: str, call: dict[str, Any], has_happened: Callable[[], Awaitable[bool]]) -> bool:
        """Make a call once. Returns whether it was acknowledged; otherwise it is unknown."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    answer = await self._send(f"/workspaces/{self.id}/tools", call)
                except Unanswered:
                    self.counts[f"{name} unknown"] += 1
                    return False
                if (how := _interrupted(answer)) is not None:
                    self.counts[f"{name} interrupted"] += 1
                    if _NOTHING_CHANGED not in how:
                        return False
                    assert not await has_happened(), f"{call} changed something: {how}"
                    continue
                if answer.status_code == 507 and answer.json()["code"] == "NOT_ON_DISK":
                    # It is in the history, and so acknowledged: another process writes it to disk.
                    self.counts[f"{name} not on disk"] += 1
                    return True
                if answer.status_code == 200:
                    result = answer.json()["result"]
                    failed = isinstance(result, dict) and (result.get("is_error") or result.get("error"))
                    assert not failed, answer.text
                    self.counts[name] += 1
                    return True
                # The database was away: the response says that the call may be repeated, and a careful client looks.
                assert answer.status_code == 503, f"{call}: {answer.text}"
                self.counts[f"{name} 503"] += 1
                await self._wait_as_told(answer)
                if await has_happened():
                    self.counts[f"{name} 503, but happened"] += 1
                    return True

    async def _send_until_answered(self, what: str, body: dict[str, Any]) -> httpx2.Response:
        """Send a request that may be repeated."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    answer = await self._send(f"/workspaces/{self.id}/{what}", body)
                except Unanswered:
                    continue
                if _interrupted(answer) is not None:
                    continue
                if answer.status_code != 503:
                    return answer
                await self._wait_as_told(answer)

    async def _send(self, path: str, body: dict[str, Any]) -> httpx2.Response:
        """Send a request to any node. Returns the first response that is not only about the node.

        Raises:
            Unanswered: The request was sent, and no response came.
        """
        async with asyncio.timeout(PATIENCE):
            while True:
                for node in self.random.sample(list(self.nodes()), len(self.nodes())):
                    try:
                        async with self._client(node) as http:
                            answer = await http.post(path, json=body)
                    except (httpx2.ConnectError, httpx2.ConnectTimeout):
                        continue
                    except httpx2.TransportError as error:
                        raise Unanswered from error
                    code, _ = _refusal(answer) or (None, "")
                    if code not in _NOTHING_HAPPENED:
                        return answer
                    assert code != "SUPERSEDED" or not self.forwarding, answer.text
                    self.counts[str(code)] += 1
                await pause(_PAUSE_SECONDS)

    async def _wait_as_told(self, answer: httpx2.Response) -> None:
        await pause(float(answer.headers["Retry-After"]))

    def _client(self, node: Server, *, seconds: float = ANSWER_SECONDS) -> httpx2.AsyncClient:
        headers = {"Authorization": f"Bearer {self.token}"}
        # No certificate is needed here. To read the machine's for each request would leave no time for the nodes.
        return httpx2.AsyncClient(
            base_url=f"{node.origin}/api/v1", headers=headers, timeout=seconds, trust_env=False, verify=False
        )

    def _new(self) -> tuple[str, bytes]:
        name = self._next("file")
        return f"/files/{name}.txt", f"{name} {self.random.randbytes(200).hex()}\n".encode()

    def _next(self, what: str) -> str:
        self._number += 1
        return f"{what}-{self._number}"

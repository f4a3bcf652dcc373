"""``context.files``: what a tool of another author reads, writes, lists, moves and deletes in one call."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.wait_until import PATIENCE
from toolcrib import AnswerButton, Danger, Effects, Question, ToolContext, ToolFailed, tool
from toolcrib.core.errors import (
    BadArguments,
    Conflict,
    NotFound,
    PathOutsideMount,
    PreconditionFailed,
    ProtectedPath,
    TooLarge,
)
from toolcrib.core.tool_calls import Outcome
from toolcrib.tools.tool_files import ToolFiles

Use = Callable[[ToolFiles], Awaitable[Any]]


async def used(workspace: WorkspaceFixture, use: Use, **given: Any) -> Outcome:
    """Make one call of a tool that does ``use``."""

    @tool(name="use_files", effects=lambda _: Effects(), **given)
    async def use_files(context: ToolContext) -> Any:
        """Use files."""
        return await use(context.files)

    return await workspace.with_engine(tools=[use_files]).call("use_files")


async def result(workspace: WorkspaceFixture, use: Use) -> Any:
    outcome = await used(workspace, use)
    assert outcome.succeeded, outcome.error
    return outcome.result


async def changes_of(workspace: WorkspaceFixture, outcome: Outcome) -> dict[str, str]:
    found = await workspace.result("changes", calls=[str(outcome.call_id)])
    return {one["path"]: one["change"] for one in found["changes"]}


async def test_call_sees_what_it_wrote_and_writing_twice_is_one_change(workspace: WorkspaceFixture) -> None:
    async def use(files: ToolFiles) -> list[Any]:
        before = await files.exists("/docs/a.md")
        await files.write_text("/docs/a.md", "one\n")
        first = await files.read_text("/docs/a.md")
        await files.write_text("/docs/a.md", first + "two\n")
        listed = [(one.path, one.kind) for one in await files.list("/", recursive=True)]
        return [before, await files.read_text("/docs/a.md"), (await files.stat("/docs/a.md")).size, listed]

    outcome = await used(workspace, use)

    listed = [("/docs", "folder"), ("/docs/a.md", "file")]
    assert outcome.result == [False, "one\ntwo\n", 8, listed]
    assert await changes_of(workspace, outcome) == {"/docs": "created", "/docs/a.md": "created"}
    assert (workspace.project / "docs/a.md").read_text() == "one\ntwo\n"
    await workspace.result("undo", calls=[str(outcome.call_id)])
    assert not (workspace.project / "docs").exists()


async def test_moved_file_can_be_read_and_changed_in_the_same_call(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="a")

    async def use(files: ToolFiles) -> list[Any]:
        await files.move("/a.txt", "/new/b.txt")
        moved = await files.read_text("/new/b.txt")
        await files.write_text("/new/b.txt", moved + "b")
        return [moved, await files.exists("/a.txt"), await files.read_text("/new/b.txt")]

    outcome = await used(workspace, use)

    assert outcome.result == ["a", False, "ab"]
    assert not (workspace.project / "a.txt").exists()
    assert (workspace.project / "new/b.txt").read_text() == "ab"
    await workspace.result("undo", calls=[str(outcome.call_id)])
    assert (workspace.project / "a.txt").read_text() == "a"
    assert not (workspace.project / "new").exists()


async def test_deleted_file_is_gone_for_the_call_and_can_be_written_again(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/old/a.txt", content="a")

    async def use(files: ToolFiles) -> list[Any]:
        with pytest.raises(Conflict, match="not empty"):
            await files.delete("/old")
        await files.delete("/old/a.txt")
        with pytest.raises(NotFound):
            await files.read_text("/old/a.txt")
        listed = await files.list("/old")
        await files.delete("/old")
        await files.write_text("/scratch.txt", "x")
        await files.delete("/scratch.txt")
        return [len(listed), await files.exists("/old"), await files.exists("/scratch.txt")]

    assert await result(workspace, use) == [0, False, False]
    assert not (workspace.project / "old").exists()
    assert not (workspace.project / "scratch.txt").exists()


async def test_if_match_denies_a_write_over_other_content(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="a")

    async def use(files: ToolFiles) -> None:
        with pytest.raises(PreconditionFailed, match="changed since"):
            await files.write_text("/a.txt", "b", if_match=sha256(b"other").hexdigest())
        with pytest.raises(PreconditionFailed, match="does not exist"):
            await files.write_text("/b.txt", "b", if_match=sha256(b"a").hexdigest())
        await files.write_text("/a.txt", "b", if_match=(await files.stat("/a.txt")).sha256)
        await files.write_text("/a.txt", "c", if_match=sha256(b"b").hexdigest())

    await result(workspace, use)
    assert (workspace.project / "a.txt").read_text() == "c"


async def test_errors_name_the_path_and_nothing_is_kept(workspace: WorkspaceFixture) -> None:
    (workspace.project / "binary").write_bytes(b"\xff\xfe")

    async def use(files: ToolFiles) -> None:
        await files.write_text("/first.txt", "kept only if the call succeeds")
        with pytest.raises(NotFound, match="/none"):
            await files.stat("/none")
        with pytest.raises(PathOutsideMount):
            await files.read_text("/../etc/passwd")
        with pytest.raises(ToolFailed, match="/binary is not utf-8 text"):
            await files.read_text("/binary")
        with pytest.raises(BadArguments):
            await files.delete("/")
        with pytest.raises(TooLarge):
            await files.write_bytes("/big", bytes(workspace.settings.max_file_bytes + 1))
        with pytest.raises(Conflict, match="already exists"):
            await files.move("/first.txt", "/binary")
        raise ToolFailed("It does not work.")

    outcome = await used(workspace, use)

    assert outcome.error is not None
    assert outcome.error.message == "It does not work."
    assert not (workspace.project / "first.txt").exists()


async def test_agent_reads_no_protected_file_by_its_old_or_its_new_name(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/.env", content="SECRET=1")
    seen: list[str] = []

    @tool(name="peek", danger=Danger.SAFE, effects=lambda _: Effects())
    async def peek(context: ToolContext) -> None:
        """Look where it must not."""
        with pytest.raises(ProtectedPath):
            seen.append(await context.files.read_text("/.env"))
        with pytest.raises(ProtectedPath):
            await context.files.exists("/.env")
        await context.files.move("/.env", "/open.txt")
        with pytest.raises(ProtectedPath):
            seen.append(await context.files.read_text("/open.txt"))
        raise ToolFailed("Done.")

    workspace.engine.registry.add(peek)
    agent = await workspace.agent(trust="autonomous", toolsets=["custom"], tool_permissions={"peek": {"allowed": True}})

    outcome = await workspace.call("peek", agent)

    assert outcome.error is not None
    assert seen == []


async def test_tool_asks_a_person_and_what_it_wrote_is_dropped(workspace: WorkspaceFixture) -> None:
    @tool(name="paint")
    async def paint(context: ToolContext) -> str:
        """Paint a wall."""
        await context.files.write_text("/wall.txt", "red")
        buttons = (AnswerButton("Red", "red"), AnswerButton("Blue", "blue"))
        context.ask(Question("colour", "Which colour?", {"type": "string"}, buttons))

    workspace.engine.registry.add(paint)

    outcome = await workspace.call("paint")

    assert outcome.is_waiting
    assert not (workspace.project / "wall.txt").exists()


async def test_function_in_a_thread_learns_that_its_call_was_cancelled(workspace: WorkspaceFixture) -> None:
    started, learned = threading.Event(), threading.Event()

    @tool(effects=lambda _: Effects())
    def wait(context: ToolContext) -> str:
        """Wait until the call is cancelled."""
        started.set()
        deadline = time.monotonic() + PATIENCE
        while not context.is_cancelled and time.monotonic() < deadline:
            pass
        if context.is_cancelled:
            learned.set()
        return ""

    workspace.engine.registry.add(wait)
    call = asyncio.create_task(workspace.call("wait"))
    assert await asyncio.to_thread(started.wait, PATIENCE)
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert await asyncio.to_thread(learned.wait, PATIENCE)

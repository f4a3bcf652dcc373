"""A call that changes one path several times makes one change, and a draft sees what the call did before."""

from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import rows, with_tools
from toolcrib.core.errors import Conflict
from toolcrib.core.files import ContentKind
from toolcrib.core.paths import AbsolutePath
from toolcrib.core.tool_calls import Outcome
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import tool


@tool()
async def write_twice(path: AbsolutePath, context: ToolContext) -> None:
    """Write a path twice, looked up anew each time."""
    for text in (b"one\n", b"two\n"):
        await context.draft.write(await context.draft.lookup(path), text, content=ContentKind.TEXT)


@tool()
async def write_twice_at_once(path: AbsolutePath, context: ToolContext) -> None:
    """Write a path twice, looked up once."""
    path_state = await context.draft.lookup(path)
    for text in (b"one\n", b"two\n"):
        await context.draft.write(path_state, text, content=ContentKind.TEXT)


@tool()
async def write_and_move(path: AbsolutePath, to: AbsolutePath, context: ToolContext) -> None:
    """Write a file, then move the folder that it is in."""
    draft = context.draft
    await draft.write(await draft.lookup(path), b"moved\n", content=ContentKind.TEXT)
    await draft.move(await draft.lookup(path.parent), await draft.lookup(to))


@tool()
async def write_and_remove(path: AbsolutePath, context: ToolContext) -> bool:
    """Write a file and remove it again. Returns whether the draft still has it."""
    draft = context.draft
    await draft.write(await draft.lookup(path), b"gone\n", content=ContentKind.TEXT)
    await draft.remove(await draft.lookup(path))
    return (await draft.lookup(path)).exists


@tool()
async def replace_by_folder(path: AbsolutePath, context: ToolContext) -> None:
    """Remove a file, and write another one in a folder of its name."""
    draft = context.draft
    await draft.remove(await draft.lookup(path))
    await draft.write(await draft.lookup(path.child("inside")), b"in\n", content=ContentKind.TEXT)


@tool()
async def write_into_file(path: AbsolutePath, context: ToolContext) -> None:
    """Create a file, then write below it."""
    draft = context.draft
    await draft.write(await draft.lookup(path), b"file\n", content=ContentKind.TEXT)
    await draft.write(await draft.lookup(path.child("inside")), b"in\n", content=ContentKind.TEXT)


@pytest.fixture
def drafting(workspace: WorkspaceFixture) -> WorkspaceFixture:
    return with_tools(
        workspace,
        write_twice,
        write_twice_at_once,
        write_and_move,
        write_and_remove,
        replace_by_folder,
        write_into_file,
    )


@pytest.mark.parametrize("name", ["write_twice", "write_twice_at_once"])
async def test_new_path_written_twice_is_one_change(drafting: WorkspaceFixture, name: str) -> None:
    await _succeed(drafting, name, path="/new/a.txt")

    assert (drafting.project / "new/a.txt").read_bytes() == b"two\n"
    assert await _versions(drafting, "/new/a.txt") == [1]


@pytest.mark.parametrize("name", ["write_twice", "write_twice_at_once"])
async def test_existing_path_written_twice_is_one_change_that_undo_reverts(
    drafting: WorkspaceFixture, name: str
) -> None:
    await drafting.result("write", path="/a.txt", content="zero\n")

    outcome = await _succeed(drafting, name, path="/a.txt")
    assert await _versions(drafting, "/a.txt") == [1, 2]
    await drafting.result("undo", calls=[str(outcome.call_id)])

    assert (drafting.project / "a.txt").read_bytes() == b"zero\n"


async def test_folder_takes_along_what_the_call_wrote_into_it(drafting: WorkspaceFixture) -> None:
    await drafting.result("write", path="/old/kept.txt", content="kept\n")

    await _succeed(drafting, "write_and_move", path="/old/new.txt", to="/moved")

    assert sorted(path.name for path in (drafting.project / "moved").iterdir()) == ["kept.txt", "new.txt"]
    assert (drafting.project / "moved/new.txt").read_bytes() == b"moved\n"
    assert not (drafting.project / "old").exists()


async def test_new_file_that_the_call_removes_is_no_change(drafting: WorkspaceFixture) -> None:
    outcome = await _succeed(drafting, "write_and_remove", path="/a.txt")

    assert outcome.result is False
    assert not (drafting.project / "a.txt").exists()
    assert await _versions(drafting, "/a.txt") == []


async def test_path_that_the_call_freed_can_become_a_folder(drafting: WorkspaceFixture) -> None:
    await drafting.result("write", path="/a", content="file\n")

    await _succeed(drafting, "replace_by_folder", path="/a")

    assert (drafting.project / "a/inside").read_bytes() == b"in\n"


async def test_file_that_the_call_created_is_not_a_folder(drafting: WorkspaceFixture) -> None:
    outcome = await drafting.call("write_into_file", path="/a")

    assert isinstance(outcome.error, Conflict)
    assert not (drafting.project / "a").exists()


async def _succeed(workspace: WorkspaceFixture, tool: str, **arguments: Any) -> Outcome:
    outcome = await workspace.call(tool, **arguments)
    assert outcome.succeeded, outcome.error
    return outcome


async def _versions(workspace: WorkspaceFixture, path: str) -> list[Any]:
    found = await rows(
        workspace,
        "select v.version_number from versions v where v.path = %s and v.workspace_id = %s order by 1",
        path,
    )
    return [number for (number,) in found]

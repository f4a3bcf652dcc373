"""Directories and files that someone locked outside Toolcrib: nothing is half done, and the message says what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import WorkspaceFixture
from toolcrib.core.tool_calls import Outcome

READ_ONLY = "Nothing was changed: the directory /d is read-only. Make it writable with `chmod u+rwx`, then repeat."
DENIED = "The operating system denies access to it. Correct its owner or mode, then undo it again."


@contextmanager
def locked(path: Path, mode: int) -> Iterator[None]:
    """Lock a path, as its owner can, and unlock it at the end."""
    before = path.stat().st_mode & 0o777
    path.chmod(mode)
    try:
        yield
    finally:
        path.chmod(before)


async def write_into_d(workspace: WorkspaceFixture, **files: str) -> list[Outcome]:
    """Write files into /d, each by its own call."""
    calls = [await workspace.call("write", path=f"/d/{name}", content=text) for name, text in files.items()]
    assert all(call.succeeded for call in calls)
    return calls


def paths(found: list[dict[str, Any]]) -> set[str]:
    return {one["path"] for one in found}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write", {"path": "/d/new.md", "content": "new"}),
        ("write", {"path": "/d/a", "content": "new", "overwrite": True}),
        ("edit", {"path": "/d/a", "old_string": "a", "new_string": "b"}),
        ("mkdir", {"path": "/d/e"}),
        ("rm", {"path": "/d/a"}),
        ("mv", {"source": "/d/a", "destination": "/b"}),
        ("mv", {"source": "/x", "destination": "/d/x"}),
    ],
    ids=["write a new file", "replace a file", "edit", "mkdir", "rm", "mv out", "mv in"],
)
async def test_read_only_directory_fails_the_call_and_nothing_else(
    workspace: WorkspaceFixture, tool: str, arguments: dict[str, Any]
) -> None:
    await write_into_d(workspace, a="a")
    await workspace.result("write", path="/x", content="x")
    other = await workspace.call("write", path="/c", content="c")

    with locked(workspace.project / "d", 0o555):
        outcome = await workspace.call(tool, **arguments)
        read = await workspace.result("read", path="/d/a")
        undone = await workspace.result("undo", calls=[str(other.call_id)])

    assert outcome.error is not None
    assert outcome.error.message == READ_ONLY
    assert [path.name for path in (workspace.project / "d").iterdir()] == ["a"]
    assert (read["content"], paths(undone["changes"]), undone["conflicts"]) == ("a", {"/c"}, [])
    assert (await workspace.call(tool, **arguments)).succeeded


async def test_unreadable_file_is_not_replaced(workspace: WorkspaceFixture) -> None:
    await write_into_d(workspace, a="a", b="b")

    with locked(workspace.project / "d" / "a", 0o000):
        outcome = await workspace.call("write", path="/d/a", content="new", overwrite=True)
        other = await workspace.call("write", path="/d/b", content="new", overwrite=True)

    assert outcome.error is not None
    assert outcome.error.message.startswith("The operating system denies access to /d/a. Correct its owner or mode")
    assert other.succeeded
    assert (workspace.project / "d" / "a").read_text() == "a"


@pytest.mark.parametrize("force", [False, True])
async def test_unreadable_file_is_a_conflict_and_the_others_are_undone(
    workspace: WorkspaceFixture, force: bool
) -> None:
    calls = await write_into_d(workspace, a="a", b="b")

    with locked(workspace.project / "d" / "a", 0o000):
        undone = await workspace.result("undo", calls=[str(call.call_id) for call in calls], force=force)

    assert paths(undone["changes"]) == {"/d/b"}
    reasons = {one["path"]: one["reason"] for one in undone["conflicts"]}
    assert reasons == {"/d": "Contains other files.", "/d/a": DENIED}
    assert [path.name for path in (workspace.project / "d").iterdir()] == ["a"]


@pytest.mark.parametrize("mode", [0o555, 0o000], ids=["read-only", "closed"])
async def test_files_in_a_locked_directory_are_conflicts_and_the_others_are_undone(
    workspace: WorkspaceFixture, mode: int
) -> None:
    await workspace.result("mkdir", path="/d")
    calls = await write_into_d(workspace, a="a")
    calls.append(await workspace.call("write", path="/c", content="c"))

    with locked(workspace.project / "d", mode):
        undone = await workspace.result("undo", calls=[str(call.call_id) for call in calls])

    assert paths(undone["changes"]) == {"/c"}
    [conflict] = undone["conflicts"]
    reason = "Its directory /d is read-only. Make it writable with `chmod u+rwx`, then repeat."
    assert (conflict["path"], conflict["reason"]) == ("/d/a", reason)
    assert (workspace.project / "d" / "a").read_text() == "a"
    again = await workspace.result("undo", calls=[str(call.call_id) for call in calls])
    assert (paths(again["changes"]), again["conflicts"]) == ({"/d/a"}, [])

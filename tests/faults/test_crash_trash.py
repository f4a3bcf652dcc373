"""A process dies while an untracked file is displaced or restored: its bytes are never lost."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.faults.test_crash_points import NewYard, Yard, new_yard
from toolcrib.workspace.sync.path_state import MOST_BYTES

__all__ = ["new_yard"]


LARGE = MOST_BYTES + 1
MARK = b"very many bytes"


def large(yard: Yard, path: str, mark: bytes = MARK) -> None:
    yard.at(path).parent.mkdir(parents=True, exist_ok=True)
    with yard.at(path).open("wb") as file:
        file.write(mark)
        file.truncate(LARGE)


def lying(yard: Yard) -> list[Path]:
    folder = yard.project.parent / "trash"
    return list(folder.iterdir()) if folder.exists() else []


def paths_of(yard: Yard, mark: bytes = MARK) -> list[str]:
    """Return where on this disk the large content is: in the tree by its path, or in the trash."""
    tree = [f"/{path.relative_to(yard.project)}" for path in yard.project.rglob("*") if begins_with(path, mark)]
    return [*tree, *("trash" for path in lying(yard) if begins_with(path, mark))]


def begins_with(path: Path, mark: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(mark)) == mark


def rows(yard: Yard) -> set[str]:
    return {str(id_) for (id_,) in yard.truth.rows("select id from toolcrib.trash where workspace_id = %(workspace)s")}


@dataclass(frozen=True)
class Case:
    """A call that moves large content into the trash or out of it."""

    call: Callable[[Yard], Awaitable[tuple[str, dict[str, Any]]]]
    ends_at: str
    tree: dict[str, str | None]


async def removed(yard: Yard) -> tuple[str, dict[str, Any]]:
    large(yard, "/d/big")
    return "rm", {"path": "/d/big"}


async def overwritten(yard: Yard) -> tuple[str, dict[str, Any]]:
    large(yard, "/d/big")
    return "write", {"path": "/d/big", "content": "small", "overwrite": True}


async def moved(yard: Yard) -> tuple[str, dict[str, Any]]:
    large(yard, "/d/big")
    return "mv", {"source": "/d", "destination": "/e"}


async def brought_back(yard: Yard) -> tuple[str, dict[str, Any]]:
    tool, arguments = await removed(yard)
    return "undo", {"calls": [str((await yard.call(tool, **arguments)).call_id)]}


async def brought_back_over_another(yard: Yard) -> tuple[str, dict[str, Any]]:
    tool, arguments = await overwritten(yard)
    return "undo", {"calls": [str((await yard.call(tool, **arguments)).call_id)]}


async def displaced_again(yard: Yard) -> tuple[str, dict[str, Any]]:
    tool, arguments = await brought_back_over_another(yard)
    return "undo", {"calls": [str((await yard.call(tool, **arguments)).call_id)]}


async def traded(yard: Yard) -> tuple[str, dict[str, Any]]:
    """When undone, a large file and a small one swap their paths."""
    large(yard, "/a")
    await yard.result("write", path="/b", content="small")
    steps = (("/a", "/t"), ("/b", "/a"), ("/t", "/b"))
    calls = [await yard.call("mv", source=source, destination=destination) for source, destination in steps]
    return "undo", {"calls": [str(call.call_id) for call in calls]}


CASES = {
    "removed": Case(removed, "trash", {"/d": None}),
    "overwritten": Case(overwritten, "trash", {"/d": None, "/d/big": "small"}),
    "moved": Case(moved, "/e/big", {"/e": None}),
    "brought back": Case(brought_back, "/d/big", {"/d": None}),
    "brought back over another": Case(brought_back_over_another, "/d/big", {"/d": None}),
    "displaced again": Case(displaced_again, "trash", {"/d": None, "/d/big": "small"}),
    "traded": Case(traded, "/a", {"/b": "small"}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_process_that_dies_at_any_step_loses_no_byte_and_is_recovered_from(case: Case, new_yard: NewYard) -> None:
    for steps in count():
        yard = await new_yard()
        tool, arguments = await case.call(yard)

        was_last = yard.dies(tool, after=steps, **arguments)

        assert len(paths_of(yard)) == 1, f"died after {steps} steps"
        assert was_last or case.ends_at != "trash" or {path.name for path in lying(yard)} <= rows(yard)
        await yard.recovers()
        assert paths_of(yard) == [case.ends_at], f"died after {steps} steps"
        assert tree_of(yard) == case.tree
        assert {path.name for path in lying(yard)} == rows(yard)
        assert not yard.truth.rows("select file_id from toolcrib.pending_applies where workspace_id = %(workspace)s")
        if was_last:
            break
    assert steps > 0


def tree_of(yard: Yard) -> dict[str, str | None]:
    """Return the tree without the large content: folders, and the contents of small files."""
    return {
        f"/{path.relative_to(yard.project)}": path.read_text() if path.is_file() else None
        for path in yard.project.rglob("*")
        if not begins_with(path, MARK)
    }


async def test_external_file_at_its_path_before_recovery_is_kept(new_yard: NewYard) -> None:
    yard = await new_yard()
    large(yard, "/big")
    yard.dies("rm", path="/big", after=3)
    assert paths_of(yard) == ["trash"]
    large(yard, "/big", b"theirs")

    await yard.recovers()

    assert paths_of(yard) == ["trash"]
    assert paths_of(yard, b"theirs") == ["/big"]


async def test_external_change_of_it_before_recovery_is_kept(new_yard: NewYard) -> None:
    yard = await new_yard()
    large(yard, "/big")
    yard.dies("write", path="/big", content="small", overwrite=True)
    assert paths_of(yard) == ["/big"]
    with yard.at("/big").open("ab") as file:
        file.write(b"one line more\n")

    await yard.recovers()

    assert paths_of(yard) == ["/big"]
    assert yard.at("/big").stat().st_size > LARGE
    result = await yard.result("file_info", path="/big")
    assert result["size"] == yard.at("/big").stat().st_size


@pytest.mark.parametrize("written", ["/big", "/moved"])
async def test_move_with_external_changes_before_recovery_loses_neither(new_yard: NewYard, written: str) -> None:
    yard = await new_yard()
    large(yard, "/big")
    yard.dies("mv", source="/big", destination="/moved")
    large(yard, written, b"theirs")

    await yard.recovers()

    assert paths_of(yard, b"theirs") == ["/moved"]
    assert paths_of(yard) == ([] if written == "/big" else ["trash"])
    assert {path.name for path in lying(yard)} == rows(yard)


async def test_file_that_cannot_be_restored_over_an_external_one_stays_in_the_trash(new_yard: NewYard) -> None:
    yard = await new_yard()
    tool, arguments = await brought_back(yard)
    yard.dies(tool, **arguments)
    large(yard, "/d/big", b"theirs")

    await yard.recovers()

    assert paths_of(yard) == ["trash"]
    assert paths_of(yard, b"theirs") == ["/d/big"]
    assert {path.name for path in lying(yard)} == rows(yard)

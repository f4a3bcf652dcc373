"""Undo after random work: whatever was done, undoing it restores the tree."""

import random

import pytest

from tests.integration.conftest import WorkspaceFixture, new_workspace
from tests.integration.workspace.undo_builders import LARGE, Snapshot, Work, snapshot
from toolcrib.settings import Settings
from toolcrib.storage.database import Database
from toolcrib.workspace.sync import path_state

STEPS = 12


async def check(database: Database, settings: Settings, seed: int, *, large: int = 0) -> None:
    """Check three properties on one random sequence. ``large``: the number of files too large for the history."""
    workspace = await new_workspace(database, settings)
    work = Work(workspace, random.Random(seed))
    await work.put_large(large, known=True)
    snapshots: list[tuple[int, Snapshot]] = [(0, snapshot(workspace.project))]
    for _ in range(STEPS):
        await work.step(work.random.choice("AB"))
        snapshots.append((len(work.done), snapshot(workspace.project)))
    after = snapshots[-1][1]

    await _one_author_loses_nothing_of_the_other(workspace, work, after)
    count, before = work.random.choice(snapshots)
    await _the_last_calls_are_as_if_they_had_never_been(workspace, work.calls()[count:], before)
    if not large:
        await _nothing_was_booked_as_someone_elses(workspace)


async def _one_author_loses_nothing_of_the_other(workspace: WorkspaceFixture, work: Work, after: Snapshot) -> None:
    calls = work.calls("A")
    if not calls:
        return
    outcome = await workspace.call("undo", calls=calls)
    assert outcome.succeeded, outcome.error
    undone = snapshot(workspace.project)
    for path, (kind, _, body) in after.items():
        if kind == "file" and body.startswith(b"B") and b"A" not in body:
            assert body in {held for _, _, held in undone.values()}, f"{path}: {body!r} was lost"
    if outcome.change_set_id is None:
        assert undone == after
        return
    redone = await workspace.call("undo", calls=[str(outcome.call_id)])
    assert redone.succeeded, redone.error
    assert redone.result["conflicts"] == []
    assert snapshot(workspace.project) == after, "undo and redo are not the identity"


async def _the_last_calls_are_as_if_they_had_never_been(
    workspace: WorkspaceFixture, calls: list[str], before: Snapshot
) -> None:
    if not calls:
        return
    # The undo and redo above are in the history of these files: they count as part of the work. Where they undid
    # more than these calls, the undo must name them.
    undoings = [str(record) for record in await _undo_calls(workspace)]
    outcome = await workspace.call("undo", calls=[*calls, *undoings])
    assert outcome.succeeded, outcome.error
    assert outcome.result["conflicts"] == []
    assert snapshot(workspace.project) == before


async def _undo_calls(workspace: WorkspaceFixture) -> list[object]:
    async with workspace.database.as_system() as connection:
        cursor = await connection.execute(
            "select id from toolcrib.tool_calls where workspace_id = %s and tool = 'undo'",
            (workspace.caller.workspace_id,),
        )
        return [id_ for (id_,) in await cursor.fetchall()]


async def _nothing_was_booked_as_someone_elses(workspace: WorkspaceFixture) -> None:
    async with workspace.database.as_system() as connection:
        cursor = await connection.execute(
            "select count(*) from toolcrib.change_sets where workspace_id = %s and author_kind = 'external'",
            (workspace.caller.workspace_id,),
        )
        assert await cursor.fetchone() == (0,)


@pytest.mark.gate_cases(2)
@pytest.mark.parametrize("start", range(0, 200, 20))
async def test_random_work_of_two_authors_is_undone_and_redone(
    database: Database, settings: Settings, start: int
) -> None:
    for seed in range(start, start + 20):
        try:
            await check(database, settings, seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.gate_cases(1)
@pytest.mark.parametrize("start", range(0, 100, 20))
async def test_random_work_with_files_too_large_for_the_history_is_undone_and_redone(
    database: Database, settings: Settings, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As small as possible, so that the test does not cost many bytes.
    monkeypatch.setattr(path_state, "MOST_BYTES", LARGE - 1)
    settings = settings.model_copy(update={"max_file_bytes": LARGE - 1})
    for seed in range(start, start + 20):
        try:
            await check(database, settings, seed, large=3)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.gate_cases(1)
@pytest.mark.parametrize("start", range(0, 60, 20))
async def test_random_work_around_untracked_files_loses_none(
    database: Database, settings: Settings, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They move with their folders, block paths, and are imported late; their final path does not matter here."""
    monkeypatch.setattr(path_state, "MOST_BYTES", LARGE - 1)
    settings = settings.model_copy(update={"max_file_bytes": LARGE - 1})
    for seed in range(start, start + 20):
        await check_that_none_is_lost(database, settings, seed)


async def check_that_none_is_lost(database: Database, settings: Settings, seed: int) -> None:
    workspace = await new_workspace(database, settings)
    work = Work(workspace, random.Random(seed))
    await work.put_large(3, known=False)
    large = large_in(workspace)
    for _ in range(STEPS):
        await work.step(work.random.choice("AB"))
        assert large_in(workspace) == large, f"seed {seed}: lost in {work.done[-1]}"
    for calls in (
        work.calls("A"),
        work.calls("B"),
        work.calls(),
        [*work.calls(), *map(str, await _undo_calls(workspace))],
    ):
        if calls:
            await workspace.call("undo", calls=calls)
            assert large_in(workspace) == large, f"seed {seed}: lost in undo of {calls}"


def large_in(workspace: WorkspaceFixture) -> list[bytes]:
    """Return the large contents that are in the tree or in the trash."""
    trash = workspace.project.parent / "trash"
    found = [*snapshot(workspace.project).values(), *(snapshot(trash).values() if trash.exists() else ())]
    return sorted(body for _, _, body in found if body.startswith(b"large"))


@pytest.mark.long
@pytest.mark.parametrize("start", range(1_000, 11_000, 500))
async def test_much_random_work_of_two_authors_is_undone_and_redone(
    database: Database, settings: Settings, start: int
) -> None:
    for seed in range(start, start + 500):
        try:
            await check(database, settings, seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error

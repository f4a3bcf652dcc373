"""Changes: the kind of each, by a complete table, and the paths it touches."""

from dataclasses import replace

import pytest

from tests.wait_until import is_quick
from toolcrib.core.change_sets import (
    Author,
    ChangeKind,
    ChangeSet,
    ChangingCall,
    FileChange,
    LastUndoable,
    UndoCall,
    UndoScope,
    last_undoable,
)
from toolcrib.core.files import AuthorKind, EntryKind, EntryState, FileType
from toolcrib.core.ids import CallId, FileId, RunId, SessionId, VersionId, new_id
from toolcrib.core.paths import Mount, WorkspacePath

A, B = WorkspacePath(Mount.PROJECT, "/a"), WorkspacePath(Mount.PROJECT, "/b")
FILE = EntryState(A, EntryKind.FILE, 0o644, b"1" * 32, 3, 1)
FOLDER = EntryState(A, EntryKind.FOLDER, 0o755)
LINK = EntryState(A, EntryKind.LINK, 0o777, link_target="x")


def change(before: EntryState | None, after: EntryState | None) -> FileChange:
    return FileChange(FileId(new_id()), VersionId(new_id()), FileType.DOCUMENT, None, before, after)


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (None, FILE, ChangeKind.CREATED),
        (None, FOLDER, ChangeKind.CREATED),
        (None, LINK, ChangeKind.CREATED),
        (FILE, None, ChangeKind.DELETED),
        (FOLDER, None, ChangeKind.DELETED),
        (LINK, None, ChangeKind.DELETED),
        (FILE, replace(FILE, path=B), ChangeKind.MOVED),
        (FILE, replace(FILE, path=replace(A, mount=Mount.CENTRAL)), ChangeKind.MOVED),
        (FOLDER, replace(FOLDER, path=B), ChangeKind.MOVED),
        # Moved and changed at once counts as a move: a reader of the history needs the new path most.
        (FILE, replace(FILE, path=B, sha256=b"2" * 32), ChangeKind.MOVED),
        (FILE, FILE, ChangeKind.TOUCHED),
        (FOLDER, FOLDER, ChangeKind.TOUCHED),
        (FILE, replace(FILE, sha256=b"2" * 32), ChangeKind.MODIFIED),
        (FILE, replace(FILE, mode=0o755), ChangeKind.MODIFIED),
        (FILE, FOLDER, ChangeKind.MODIFIED),
        (FILE, LINK, ChangeKind.MODIFIED),
        (FOLDER, FILE, ChangeKind.MODIFIED),
        (LINK, replace(LINK, link_target="y"), ChangeKind.MODIFIED),
    ],
)
def test_the_kind_of_a_change(before: EntryState | None, after: EntryState | None, kind: ChangeKind) -> None:
    assert change(before, after).kind is kind


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        (None, FILE, (A,)),
        (FILE, None, (A,)),
        (FILE, FILE, (A,)),
        (FILE, replace(FILE, path=B), (A, B)),
        (replace(FILE, path=B), FILE, (A, B)),
    ],
)
def test_a_change_touches_one_path_and_a_move_two(
    before: EntryState | None, after: EntryState | None, paths: tuple[WorkspacePath, ...]
) -> None:
    assert change(before, after).paths == paths


def test_a_change_set_touches_each_path_once_and_in_order() -> None:
    moved, made = change(FILE, replace(FILE, path=B)), change(None, replace(FILE, path=B))

    assert ChangeSet(Author(AuthorKind.USER), (made, moved)).paths == (A, B)


def test_content_is_not_logged() -> None:
    assert "words" not in repr(replace(change(None, FILE), body=b"secret words"))


CALLS = [CallId(new_id()) for _ in range(6)]
RUN, SESSION = RunId(new_id()), SessionId(new_id())


def changing(number: int, *, run: bool = False, session: bool = False) -> ChangingCall:
    return ChangingCall(CALLS[number], RUN if run else None, SESSION if session else None)


def undoing(number: int, **reverted: object) -> ChangingCall:
    return ChangingCall(CALLS[number], None, None, UndoCall(CALLS[number], reverted))


def undoing_calls(number: int, *calls: int) -> ChangingCall:
    return undoing(number, calls=[str(CALLS[call]) for call in calls])


@pytest.mark.parametrize(
    ("calls", "last", "expected"),
    [
        ([], LastUndoable.CALL, None),
        ([changing(0), changing(1)], LastUndoable.CALL, UndoScope(calls=(CALLS[1],))),
        ([changing(0), changing(1)], LastUndoable.RUN, UndoScope(calls=(CALLS[1],))),
        ([changing(0, run=True)], LastUndoable.CALL, UndoScope(calls=(CALLS[0],))),
        ([changing(0, run=True)], LastUndoable.RUN, UndoScope(run_id=RUN)),
        ([changing(0, run=True, session=True)], LastUndoable.SESSION, UndoScope(session_id=SESSION)),
        # What was undone is passed over, whether as a call, a run or a session.
        ([changing(0), changing(1), undoing_calls(2, 1)], LastUndoable.CALL, UndoScope(calls=(CALLS[0],))),
        ([changing(0), changing(1, run=True), undoing(2, run_id=str(RUN))], LastUndoable.RUN, UndoScope((CALLS[0],))),
        ([changing(0, session=True), undoing(1, session_id=str(SESSION))], LastUndoable.SESSION, None),
        # It counts again once its undo was undone, and an undo does not cover later calls.
        ([changing(0), undoing_calls(1, 0), undoing_calls(2, 1)], LastUndoable.CALL, UndoScope(calls=(CALLS[0],))),
        ([undoing(0, run_id=str(RUN)), changing(1, run=True)], LastUndoable.RUN, UndoScope(run_id=RUN)),
        # Redo: the last undo, if nothing has changed since, and not twice.
        ([changing(0), undoing_calls(1, 0)], LastUndoable.UNDO, UndoScope(calls=(CALLS[1],))),
        ([changing(0), undoing_calls(1, 0), changing(2)], LastUndoable.UNDO, None),
        ([changing(0), undoing_calls(1, 0), undoing_calls(2, 1)], LastUndoable.UNDO, None),
        (
            [changing(0), changing(1), undoing_calls(2, 1), undoing_calls(3, 0), undoing_calls(4, 3)],
            LastUndoable.UNDO,
            UndoScope(calls=(CALLS[2],)),
        ),
    ],
)
def test_last_change_in_effect(calls: list[ChangingCall], last: LastUndoable, expected: UndoScope | None) -> None:
    assert last_undoable(calls[::-1], last) == expected


def test_sets_of_paths_are_computed_once_for_a_thousand_files() -> None:
    files = [replace(FILE, path=WorkspacePath(Mount.PROJECT, f"/d{n % 7}/f{n}")) for n in range(1_000)]
    folders = [replace(FOLDER, path=WorkspacePath(Mount.PROJECT, f"/d{n}")) for n in range(7)]
    changes = [change(None, one) for one in files]
    changes += [replace(change(None, one), type=FileType.FOLDER) for one in folders]
    change_set = ChangeSet(Author(AuthorKind.USER), tuple(changes))

    assert is_quick(lambda: [path in change_set.folders_on_the_way for path in change_set.paths], 0.5)

    assert change_set.folders_on_the_way == {one.path for one in folders}
    assert change_set.paths == tuple(sorted(one.path for one in (*files, *folders)))

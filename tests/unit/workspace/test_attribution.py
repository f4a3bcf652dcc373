"""The author of a change on disk: by its mtime, the processes that ran then, and the earlier history."""

from uuid import UUID

import pytest

from toolcrib.core.background_processes import BackgroundProcess
from toolcrib.core.change_sets import EXTERNAL, Author, FileChange
from toolcrib.core.files import AuthorKind, EntryKind, EntryState, FileType
from toolcrib.core.ids import AgentId, BackgroundId, CallId, FileId, ProcessId, UserId, VersionId, WorkspaceId, new_id
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.workspace.sync.crash_recovery import DiskChanges
from toolcrib.workspace.sync.reconcile import attribute_changes

STATE = EntryState(WorkspacePath(Mount.PROJECT, "/a"), EntryKind.FILE, 0o644)
ADA, BOB = UserId(UUID(int=1)), UserId(UUID(int=2))


def process(began: int, ended: int | None = None, *, of: UserId = ADA) -> BackgroundProcess:
    return BackgroundProcess(
        WorkspaceId(UUID(int=9)),
        BackgroundId(new_id()),
        Author(AuthorKind.AGENT, of, AgentId(UUID(int=3)), call_id=CallId(new_id())),
        "true",
        "namespaces",
        "node",
        ProcessId(UUID(int=8)),
        began,
        ended,
    )


def author(
    *processes: BackgroundProcess, date: int | None, made: bool = False, all_tracked_before: bool = True
) -> Author:
    """The author of one change; without a date it is a deletion."""
    after = None if date is None else STATE
    change = FileChange(
        FileId(new_id()), VersionId(new_id()), FileType.DOCUMENT, None, None if made else STATE, after, b"x"
    )
    dates = {} if date is None else {change.version_id: date}
    [booked] = attribute_changes(DiskChanges((change,), (), dates), processes, all_tracked_before=all_tracked_before)
    return booked.author


def test_a_change_while_a_process_ran_is_its_change() -> None:
    one = process(10, 20)

    assert author(one, date=15) == one.author
    assert author(one, date=20) == one.author


@pytest.mark.parametrize("date", [5, 10, 21])
def test_a_change_before_or_after_a_process_is_external(date: int) -> None:
    assert author(process(10, 20), date=date) == EXTERNAL


def test_a_deletion_belongs_to_the_running_process() -> None:
    running = process(10)

    assert author(running, date=None) == running.author
    assert author(process(10, 20), date=None) == EXTERNAL


def test_of_several_processes_of_one_owner_the_latest_is_the_author() -> None:
    latest, first = process(20), process(10)

    assert author(latest, first, date=30) == latest.author
    assert author(latest, first, date=15) == first.author


def test_with_processes_of_several_owners_a_change_is_external() -> None:
    assert author(process(20, of=BOB), process(10), date=30) == EXTERNAL


def test_a_new_file_belongs_to_a_process_only_if_all_files_were_known() -> None:
    one = process(10)

    assert author(one, date=15, made=True) == one.author
    assert author(one, date=15, made=True, all_tracked_before=False) == EXTERNAL


def test_a_change_whose_content_is_only_on_disk_is_external() -> None:
    unkept = EntryState(STATE.path, EntryKind.FILE, 0o644, trash_id=new_id(), inode=7)
    change = FileChange(FileId(new_id()), VersionId(new_id()), FileType.DOCUMENT, None, STATE, unkept)

    [booked] = attribute_changes(
        DiskChanges((change,), (), {change.version_id: 15}), [process(10)], all_tracked_before=True
    )

    assert booked.author == EXTERNAL

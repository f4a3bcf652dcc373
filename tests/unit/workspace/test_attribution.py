"""Whose doing a change on disk was: by its date, by who ran then, and by what was known before."""

from uuid import UUID

import pytest

from toolcrib.core.background_processes import BackgroundProcess
from toolcrib.core.change_sets import EXTERNAL, Author, FileChange
from toolcrib.core.files import AuthorKind, EntryKind, EntryState, FileType
from toolcrib.core.ids import AgentId, BackgroundId, CallId, FileId, ProcessId, UserId, VersionId, WorkspaceId, new_id
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.workspace.sync.crash_recovery import DiskChanges
from toolcrib.workspace.sync.reconcile import attribute_changes

pytestmark = pytest.mark.req("SH-5", part="whose doing a change is")

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


def author(*processes: BackgroundProcess, date: int | None, made: bool = False, all_were_known: bool = True) -> Author:
    """Who is answerable for one change; without a date it is a deletion."""
    after = None if date is None else STATE
    change = FileChange(
        FileId(new_id()), VersionId(new_id()), FileType.DOCUMENT, None, None if made else STATE, after, b"x"
    )
    dates = {} if date is None else {change.version_id: date}
    [booked] = attribute_changes(DiskChanges((change,), (), dates), processes, all_were_known=all_were_known)
    return booked.author


def test_what_was_changed_while_one_ran_is_its_doing() -> None:
    one = process(10, 20)

    assert author(one, date=15) == one.author
    assert author(one, date=20) == one.author


@pytest.mark.parametrize("date", [5, 10, 21])
def test_what_was_changed_before_or_after_came_from_outside(date: int) -> None:
    assert author(process(10, 20), date=date) == EXTERNAL


def test_what_is_gone_is_the_doing_of_who_runs_now() -> None:
    running = process(10)

    assert author(running, date=None) == running.author
    assert author(process(10, 20), date=None) == EXTERNAL


def test_of_several_of_one_owner_it_is_the_latest() -> None:
    latest, first = process(20), process(10)

    assert author(latest, first, date=30) == latest.author
    assert author(latest, first, date=15) == first.author


def test_of_several_owners_nobody_can_tell() -> None:
    assert author(process(20, of=BOB), process(10), date=30) == EXTERNAL


def test_what_the_history_did_not_know_is_a_processes_only_if_it_knew_all() -> None:
    one = process(10)

    assert author(one, date=15, made=True) == one.author
    assert author(one, date=15, made=True, all_were_known=False) == EXTERNAL


def test_what_is_kept_nowhere_but_on_disk_is_nobodys() -> None:
    unkept = EntryState(STATE.place, EntryKind.FILE, 0o644, target=f"trash:{new_id()}:7")
    change = FileChange(FileId(new_id()), VersionId(new_id()), FileType.DOCUMENT, None, STATE, unkept)

    [booked] = attribute_changes(
        DiskChanges((change,), (), {change.version_id: 15}), [process(10)], all_were_known=True
    )

    assert booked.author == EXTERNAL

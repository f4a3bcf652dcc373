"""What waits for a person in all their workspaces.

Read with the system role, because it spans workspaces; every statement starts from the person's own memberships.
Viewers decide nothing, so nothing waits for them.
"""

from dataclasses import dataclass
from datetime import datetime

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.ids import RunId, SessionId, UserId, WorkspaceId
from toolcrib.core.runs import RunEnding
from toolcrib.storage.database import Database

# How long a failed run is shown, unless its session goes on.
_FAILURE_DAYS = 7
# How many of a workspace's newest sessions and runs are looked at.
_NEWEST = 50
_FAILURES = [ending for ending in RunEnding if ending not in (RunEnding.DONE, RunEnding.CANCELLED)]


@dataclass(frozen=True, slots=True)
class InboxWorkspace:
    """A workspace of the person, and how many calls wait there for a decision or an answer."""

    workspace_id: WorkspaceId
    name: str
    role: WorkspaceRole
    pending: int


@dataclass(frozen=True, slots=True)
class OpenReview:
    """A session whose changes wait for a review."""

    workspace_id: WorkspaceId
    session_id: SessionId
    title: str | None
    agent_name: str | None
    files: int
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run of the person that failed, and after which its session did not go on."""

    workspace_id: WorkspaceId
    session_id: SessionId
    run_id: RunId
    title: str | None
    agent_name: str | None
    end_reason: str
    message: str | None
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class Inbox:
    """Everything that waits for a person."""

    workspaces: list[InboxWorkspace]
    reviews: list[OpenReview]
    failed_runs: list[FailedRun]


class InboxStore:
    """Reads inboxes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, user_id: UserId) -> Inbox:
        """Return what waits for a person, newest first."""
        values = {"user": user_id, "newest": _NEWEST, "failures": _FAILURES, "days": _FAILURE_DAYS}
        async with self._database.as_system() as connection:
            return Inbox(
                workspaces=await connection.fetch_all(InboxWorkspace, _WORKSPACES, values),
                reviews=await connection.fetch_all(OpenReview, _REVIEWS, values),
                failed_runs=await connection.fetch_all(FailedRun, _FAILED_RUNS, values),
            )


_WORKSPACES = """
    select w.id as workspace_id, w.name, m.role,
           (select count(*) from toolcrib.paused_calls p where p.workspace_id = w.id and p.state = 'pending') as pending
    from toolcrib.members m join toolcrib.workspaces w on w.id = m.workspace_id
    where m.user_id = %(user)s and m.role <> 'viewer' order by w.created_at, w.id
"""

_REVIEWS = """
    select m.workspace_id, s.id as session_id, s.title, a.name as agent_name, f.files, f.changed_at
    from toolcrib.members m
    cross join lateral (
        select id, title, agent_id from toolcrib.sessions
        where workspace_id = m.workspace_id and parent_session_id is null order by id desc limit %(newest)s) s
    cross join lateral (
        select count(distinct v.file_id) as files, max(v.created_at) as changed_at
        from toolcrib.change_sets c
        join toolcrib.versions v on v.workspace_id = c.workspace_id and v.change_set_id = c.id
        left join toolcrib.reviewed_files r
            on r.workspace_id = c.workspace_id and r.session_id = s.id and r.file_id = v.file_id
        where c.workspace_id = m.workspace_id and c.session_id = s.id and c.author_kind = 'agent'
          and c.state = 'committed' and v.kind <> 'folder' and v.version_number > coalesce(r.version_number, 0)) f
    left join toolcrib.agents a on a.workspace_id = m.workspace_id and a.id = s.agent_id
    where m.user_id = %(user)s and m.role <> 'viewer' and f.files > 0
      and toolcrib.session_trust(m.workspace_id, s.id) = 'review'
    order by f.changed_at desc
"""

_FAILED_RUNS = """
    select m.workspace_id, r.session_id, r.id as run_id, s.title, a.name as agent_name, r.end_reason,
           r.error ->> 'message' as message, r.ended_at
    from toolcrib.members m
    cross join lateral (
        select * from toolcrib.runs where workspace_id = m.workspace_id order by id desc limit %(newest)s) r
    join toolcrib.sessions s on s.workspace_id = r.workspace_id and s.id = r.session_id
    left join toolcrib.agents a on a.workspace_id = r.workspace_id and a.id = r.agent_id
    where m.user_id = %(user)s and m.role <> 'viewer' and r.user_id = m.user_id
      and r.state = 'ended' and r.end_reason = any (%(failures)s) and r.parent_run_id is null
      and r.ended_at > now() - make_interval(days => %(days)s)
      and not exists (select from toolcrib.runs later where later.workspace_id = r.workspace_id
                      and later.session_id = r.session_id and later.id > r.id)
    order by r.ended_at desc
"""

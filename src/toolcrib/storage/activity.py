"""Fingerprints of what people see of a workspace without opening it. One differs from the last if there is news.

The event hub reads them with the system role, for connections that were authorized. All lookups are bounded and use
indexes: rows that wait or run are few, and of the rest only the newest are read.
"""

from collections.abc import Collection
from dataclasses import dataclass

from toolcrib.core.events import ActivityTopic
from toolcrib.core.ids import UserId, WorkspaceId
from toolcrib.storage.database import Database

Fingerprints = dict[ActivityTopic, str]


@dataclass(frozen=True, slots=True)
class _WorkspaceRow:
    workspace_id: WorkspaceId
    approvals: str
    runs: str
    sessions: str
    files: str
    history: str


class ActivityStore:
    """Reads fingerprints of several workspaces at once."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_workspaces(self, workspaces: Collection[WorkspaceId]) -> dict[WorkspaceId, Fingerprints]:
        """Return the fingerprint of each topic; deleted workspaces are missing."""
        async with self._database.as_system() as connection:
            rows = await connection.fetch_all(
                _WorkspaceRow,
                """
                select w.id as workspace_id,
                    (select md5(coalesce(string_agg(p.id::text, ' ' order by p.id), '')) from (
                        select id from toolcrib.paused_calls
                        where workspace_id = w.id and state = 'pending' order by id desc limit 1000) p) as approvals,
                    (select md5(coalesce(string_agg(concat_ws(' ', r.id, r.state), ' ' order by r.id), '')) from (
                        (select id, state from toolcrib.runs
                         where workspace_id = w.id and state in ('ready', 'running', 'waiting') limit 1000)
                        union all
                        (select id, state from toolcrib.runs
                         where workspace_id = w.id and state = 'queued' and not held limit 1000)) r) as runs,
                    (select md5(coalesce(string_agg(
                        concat_ws(' ', s.id, s.title, s.mode, s.trust, s.phase, s.review_note), ' ' order by s.id), ''))
                     from (select * from toolcrib.sessions
                           where workspace_id = w.id order by id desc limit 50) s) as sessions,
                    (select md5(coalesce(string_agg(concat_ws(' ', c.id, c.state), ' ' order by c.id), '')) from (
                        select id, state from toolcrib.change_sets
                        where workspace_id = w.id order by id desc limit 20) c) as files,
                    (select md5(coalesce(string_agg(concat_ws(' ', e.id, e.last_seq), ' ' order by e.id), '')) from (
                        (select id, last_seq from toolcrib.sessions
                         where workspace_id = w.id order by id desc limit 50)
                        union
                        (select s.id, s.last_seq from toolcrib.runs r
                         join toolcrib.sessions s on s.workspace_id = r.workspace_id and s.id = r.session_id
                         where r.workspace_id = w.id and r.state in ('ready', 'running', 'waiting')
                         limit 1000)) e) as history
                from toolcrib.workspaces w where w.id = any (%s)
                """,
                (list(workspaces),),
            )
        return {
            row.workspace_id: {
                ActivityTopic.APPROVALS: row.approvals,
                ActivityTopic.RUNS: row.runs,
                ActivityTopic.SESSIONS: row.sessions,
                ActivityTopic.FILES: row.files,
                ActivityTopic.HISTORY: row.history,
            }
            for row in rows
        }

    async def waiting_for(self, users: Collection[UserId]) -> dict[UserId, dict[WorkspaceId, str]]:
        """Return, per user, the fingerprint of what waits or runs in each of their workspaces where anything does."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                select m.user_id, m.workspace_id, md5(string_agg(p.id::text, ' ' order by p.id))
                from toolcrib.members m
                cross join lateral (
                    (select id from toolcrib.paused_calls
                     where workspace_id = m.workspace_id and state = 'pending' order by id desc limit 100)
                    union all
                    (select id from toolcrib.runs
                     where workspace_id = m.workspace_id and state in ('ready', 'running', 'waiting') limit 100)) p
                where m.user_id = any (%s) group by m.user_id, m.workspace_id
                """,
                (list(users),),
            )
            found: dict[UserId, dict[WorkspaceId, str]] = {user_id: {} for user_id in users}
            for user_id, workspace_id, fingerprint in await cursor.fetchall():
                found[UserId(user_id)][WorkspaceId(workspace_id)] = fingerprint
        return found

"""Leaving plan mode: which answers of people the server itself holds, and the session's mode."""

from toolcrib.domain.callers import Role
from toolcrib.domain.ids import FileId, SessionId
from toolcrib.storage.database import Database, Tenant


class PlanMode:
    """Queries on accepted plans."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def leave(self, tenant: Tenant, session_id: SessionId, plan: FileId, name: str) -> str | None:
        """Puts the session into build mode if a person accepted this plan in it, by button; else why not.

        The answer must be about the plan as it is now: asked after its last change, and naming it or asked when it was
        the last plan that the session had written. Each answer opens the door once.
        """
        async with self._database.transaction(tenant, Role.MEMBER) as connection:
            cursor = await connection.execute(
                """
                select s.mode, exists (
                    select from toolcrib.questions q, jsonb_array_elements(q.items) as item
                    where q.workspace_id = s.workspace_id and q.session_id = s.id and q.state = 'answered'
                      and q.answers ->> (item ->> 'name') = 'Accept' and (item ->> 'name') = any (q.by_button)
                      and item -> 'buttons' @> '[{"value": "Reject"}]'
                      and not q.used
                      -- The plan is the one that was shown: nothing was changed in it since.
                      and not exists (select from toolcrib.versions v
                                      where v.workspace_id = s.workspace_id and v.file_id = %(plan)s
                                        and v.created_at > q.created_at)
                      and (position(%(name)s in item ->> 'question') > 0
                           or %(plan)s = (select f.id from toolcrib.files f
                                          join toolcrib.versions v
                                               on v.workspace_id = f.workspace_id and v.file_id = f.id
                                          join toolcrib.change_sets c
                                               on c.workspace_id = v.workspace_id and c.id = v.change_set_id
                                          where f.workspace_id = s.workspace_id and f.type = 'plan'
                                            and c.session_id = s.id and v.created_at < q.created_at
                                          order by v.created_at desc limit 1)))
                from toolcrib.sessions s where s.workspace_id = %(workspace)s and s.id = %(session)s for update of s
                """,
                {"workspace": tenant.workspace_id, "session": session_id, "plan": plan, "name": name},
            )
            row = await cursor.fetchone()
            if row is None:
                return "There is no such session."
            mode, accepted = row
            if mode == "build":
                return "The session is in build mode already."
            if not accepted:
                return (
                    "No person has accepted this plan by button in this session since it was last changed. "
                    "Ask with `ask_user` (buttons Accept and Reject), then call this again."
                )
            await connection.execute(
                "update toolcrib.sessions set mode = 'build' where workspace_id = %s and id = %s",
                (tenant.workspace_id, session_id),
            )
            await connection.execute(
                """
                update toolcrib.questions set used = true
                where workspace_id = %s and session_id = %s and state = 'answered' and not used
                """,
                (tenant.workspace_id, session_id),
            )
        return None

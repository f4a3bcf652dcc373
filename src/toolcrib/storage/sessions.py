"""Sessions and their durable events, numbered without gaps. Also the end of plan mode."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, LiteralString

from toolcrib.core.agents import AgentRules, TrustLevel
from toolcrib.core.callers import Agent, Narrowing, SessionMode, WorkspaceRole
from toolcrib.core.errors import Conflict, Forbidden, NotFound
from toolcrib.core.events import Event, EventType
from toolcrib.core.idempotency import EffectKind, effect_id
from toolcrib.core.ids import AgentId, CallId, FileId, MessageId, RunId, SessionId, UserId
from toolcrib.core.json_text import json_text
from toolcrib.core.packages import Workflow
from toolcrib.core.runs import SessionActivity
from toolcrib.policy.trust import in_phase, in_session, reject_beyond_ceiling, reject_unknown_phase
from toolcrib.storage.agents import require_agent
from toolcrib.storage.database import Connection, Database, Store, Tenant
from toolcrib.storage.quotas import SESSIONS, has_all

# How many events back an end is searched: a source that was active a moment ago ended among the newest events.
_RECENT = 500


@dataclass(frozen=True, slots=True)
class Session:
    """A session as it is stored. ``last_seq`` is the number of its newest event."""

    id: SessionId
    title: str | None
    agent_id: AgentId | None
    mode: SessionMode
    trust: TrustLevel | None
    created_by: UserId
    created_at: datetime
    last_seq: int
    # Whether an owner set the trust of this session.
    trust_by_owner: bool = False
    # The model chosen for this session; None means the agent's own.
    provider: str | None = None
    model: str | None = None
    # One of the agent's phases; None means its first.
    phase: str | None = None
    # The package whose workflow it runs, if any.
    package: str | None = None
    # For the session of a child run: the run that started it, and how that narrows its permissions.
    parent_session_id: SessionId | None = None
    parent_run_id: RunId | None = None
    narrowed_to: Narrowing | None = None
    # Where its commands start, relative to the project. Empty: its root.
    directory: str = ""
    # What it continues, if it was forked.
    forked_from_session_id: SessionId | None = None
    forked_from_message_id: MessageId | None = None

    def apply_to(self, agent: Agent) -> Agent:
        """Return the agent as it calls tools in this session: with the session's phase, trust and directory.

        They are for the session's own agent only.
        """
        if agent.id != self.agent_id:
            return agent
        here = replace(agent, directory=self.directory)
        return in_session(in_phase(here, self.phase), self.trust, by_owner=self.trust_by_owner)


@dataclass(frozen=True, slots=True)
class ListedSession(Session):
    """A session with what a list shows of it: its owner, what it does now, and what it has cost in US dollars."""

    owner_name: str | None = None
    activity: SessionActivity = SessionActivity.IDLE
    cost: Decimal | None = None


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A session that a search found, and the text that matched: its title, or a message."""

    session_id: SessionId
    title: str | None
    message_id: MessageId | None
    role: str | None
    excerpt: str | None
    found_at: datetime


class SessionStore:
    """Queries on sessions and events."""

    def __init__(self, database: Database, *, most: int = SESSIONS) -> None:
        self._database = database
        self._most = most

    async def create(
        self,
        tenant: Tenant,
        *,
        title: str | None = None,
        agent_id: AgentId | None = None,
        mode: SessionMode = SessionMode.BUILD,
        trust: TrustLevel | None = None,
        provider: str | None = None,
        model: str | None = None,
        phase: str | None = None,
        package: str | None = None,
        workflow: Workflow | None = None,
        directory: str = "",
        within: Connection | None = None,
    ) -> Session:
        """Create a session, with or without an agent of the workspace.

        With ``package`` it runs that package's workflow.

        Args:
            within: A transaction of the tenant, a member. By default, one of its own.

        Raises:
            Forbidden: The trust is above the maximum of the agent or the workspace.
        """
        async with (
            self._database.transaction(tenant, WorkspaceRole.MEMBER) if within is None else nullcontext(within)
        ) as connection:
            if agent_id is not None:
                await require_agent(connection, tenant, agent_id)
            await _reject_unknown_phase(connection, tenant, agent_id, phase)
            by_owner = await _reject_beyond_ceiling(connection, tenant, agent_id, trust)
            rows = "select from toolcrib.sessions where workspace_id = %s"
            if await has_all(connection, rows, (tenant.workspace_id,), most=self._most):
                raise Conflict(f"This workspace has {self._most} sessions, the limit. Delete one first.")
            [session] = await connection.fetch_all(
                Session,
                f"""
                insert into toolcrib.sessions
                    (workspace_id, id, title, agent_id, mode, trust, trust_by_owner, created_by, provider, model,
                     phase, package, workflow, directory)
                values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) returning {_COLUMNS}
                """,  # noqa: S608 - the columns are a constant of this module
                (
                    tenant.workspace_id,
                    effect_id(EffectKind.SESSION),
                    title,
                    agent_id,
                    mode,
                    trust,
                    by_owner,
                    tenant.user_id,
                    provider,
                    model,
                    phase,
                    package,
                    None if workflow is None else json_text(workflow.as_json()),
                    directory,
                ),
            )
        return session

    async def page(
        self, tenant: Tenant, *, before: SessionId | None, limit: int, parent_id: SessionId | None = None
    ) -> list[ListedSession]:
        """Return the workspace's sessions, newest first; without those of child runs, or only those of one parent."""
        async with self._database.transaction(tenant) as connection:
            return await connection.fetch_all(
                ListedSession,
                f"""
                select s.*, coalesce(u.full_name, u.email) as owner_name, used.cost,
                       case when r.state = 'waiting' and not r.waits_for_child then 'waiting'
                            when r.state in ('ready', 'running', 'waiting') then 'working'
                            when r.state = 'queued' then 'queued'
                            when r.end_reason not in ('done', 'cancelled') then 'failed'
                            else 'idle' end as activity
                from (select {_COLUMNS} from toolcrib.sessions
                      where workspace_id = %(workspace)s and (%(before)s::uuid is null or id < %(before)s)
                        and parent_session_id is not distinct from %(parent)s
                      order by id desc limit %(limit)s) s
                left join toolcrib.users u on u.id = s.created_by
                -- What it does now, or how it ended last.
                left join lateral (
                    select r.state, r.end_reason, r.waits_for_child from toolcrib.runs r
                    where r.workspace_id = %(workspace)s and r.session_id = s.id and not r.held
                    order by r.state in ('ready', 'running', 'waiting') desc, r.id desc limit 1
                ) r on true
                left join lateral (
                    select sum(m.cost) as cost from toolcrib.model_usage m
                    where m.workspace_id = %(workspace)s and m.kind = 'session' and m.key = s.id::text
                ) used on true
                order by s.id desc
                """,  # noqa: S608 - as above
                {"workspace": tenant.workspace_id, "before": before, "limit": limit, "parent": parent_id},
            )

    async def search(self, tenant: Tenant, query: str, *, limit: int) -> list[FoundSession]:
        """Return the sessions with words that begin with those of the query, by title first, then by message."""
        async with self._database.transaction(tenant) as connection:
            return await connection.fetch_all(
                FoundSession,
                """
                select f.session_id, s.title, f.message_id, f.role, f.excerpt, f.found_at
                from toolcrib.search_sessions(%(query)s, %(limit)s) f
                join toolcrib.sessions s on s.workspace_id = %(workspace)s and s.id = f.session_id
                order by f.message_id is not null, f.found_at desc
                """,
                {"query": query, "limit": limit, "workspace": tenant.workspace_id},
            )

    async def get(self, tenant: Tenant, session_id: SessionId) -> Session:
        """Return one session."""
        async with self._database.transaction(tenant) as connection:
            return await _found(connection, tenant, session_id)

    async def get_within(self, connection: Connection, tenant: Tenant, session_id: SessionId) -> Session:
        """Return one session, in a transaction of the tenant."""
        return await _found(connection, tenant, session_id)

    async def workflow(self, tenant: Tenant, session_id: SessionId) -> Workflow | None:
        """Return the workflow rules of a session, as they were when it was created."""
        async with self._database.transaction(tenant) as connection:
            row = await connection.fetch_row(
                "select workflow from toolcrib.sessions where workspace_id = %s and id = %s",
                (tenant.workspace_id, session_id),
            )
        return None if row is None or row[0] is None else Workflow.from_json(row[0])

    async def rename(self, tenant: Tenant, session_id: SessionId, title: str | None) -> Session:
        """Change the title."""
        return await self._update(tenant, session_id, "title = %s, updated_at = now()", title)

    async def set_trust(self, tenant: Tenant, session_id: SessionId, trust: TrustLevel | None) -> Session:
        """Set the trust of a session; None means the agent's own.

        Raises:
            Forbidden: It is above the owners' maximum, or above the agent's own trust and the user is not an owner.
        """
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            session = await _found(connection, tenant, session_id)
            by_owner = await _reject_beyond_ceiling(connection, tenant, session.agent_id, trust)
            return await _updated(connection, tenant, session_id, "trust = %s, trust_by_owner = %s", trust, by_owner)

    async def choose_model(
        self, tenant: Tenant, session_id: SessionId, *, provider: str | None, model: str | None
    ) -> Session:
        """Set the model from the next turn on; None means the agent's own."""
        return await self._update(tenant, session_id, "provider = %s, model = %s", provider, model)

    async def set_mode(self, tenant: Tenant, session_id: SessionId, mode: SessionMode) -> Session:
        """Set plan or build mode, as a person. An agent leaves plan mode only with a plan that a person accepted."""
        return await self._update(tenant, session_id, "mode = %s", mode)

    async def enter_phase(self, tenant: Tenant, session_id: SessionId, phase: str | None) -> Session:
        """Set the phase of the agent's workflow, as a person; None means the agent's first.

        Raises:
            BadArguments: The agent's definition has no such phase.
        """
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            session = await _found(connection, tenant, session_id)
            await _reject_unknown_phase(connection, tenant, session.agent_id, phase)
            return await _updated(connection, tenant, session_id, "phase = %s", phase)

    async def delete(self, tenant: Tenant, session_id: SessionId) -> None:
        """Delete a session with its events and attachments. Only for its creator and owners.

        The audit log keeps its records, and the history its calls.
        """
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            session = await _found(connection, tenant, session_id)
            cursor = await connection.execute(
                """
                delete from toolcrib.sessions s where s.workspace_id = %(workspace)s and s.id = %(session)s
                  and (s.created_by = %(user)s
                       or exists (select from toolcrib.members m where m.workspace_id = s.workspace_id
                                  and m.user_id = %(user)s and m.role = 'owner'))
                """,
                {"workspace": tenant.workspace_id, "session": session.id, "user": tenant.user_id},
            )
            if cursor.rowcount == 0:
                raise Forbidden("Only the creator of a session or an owner of the workspace can delete it.")
            await connection.execute(
                """
                update toolcrib.tool_calls set result = null
                where workspace_id = %s and session_id = %s and tool = 'attach'
                """,
                (tenant.workspace_id, session.id),
            )

    async def _update(self, tenant: Tenant, session_id: SessionId, columns: LiteralString, *values: Any) -> Session:
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            return await _updated(connection, tenant, session_id, columns, *values)

    # Events

    async def events_after(self, tenant: Tenant, session_id: SessionId, seq: int, *, limit: int) -> list[Event]:
        """Return up to ``limit`` events with greater numbers.

        Raises:
            NotFound: The workspace has no such session.
        """
        async with self._database.transaction(tenant) as connection:
            events = await connection.fetch_all(
                Event,
                """
                select session_id, type, payload, seq from toolcrib.events
                where workspace_id = %s and session_id = %s and seq > %s order by seq limit %s
                """,
                (tenant.workspace_id, session_id, seq, limit),
            )
            if not events:
                await _found(connection, tenant, session_id)
        return events

    async def messages_of_calls(
        self, tenant: Tenant, session_id: SessionId, call_ids: Sequence[CallId]
    ) -> dict[CallId, str]:
        """Return the message that requested each of these calls, for calls of a model."""
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                """
                select c.id, m.id::text from unnest(%(calls)s::uuid[]) as c (id)
                join toolcrib.messages m on m.workspace_id = %(workspace)s and m.session_id = %(session)s
                     and m.metadata -> 'tool_calls' @> jsonb_build_array(jsonb_build_object('call_id', c.id))
                """,
                {"calls": list(call_ids), "workspace": tenant.workspace_id, "session": session_id},
            )
            return {CallId(row[0]): row[1] for row in await cursor.fetchall()}

    async def ended_sources(self, tenant: Tenant, session_id: SessionId, sources: Sequence[str]) -> set[str]:
        """Return which of these sources (calls and messages) ended recently."""
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                """
                select coalesce(e.payload ->> 'toolId', e.payload ->> 'messageId')
                from toolcrib.sessions s
                join toolcrib.events e on e.workspace_id = s.workspace_id and e.session_id = s.id
                     and e.seq > s.last_seq - %(recent)s
                where s.workspace_id = %(workspace)s and s.id = %(session)s and e.type = any (%(ends)s)
                """,
                {
                    "workspace": tenant.workspace_id,
                    "session": session_id,
                    "recent": _RECENT,
                    "ends": [EventType.TOOL_RESULT.value, EventType.STREAM_END.value],
                },
            )
            return {row[0] for row in await cursor.fetchall()} & set(sources)


_COLUMNS = """
    id, title, agent_id, mode, trust, created_by, created_at, last_seq, trust_by_owner, provider, model, phase, package,
    parent_session_id, parent_run_id, narrowed_to, directory, forked_from_session_id, forked_from_message_id
"""


async def _found(connection: Connection, tenant: Tenant, session_id: SessionId) -> Session:
    statement = f"select {_COLUMNS} from toolcrib.sessions where workspace_id = %s and id = %s"  # noqa: S608 - as above
    return _required(await connection.fetch_one(Session, statement, (tenant.workspace_id, session_id)), session_id)


async def _updated(
    connection: Connection, tenant: Tenant, session_id: SessionId, columns: LiteralString, *values: Any
) -> Session:
    statement = f"update toolcrib.sessions set {columns} where workspace_id = %s and id = %s returning {_COLUMNS}"  # noqa: S608 - as above
    session = await connection.fetch_one(Session, statement, (*values, tenant.workspace_id, session_id))
    return _required(session, session_id)


def _required(session: Session | None, session_id: SessionId) -> Session:
    if session is None:
        raise NotFound(f"Session {session_id} not found in this workspace.")
    return session


async def _reject_unknown_phase(
    connection: Connection, tenant: Tenant, agent_id: AgentId | None, phase: str | None
) -> None:
    if phase is None:
        return
    row = await connection.fetch_row(
        "select rules from toolcrib.agents where workspace_id = %s and id = %s", (tenant.workspace_id, agent_id)
    )
    reject_unknown_phase(AgentRules.model_validate(row[0]) if row else None, phase)


async def _reject_beyond_ceiling(
    connection: Connection, tenant: Tenant, agent_id: AgentId | None, trust: TrustLevel | None
) -> bool:
    """Check the trust against the maximum. Returns whether the user is an owner."""
    row = await connection.returned_row(
        """
        select w.max_trust, a.rules,
               (select m.role from toolcrib.members m where m.workspace_id = w.id and m.user_id = %(user)s)
        from toolcrib.workspaces w
        left join toolcrib.agents a on a.workspace_id = w.id and a.id = %(agent)s
        where w.id = %(workspace)s
        """,
        {"workspace": tenant.workspace_id, "agent": agent_id, "user": tenant.user_id},
    )
    ceiling, rules, role = row
    # The system has no role, and is bound only by the owners' maximum.
    role = WorkspaceRole.OWNER if tenant.user_id is None else WorkspaceRole(role)
    reject_beyond_ceiling(
        trust,
        role=role,
        rules=None if rules is None else AgentRules.model_validate(rules),
        workspace_ceiling=None if ceiling is None else TrustLevel(ceiling),
    )
    return trust is not None and role is WorkspaceRole.OWNER


class PlanModeStore(Store):
    """Queries on accepted plans."""

    async def leave(self, tenant: Tenant, session_id: SessionId, plan: FileId, name: str) -> str | None:
        """Switch the session to build mode if a person accepted this plan in it by button. Returns why not, or None.

        The answer must be about the current plan: asked after its last change, and naming it or asked when it was the
        latest plan of the session. Each answer works once.
        """
        async with self._database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
            row = await connection.fetch_row(
                """
                select s.mode, exists (
                    select from toolcrib.paused_calls q, jsonb_array_elements(q.questions) as item
                    where q.workspace_id = s.workspace_id and q.session_id = s.id and q.state = 'answered'
                      and q.answers ->> (item ->> 'name') = 'Accept'
                      and (item ->> 'name') = any (q.answered_with_button)
                      and item -> 'buttons' @> '[{"value": "Reject"}]'
                      and q.answer_used_at is null
                      -- The plan has not changed since the question was asked.
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
            if row is None:
                return "Session not found."
            mode, accepted = row
            if mode == "build":
                return "The session is already in build mode."
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
                update toolcrib.paused_calls set answer_used_at = now()
                where workspace_id = %s and session_id = %s and state = 'answered' and answer_used_at is null
                """,
                (tenant.workspace_id, session_id),
            )
        return None

"""Child runs as rows: a call starts one in a session of its own, and waits for its end."""

from collections.abc import Callable
from dataclasses import dataclass

from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import Caller, Narrowing, WorkspaceRole
from toolcrib.core.errors import Conflict, Superseded, ToolFailed
from toolcrib.core.events import EventType
from toolcrib.core.ids import AgentId, RunId, SessionId, WorkspaceId, new_id
from toolcrib.core.json_text import json_text
from toolcrib.core.runs import AGENTIC_SECONDS, RunEnding
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.quotas import SESSIONS, has_all
from toolcrib.storage.runs import ELAPSED, RunStore


@dataclass(frozen=True, slots=True)
class ChildRunLimits:
    """How deep child runs may start others, and how many a session may have: at once, and in all."""

    depth: int = 3
    at_once: int = 20
    total: int = 200


@dataclass(frozen=True, slots=True)
class ChildAgent:
    """An agent that a child run may use. ``has_model``: its definition names one."""

    id: AgentId
    name: str
    has_model: bool


@dataclass(frozen=True, slots=True)
class ChildRun:
    """A child run as its parent's call sees it. ``text`` is the model's last message, empty if there is none."""

    run_id: RunId
    session_id: SessionId
    agent_name: str
    end_reason: RunEnding | None
    error_message: str | None
    text: str
    turns: int
    input_tokens: int
    output_tokens: int


class ChildRunStore(RunStore):
    """Queries on child runs."""

    def __init__(
        self,
        database: Database,
        *,
        limits: ChildRunLimits,
        max_at_work: int,
        on_started: Callable[[WorkspaceId, list[RunId]], None],
        most_sessions: int = SESSIONS,
    ) -> None:
        """Create the store. ``on_started`` is called with runs that have become ready."""
        super().__init__(database, max_at_work=max_at_work)
        self._limits = limits
        self._on_started = on_started
        self._most_sessions = most_sessions

    async def of_call(self, caller: Caller) -> ChildRun | None:
        """Return the child run that a call has started."""
        async with self._database.transaction(Tenant.of(caller)) as connection:
            return await connection.fetch_one(
                ChildRun,
                """
                select r.id as run_id, r.session_id, a.name as agent_name, r.end_reason,
                       r.error ->> 'message' as error_message, r.turns + r.child_turns as turns,
                       coalesce((select m.content from toolcrib.messages m
                                 where m.workspace_id = r.workspace_id and m.session_id = r.session_id
                                   and m.run_id = r.id and m.role = 'assistant'
                                 order by m.position desc limit 1), '') as text,
                       r.input_tokens, r.output_tokens
                from toolcrib.runs r
                join toolcrib.agents a on a.workspace_id = r.workspace_id and a.id = r.agent_id
                where r.workspace_id = %s and r.parent_call_id = %s
                """,
                (caller.workspace_id, caller.call_id),
            )

    async def agents(self, caller: Caller) -> list[ChildAgent]:
        """Return the agents of the workspace, by name."""
        async with self._database.transaction(Tenant.of(caller)) as connection:
            return await connection.fetch_all(
                ChildAgent,
                """
                select id, name, rules ->> 'provider' is not null and rules ->> 'model' is not null as has_model
                from toolcrib.agents where workspace_id = %s and deleted_at is null order by name
                """,
                (caller.workspace_id,),
            )

    async def create(
        self, caller: Caller, agent: ChildAgent, task: str, *, title: str | None, narrowing: Narrowing
    ) -> SessionId:
        """Start a child run of the caller's run: its session, its run and the waiting call in one transaction.

        Raises:
            ToolFailed: A limit is reached, or the parent has no turns or time left.
            Superseded: Another process has taken over the parent.
        """
        assert caller.agent is not None
        session_id, run_id = SessionId(new_id()), RunId(new_id())
        async with self._database.transaction(Tenant.of(caller), WorkspaceRole.MEMBER) as connection:
            parent = await self._lock_parent(connection, caller)
            turns, milliseconds = _what_is_left(caller.agent.rules, parent)
            await self._check_limits(connection, caller.workspace_id, parent)
            is_same = agent.id == caller.agent.id
            # The model that the person chose for the session, or the parent's if the agent has none of its own.
            chosen = caller.agent.rules if is_same or not agent.has_model else AgentRules()
            await connection.execute(
                """
                insert into toolcrib.sessions
                    (workspace_id, id, title, agent_id, provider, model, mode, phase, package, workflow, directory,
                     parent_session_id, parent_run_id, root_session_id, depth, narrowed_to, created_by)
                select s.workspace_id, %(session)s, %(title)s, %(agent)s, %(provider)s, %(model)s, s.mode, %(phase)s,
                       s.package, s.workflow, s.directory, s.id, %(parent)s, coalesce(s.root_session_id, s.id),
                       s.depth + 1, %(narrowing)s, %(user)s
                from toolcrib.sessions s where s.workspace_id = %(workspace)s and s.id = %(parent_session)s
                """,
                {
                    "session": session_id,
                    "title": title,
                    "agent": agent.id,
                    "provider": chosen.provider,
                    "model": chosen.model,
                    "phase": caller.agent.phase if is_same else None,
                    "parent": caller.run_id,
                    "narrowing": json_text(narrowing),
                    "user": caller.user_id,
                    "workspace": caller.workspace_id,
                    "parent_session": caller.session_id,
                },
            )
            await connection.execute(
                """
                insert into toolcrib.runs
                    (workspace_id, id, session_id, user_id, agent_id, via, prompt, state, priority, parent_run_id,
                     parent_call_id, parent_active_ms, max_turns, max_active_ms)
                select r.workspace_id, %(run)s, %(session)s, r.user_id, %(agent)s, r.via, %(task)s, 'queued',
                       r.priority, r.id, %(call)s, %(active)s, %(turns)s, %(milliseconds)s
                from toolcrib.runs r where r.workspace_id = %(workspace)s and r.id = %(parent)s
                """,
                {
                    "run": run_id,
                    "session": session_id,
                    "agent": agent.id,
                    "task": task,
                    "call": caller.call_id,
                    "active": parent.active_ms,
                    "turns": turns,
                    "milliseconds": milliseconds,
                    "workspace": caller.workspace_id,
                    "parent": caller.run_id,
                },
            )
            cursor = await connection.execute(
                """
                update toolcrib.tool_calls set state = 'paused'
                where workspace_id = %s and id = %s and state = 'running'
                """,
                (caller.workspace_id, caller.call_id),
            )
            if cursor.rowcount == 0:
                raise Superseded("This call has already ended. Fetch its outcome by its id.")
            payload = {
                "toolId": caller.call_id,
                "runId": run_id,
                "sessionId": session_id,
                "agent": agent.name,
                "title": title,
            }
            await connection.execute(
                "select toolcrib.append_event(%s, %s, %s, %s)",
                (caller.workspace_id, caller.session_id, EventType.CHILD_RUN, json_text(payload)),
            )
            started = await self._start_queued(connection, caller.workspace_id)
        self._on_started(caller.workspace_id, started)
        return session_id

    async def _lock_parent(self, connection: Connection, caller: Caller) -> "_Parent":
        """Lock the parent's row, and then what starts child runs of the same session, one after the other."""
        await connection.execute(
            "select toolcrib.lock_run(%s, %s, %s)", (caller.workspace_id, caller.run_id, caller.run_epoch)
        )
        parent = await connection.fetch_one(
            _Parent,
            f"""
            select coalesce(s.root_session_id, s.id) as root_session_id, s.depth, r.turns, r.child_turns,
                   r.active_ms + {ELAPSED} as active_ms, r.cancelled_by is not null as is_cancelled
            from toolcrib.runs r
            join toolcrib.sessions s on s.workspace_id = r.workspace_id and s.id = r.session_id
            where r.workspace_id = %s and r.id = %s
            """,  # noqa: S608 - a constant of storage/runs
            (caller.workspace_id, caller.run_id),
        )
        if parent is None or parent.is_cancelled:
            raise ToolFailed("The run was cancelled, so it cannot start a child run.")
        await connection.execute(
            "select pg_advisory_xact_lock(hashtextextended('child_runs ' || %s::text, 0))", (parent.root_session_id,)
        )
        return parent

    async def _check_limits(self, connection: Connection, workspace_id: WorkspaceId, parent: "_Parent") -> None:
        limits, root = self._limits, (workspace_id, parent.root_session_id)
        if parent.depth >= limits.depth:
            raise ToolFailed(
                f"This run is {parent.depth} levels below the first one, and {limits.depth} is the limit. "
                "Do the task yourself."
            )
        rows = "select from toolcrib.sessions where workspace_id = %s and root_session_id = %s"
        if await has_all(connection, rows, root, most=limits.total):
            raise ToolFailed(
                f"This session has had {limits.total} child runs, the limit. Do the task yourself with what you have."
            )
        rows = """
            select from toolcrib.sessions s
            join toolcrib.runs r on r.workspace_id = s.workspace_id and r.session_id = s.id
                 and r.parent_call_id is not null and r.state <> 'ended'
            where s.workspace_id = %s and s.root_session_id = %s
        """
        if await has_all(connection, rows, root, most=limits.at_once):
            raise ToolFailed(
                f"{limits.at_once} child runs of this session are at work, the limit. "
                "Wait for their results, then start this one."
            )
        rows = "select from toolcrib.sessions where workspace_id = %s"
        if await has_all(connection, rows, (workspace_id,), most=self._most_sessions):
            raise Conflict(f"This workspace has {self._most_sessions} sessions, the limit. Delete one first.")


@dataclass(frozen=True, slots=True)
class _Parent:
    root_session_id: SessionId
    depth: int
    turns: int
    child_turns: int
    active_ms: int
    is_cancelled: bool


def _what_is_left(rules: AgentRules, parent: _Parent) -> tuple[int, int]:
    """Return the turns and the milliseconds that the parent has left, which its child run gets."""
    turns = rules.max_turns - parent.turns - parent.child_turns
    milliseconds = round((rules.run_timeout or AGENTIC_SECONDS) * 1000) - parent.active_ms
    if turns <= 0 or milliseconds <= 0:
        raise ToolFailed("This run has no turns or no time left for a child run. Answer with what you have.")
    return turns, milliseconds

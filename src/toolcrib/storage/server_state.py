"""What the whole installation has waiting: the numbers behind the gauges of ``/metrics``."""

from dataclasses import dataclass

from toolcrib.storage.database import Store
from toolcrib.storage.runs import UNATTENDED_SECONDS

# Rows of one kind that are counted. Beyond it, an exact number would cost more than it tells.
MOST_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class ServerState:
    """Counts up to ``MOST_COUNTED``, and ages in seconds, which are 0 if nothing waits."""

    pending_approvals: int
    pending_questions: int
    oldest_approval_seconds: float
    oldest_question_seconds: float
    due_calls: int
    queued_runs: int
    ready_runs: int
    running_runs: int
    waiting_runs: int
    unsealed_seconds: float
    # What no process attends to, by kind; see ``unattended.sql``.
    unattended_runs: int
    unattended_approved_calls: int
    unattended_calls: int
    unattended_schedules: int


class ServerStateStore(Store):
    """Reads the state with the system role, from partial indexes that contain only what waits."""

    async def read(self) -> ServerState:
        """Return the state of now."""
        async with self._database.as_system() as connection:
            found = await connection.fetch_one(
                ServerState,
                """
                with pending as (
                    select kind, created_at from toolcrib.paused_calls where state = 'pending'
                    order by expires_at limit %(most)s
                ), asked as (
                    select count(*) filter (where kind = 'approval') as approvals,
                           count(*) filter (where kind = 'question') as questions,
                           min(created_at) filter (where kind = 'approval') as first_approval,
                           min(created_at) filter (where kind = 'question') as first_question
                    from pending
                ), unsealed as (
                    select created_at from toolcrib.audit_records
                    where position > coalesce(
                        (select last_position from toolcrib.audit_seals order by number desc limit 1),
                        -9223372036854775808)
                    order by position limit 1
                )
                select approvals as pending_approvals, questions as pending_questions,
                       greatest(extract(epoch from now() - first_approval), 0)::float8 as oldest_approval_seconds,
                       greatest(extract(epoch from now() - first_question), 0)::float8 as oldest_question_seconds,
                       (select count(*) from (
                           select from toolcrib.paused_calls
                           where state in ('approved', 'stale') and resumed_at is null limit %(most)s) due
                       ) as due_calls,
                       (select count(*) from (
                           select from toolcrib.runs where state = 'queued' and not held limit %(most)s) queued
                       ) as queued_runs,
                       (select count(*) from (
                           select from toolcrib.runs where state = 'ready' limit %(most)s) ready) as ready_runs,
                       (select count(*) from (
                           select from toolcrib.runs where state in ('ready', 'running') and state = 'running'
                           limit %(most)s) running) as running_runs,
                       (select count(*) from (
                           select from toolcrib.runs
                           where state in ('ready', 'running', 'waiting') and state = 'waiting'
                           limit %(most)s) waiting) as waiting_runs,
                       coalesce((select greatest(extract(epoch from now() - created_at), 0)::float8 from unsealed), 0)
                       as unsealed_seconds,
                       lost.runs as unattended_runs, lost.approved_calls as unattended_approved_calls,
                       lost.calls as unattended_calls, lost.schedules as unattended_schedules
                from asked, toolcrib.count_unattended(%(seconds)s) lost
                """,
                {"most": MOST_COUNTED, "seconds": UNATTENDED_SECONDS},
            )
            assert found is not None
            return found

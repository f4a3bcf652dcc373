"""Approved calls as rows: claimed by one process at a time, executed once, given up after a few attempts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from psycopg.rows import dict_row

from toolcrib.core.approvals import Approval, ApprovalState, GrantRule, GrantScope
from toolcrib.core.ids import ApprovalId
from toolcrib.storage.approval_columns import COLUMNS, JOINS, WHOLE
from toolcrib.storage.database import Database


@dataclass(frozen=True, slots=True)
class ApprovedCall:
    """An approval that is to be executed, with exactly the arguments and the result that were approved."""

    approval: Approval
    via: str
    arguments: str
    result: Any
    # Another node, or this one before a crash, had started to execute it.
    begun_before: bool = False
    # How many processes have started to execute it, including this one.
    attempts: int = 0

    @property
    def is_stale(self) -> bool:
        """Whether a person must be asked again."""
        return self.approval.state is ApprovalState.STALE


class ApprovedCallStore:
    """Queries of the resume worker, with the system role."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(
        self,
        *,
        node: str,
        lease: timedelta,
        limit: int,
        holder: str | None = None,
        alone_after: int | None = None,
        idle: bool = True,
    ) -> list[ApprovedCall]:
        """Claim approved calls, and stale ones to ask about again, of workspaces whose home is this node.

        A run executes its own calls, so those are not claimed. A call that ``alone_after`` processes did not survive is
        claimed alone, by a process that is ``idle``, so that no other call is blamed for a crash; until then nothing
        else is claimed.

        Args:
            holder: The process that claims.
        """
        async with self._database.as_system() as connection:
            cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute(
                f"""
                with found as (
                    select a.workspace_id, a.id, a.claimed_at is not null as begun, a.decided_at,
                           a.attempts >= coalesce(%(alone_after)s, a.attempts + 1) as alone
                    from toolcrib.approvals a
                    where a.state in ('allowed', 'stale') and a.carried_at is null
                      and (a.state = 'stale' or (a.state = 'allowed' and a.run_id is null))
                      and (a.claimed_at is null or a.claimed_at < now() - %(lease)s)
                      and exists (select from toolcrib.workspaces w
                                  where w.id = a.workspace_id and coalesce(w.home_node, %(node)s) = %(node)s)
                    order by 5 desc, a.decided_at limit %(limit)s for update skip locked
                ), due as (
                    select * from found f
                    where not exists (select from found o where o.alone)
                       or (%(idle)s and f.id = (select o.id from found o where o.alone order by o.decided_at limit 1))
                ), taken as (
                    update toolcrib.approvals a set claimed_by = %(holder)s, claimed_at = now(),
                        -- Counted before the work starts, because this process may die during it.
                        attempts = a.attempts + case when a.claimed_by is distinct from %(holder)s then 1 else 0 end
                    from due d
                    where a.workspace_id = d.workspace_id and a.id = d.id
                    returning a.workspace_id, a.id, d.begun, a.attempts
                )
                {COLUMNS}, {WHOLE}, t.begun, t.attempts
                from taken t join toolcrib.approvals a on a.workspace_id = t.workspace_id and a.id = t.id {JOINS}
                """,  # noqa: S608 - constants of this module
                {
                    "node": node,
                    "holder": holder or node,
                    "lease": lease,
                    "limit": limit,
                    "alone_after": alone_after,
                    "idle": idle,
                },
            )
            return [allowed_from(row) for row in await cursor.fetchall()]

    async def renew(self, holder: str, approval_ids: Sequence[ApprovalId]) -> None:
        """Renew the claims of this process."""
        async with self._database.as_system() as connection:
            await connection.execute(
                """
                update toolcrib.approvals set claimed_at = now()
                where state in ('allowed', 'stale') and carried_at is null and claimed_by = %s and id = any (%s)
                """,
                (holder, list(approval_ids)),
            )

    async def release_dead(self, *, lease: float) -> None:
        """Release the claims of dead processes. That execution had started is kept."""
        async with self._database.as_system() as connection:
            await connection.execute(
                """
                update toolcrib.approvals a set claimed_at = '-infinity'
                where a.state in ('allowed', 'stale') and a.carried_at is null and a.claimed_at > '-infinity'
                  and not toolcrib.process_is_alive(a.claimed_by, %s)
                """,
                (lease,),
            )

    async def give_back(self, holder: str, approval_id: ApprovalId) -> None:
        """Release a claim because this process stops: another may take it at once, and no attempt is counted."""
        async with self._database.as_system() as connection:
            await connection.execute(
                """
                update toolcrib.approvals
                set claimed_at = '-infinity', claimed_by = null, attempts = greatest(attempts - 1, 0)
                where state in ('allowed', 'stale') and carried_at is null and claimed_by = %s and id = %s
                """,
                (holder, approval_id),
            )

    async def release(self, approval: Approval, node: str) -> None:
        """Release a claim for the node that has become the workspace's home.

        If that is still this node, the lease must run out: the same obstacle would be there again at once.
        """
        async with self._database.as_system() as connection:
            await connection.execute(
                """
                update toolcrib.approvals a set claimed_at = '-infinity'
                where a.workspace_id = %(workspace)s and a.id = %(approval)s and a.carried_at is null
                  and not exists (select from toolcrib.workspaces w
                                  where w.id = a.workspace_id and coalesce(w.home_node, %(node)s) = %(node)s)
                """,
                {"workspace": approval.workspace_id, "approval": approval.id, "node": node},
            )


def allowed_from(row: Mapping[str, Any]) -> ApprovedCall:
    """Create an approved call from its row."""
    begun, attempts = bool(row.get("begun")), row.get("attempts") or 0
    return ApprovedCall(approval_from(row), row["via"], row["arguments"] or "{}", row["result"], begun, attempts)


def approval_from(row: Mapping[str, Any]) -> Approval:
    """Create an approval from its row."""
    return Approval(
        id=row["id"],
        workspace_id=row["workspace_id"],
        call_id=row["call_id"],
        session_id=row["session_id"],
        run_id=row["run_id"],
        user_id=row["user_id"],
        agent_id=row["agent_id"],
        agent_name=row["agent_name"],
        tool=row["tool"],
        shown=row["shown"],
        arguments_sha256=bytes(row["arguments_sha256"]).hex(),
        changes=row["changes"],
        change_set_id=row["change_set_id"],
        effects=row["effects"],
        rule=row["rule"],
        reason=row["reason"],
        isolation=row["isolation"],
        state=ApprovalState(row["state"]),
        scope=GrantScope(row["scope"]) if row["scope"] else None,
        decided_by=row["decided_by"],
        decided_by_name=row["decided_by_name"],
        decided_at=row["decided_at"],
        denial=row["denial"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        replaces=row["replaces"],
        offered=rule_of(row["offered"]),
    )


def rule_of(row: Mapping[str, Any]) -> GrantRule:
    """Parse a stored rule."""
    paths, commands = row.get("paths"), row.get("commands")
    return GrantRule(
        row["tool"],
        None if paths is None else tuple(paths),
        None if commands is None else tuple(commands),
    )

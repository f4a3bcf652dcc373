"""Claims on approved calls: executed by one process at a time, and given up after a few attempts."""

from collections.abc import Sequence
from datetime import timedelta

from toolcrib.core.ids import PauseId
from toolcrib.core.paused_calls import ApprovedCall, PausedCall
from toolcrib.storage.database import Store
from toolcrib.storage.paused_calls import EXECUTABLE, JOINS, approved_call_from


class PausedCallClaims(Store):
    """Queries of the resume worker, with the system role."""

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
            rows = await connection.fetch_all(
                dict,
                f"""
                with found as (
                    select p.workspace_id, p.id, p.claimed_at is not null as started_before, p.decided_at,
                           p.attempts >= coalesce(%(alone_after)s, p.attempts + 1) as alone
                    from toolcrib.paused_calls p
                    where p.state in ('approved', 'stale') and p.resumed_at is null
                      and (p.state = 'stale' or (p.state = 'approved' and p.run_id is null))
                      and (p.claimed_at is null or p.claimed_at < now() - %(lease)s)
                      and exists (select from toolcrib.workspaces w
                                  where w.id = p.workspace_id and coalesce(w.home_node, %(node)s) = %(node)s)
                    order by 5 desc, p.decided_at limit %(limit)s for update skip locked
                ), due as (
                    select * from found f
                    where not exists (select from found o where o.alone)
                       or (%(idle)s and f.id = (select o.id from found o where o.alone order by o.decided_at limit 1))
                ), taken as (
                    update toolcrib.paused_calls p set claimed_by = %(holder)s, claimed_at = now(),
                        -- Counted before the work starts, because this process may die during it.
                        attempts = p.attempts + case when p.claimed_by is distinct from %(holder)s then 1 else 0 end
                    from due d
                    where p.workspace_id = d.workspace_id and p.id = d.id
                    returning p.workspace_id, p.id, d.started_before, p.attempts
                )
                {EXECUTABLE}, t.started_before, t.attempts
                from taken t join toolcrib.paused_calls p on p.workspace_id = t.workspace_id and p.id = t.id {JOINS}
                """,  # noqa: S608 - constants of storage/paused_calls
                {
                    "node": node,
                    "holder": holder or node,
                    "lease": lease,
                    "limit": limit,
                    "alone_after": alone_after,
                    "idle": idle,
                },
            )
        return [approved_call_from(row) for row in rows]

    async def renew(self, holder: str, pause_ids: Sequence[PauseId]) -> None:
        """Renew the claims of this process."""
        async with self._database.as_system() as connection:
            await connection.execute(
                """
                update toolcrib.paused_calls set claimed_at = now()
                where state in ('approved', 'stale') and resumed_at is null and claimed_by = %s and id = any (%s)
                """,
                (holder, list(pause_ids)),
            )

    async def release_dead(self, *, lease: float) -> None:
        """Release the claims of dead processes. That execution had started is kept."""
        async with self._database.as_system() as connection:
            await connection.execute(
                """
                update toolcrib.paused_calls p set claimed_at = '-infinity'
                where p.state in ('approved', 'stale') and p.resumed_at is null and p.claimed_at > '-infinity'
                  and not toolcrib.process_is_alive(p.claimed_by, %s)
                """,
                (lease,),
            )

    async def release(self, holder: str, pause_id: PauseId) -> None:
        """Release a claim because this process stops: another may take it at once, and no attempt is counted."""
        async with self._database.as_system() as connection:
            await connection.execute(
                """
                update toolcrib.paused_calls
                set claimed_at = '-infinity', claimed_by = null, attempts = greatest(attempts - 1, 0)
                where state in ('approved', 'stale') and resumed_at is null and claimed_by = %s and id = %s
                """,
                (holder, pause_id),
            )

    async def release_moved(self, pause: PausedCall, node: str) -> None:
        """Release a claim for the node that has become the workspace's home.

        If that is still this node, the lease must run out: the same obstacle would be there again at once.
        """
        async with self._database.as_system() as connection:
            await connection.execute(
                """
                update toolcrib.paused_calls p set claimed_at = '-infinity'
                where p.workspace_id = %(workspace)s and p.id = %(pause)s and p.resumed_at is null
                  and not exists (select from toolcrib.workspaces w
                                  where w.id = p.workspace_id and coalesce(w.home_node, %(node)s) = %(node)s)
                """,
                {"workspace": pause.workspace_id, "pause": pause.id, "node": node},
            )

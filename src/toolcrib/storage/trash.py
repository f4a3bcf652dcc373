"""Trash entries as rows: displaced files that the file history does not keep."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from toolcrib.core.change_sets import TrashedFile
from toolcrib.core.ids import ChangeSetId, WorkspaceId
from toolcrib.core.json_text import json_text
from toolcrib.core.paths import WorkspacePath, path_from_row
from toolcrib.storage.database import Connection, Store, Tenant, parse_row

# How long a staged entry is kept if no approval extends it.
_SOON = timedelta(hours=1)
# In place of a change set's id, which a staged entry does not have yet.
_STAGED = UUID(int=0)


@dataclass(frozen=True, slots=True)
class TrashLimits:
    """How much trash a workspace keeps, and for how long. The oldest entries expire first."""

    most_bytes: int = 1_000_000_000
    keep: timedelta = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class TrashEntry:
    """One entry of the trash; its row remains after the entry has expired."""

    trash_id: UUID
    change_set_id: ChangeSetId
    path: WorkspacePath
    size: int
    trashed_at: datetime
    expires_at: datetime
    expired_at: datetime | None

    @property
    def was_kept(self) -> bool:
        """Whether it was kept at all: an entry larger than the whole trash is not."""
        return self.expires_at > self.trashed_at


@dataclass(frozen=True, slots=True)
class ExpiredTrashEntry:
    """An expired entry that must be deleted from disk."""

    workspace_id: WorkspaceId
    trash_id: UUID


class TrashStore(Store):
    """Queries on the trash."""

    async def find(self, tenant: Tenant, trash_ids: Sequence[UUID]) -> dict[UUID, TrashEntry]:
        """Return these entries, including expired ones."""
        async with self._database.transaction(tenant) as connection:
            rows = await connection.fetch_all(
                dict,
                """
                select t.id as trash_id, t.change_set_id, t.mount, t.path, t.size, t.trashed_at, t.expires_at,
                       t.expired_at
                from toolcrib.trash t where t.workspace_id = %s and t.id = any (%s)
                """,
                (tenant.workspace_id, list(trash_ids)),
            )
        entries = (parse_row(TrashEntry, row | {"path": path_from_row(row["mount"], row["path"])}) for row in rows)
        return {entry.trash_id: entry for entry in entries}

    async def kept_bytes(self, tenant: Tenant) -> int:
        """Return how much the trash of the workspace keeps now, without what is only staged."""
        async with self._database.transaction(tenant) as connection:
            [kept] = await connection.returned_row(
                """
                select coalesce(sum(size), 0)::bigint from toolcrib.trash
                where workspace_id = %s and expired_at is null and expires_at > now() and change_set_id <> %s
                """,
                (tenant.workspace_id, _STAGED),
            )
        return int(kept)

    async def stage(self, tenant: Tenant, staged: Sequence[TrashedFile], *, node: str) -> None:
        """Record entries that are staged only to be moved into the tree by a change set that has no id yet.

        They do not push out other entries. ``extend_staged`` keeps them while an approval is pending.
        """
        async with self._database.transaction(tenant) as connection:
            await connection.execute(
                """
                insert into toolcrib.trash
                    (workspace_id, id, file_id, change_set_id, node, mount, path, kind, mode, size, expires_at)
                select %(workspace)s, d.id, d.file_id, %(none)s, %(node)s, d.mount, d.path, d.kind, d.mode, d.size,
                       now() + %(soon)s
                from jsonb_to_recordset(%(staged)s::jsonb)
                    as d (id uuid, file_id uuid, mount text, path text, kind text, mode integer, size bigint)
                """,
                {
                    "workspace": tenant.workspace_id,
                    "none": _STAGED,
                    "node": node,
                    "soon": _SOON,
                    "staged": json_text([_row(one) for one in staged]),
                },
            )

    async def expire(self, node: str, *, limit: int) -> list[ExpiredTrashEntry]:
        """Expire due entries of this node, so that they cannot be restored, and return what to delete from disk.

        Entries that expired but were not deleted because of a crash are returned again. Entries still being moved into
        the trash stay, and so do those whose change waits for a review.
        """
        async with self._database.as_system() as connection:
            return await connection.fetch_all(
                ExpiredTrashEntry,
                """
                with expired as (
                    select t.workspace_id, t.id from toolcrib.trash t
                    where t.node = %s and not t.deleted and (t.expires_at <= now() or t.expired_at is not null)
                      and (t.expired_at is not null or t.expires_at = t.trashed_at
                           or not toolcrib.awaits_review(t.workspace_id, t.change_set_id, t.file_id))
                      and not exists (select from toolcrib.pending_applies p
                                      where p.workspace_id = t.workspace_id and p.file_id = t.file_id)
                    order by t.expires_at limit %s for update skip locked
                )
                update toolcrib.trash t set expired_at = coalesce(t.expired_at, now()) from expired e
                where t.workspace_id = e.workspace_id and t.id = e.id
                returning t.workspace_id, t.id as trash_id
                """,
                (node, limit),
            )

    async def mark_deleted(self, expired: Sequence[ExpiredTrashEntry]) -> None:
        """Record that these are deleted from disk."""
        async with self._database.as_system() as connection:
            await connection.execute(
                """
                update toolcrib.trash t set deleted = true
                from unnest(%s::uuid[], %s::uuid[]) as e (workspace_id, id)
                where t.workspace_id = e.workspace_id and t.id = e.id
                """,
                ([one.workspace_id for one in expired], [one.trash_id for one in expired]),
            )


# The functions below run within a change's transaction, so that the rows match the change.


async def record_trashed(
    connection: Connection,
    tenant: Tenant,
    change_set_id: ChangeSetId,
    displaced: Sequence[TrashedFile],
    *,
    node: str,
    limits: TrashLimits,
    anew: bool = True,
) -> None:
    """Record what a change set moves to the trash. The oldest entries expire if there is too much.

    Entries whose change waits for a review stay.

    Unless ``anew``, existing rows stay as they are.
    """
    await connection.execute(
        """
        insert into toolcrib.trash
            (workspace_id, id, file_id, change_set_id, node, mount, path, kind, mode, size, trashed_at, expires_at)
        select %(workspace)s, d.id, d.file_id, %(set)s, %(node)s, d.mount, d.path, d.kind, d.mode, d.size, now(),
               -- A file that is larger than the whole trash is not kept.
               case when d.size > %(most)s then now() else now() + %(keep)s end
        from jsonb_to_recordset(%(displaced)s::jsonb)
            as d (id uuid, file_id uuid, mount text, path text, kind text, mode integer, size bigint)
        on conflict (workspace_id, id) do update set
            change_set_id = excluded.change_set_id, node = excluded.node, mount = excluded.mount, path = excluded.path,
            size = excluded.size, trashed_at = excluded.trashed_at, expires_at = excluded.expires_at,
            expired_at = null, deleted = false
        where %(anew)s
        """,
        {
            "workspace": tenant.workspace_id,
            "set": change_set_id,
            "node": node,
            "displaced": json_text([_row(one) for one in displaced]),
            "most": limits.most_bytes,
            "keep": limits.keep,
            "anew": anew,
        },
    )
    await connection.execute(
        """
        update toolcrib.trash t set expires_at = now()
        from (
            select id, sum(size) over (order by trashed_at desc, id desc) as sum from toolcrib.trash
            where workspace_id = %(workspace)s and expired_at is null and expires_at > now()
        ) as kept
        where t.workspace_id = %(workspace)s and t.id = kept.id and kept.sum > %(most)s
          and not toolcrib.awaits_review(t.workspace_id, t.change_set_id, t.file_id)
        """,
        {"workspace": tenant.workspace_id, "most": limits.most_bytes},
    )


async def count_kept(connection: Connection, tenant: Tenant) -> int:
    """Return how many entries the trash keeps, on all nodes, without what is only staged."""
    [count] = await connection.returned_row(
        """
        select count(*) from toolcrib.trash
        where workspace_id = %s and expired_at is null and expires_at > now() and change_set_id <> %s
        """,
        (tenant.workspace_id, _STAGED),
    )
    return int(count)


async def extend_staged(connection: Connection, tenant: Tenant, trash_ids: Sequence[UUID], keep: timedelta) -> None:
    """Keep staged entries as long as their approval is pending."""
    await connection.execute(
        "update toolcrib.trash set expires_at = now() + %s where workspace_id = %s and id = any (%s)",
        (keep, tenant.workspace_id, list(trash_ids)),
    )


async def record_restored(connection: Connection, tenant: Tenant, trash_ids: Sequence[UUID]) -> bool:
    """Remove the entries that a change set restores.

    Returns False if one has expired: then it must not be committed.
    """
    cursor = await connection.execute(
        "delete from toolcrib.trash t where t.workspace_id = %s and t.id = any (%s) and t.expired_at is null",
        (tenant.workspace_id, list(trash_ids)),
    )
    return cursor.rowcount == len(trash_ids)


def _row(displaced: TrashedFile) -> dict[str, Any]:
    state = displaced.state
    return {
        "id": displaced.trash_id,
        "file_id": displaced.file_id,
        "mount": state.path.mount_key,
        "path": state.path.path,
        "kind": state.kind,
        "mode": state.mode,
        "size": state.size,
    }

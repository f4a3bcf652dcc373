"""What lies in the trash: rows about displaced files that the history does not keep. Knows no disk."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from toolcrib.core.files import EntryKind
from toolcrib.core.ids import ChangeSetId, FileId, WorkspaceId
from toolcrib.core.json_text import json_text
from toolcrib.core.paths import WorkspacePath, path_from_row
from toolcrib.storage.database import Connection, Database, Tenant

# How long something that waits for its change may lie here if nobody says that it waits for a person.
_SOON = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class TrashLimits:
    """How much of a workspace's trash is kept, and for how long. The oldest go first."""

    most_bytes: int = 1_000_000_000
    keep: timedelta = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class TrashedFile:
    """Something that a change set puts into the trash, and where it stood."""

    token: UUID
    file_id: FileId
    place: WorkspacePath
    kind: EntryKind
    mode: int
    size: int


@dataclass(frozen=True, slots=True)
class TrashEntry:
    """One thing in the trash, or, once it is gone, that it was there."""

    token: UUID
    change_set_id: ChangeSetId
    place: WorkspacePath
    size: int
    displaced_at: datetime
    expires_at: datetime
    gone_at: datetime | None

    @property
    def was_kept(self) -> bool:
        """Whether it was ever to be kept: what is larger than the whole trash is not."""
        return self.expires_at > self.displaced_at


@dataclass(frozen=True, slots=True)
class ExpiredTrashEntry:
    """Something whose time is over, and which is to be removed from disk."""

    workspace_id: WorkspaceId
    token: UUID


class TrashStore:
    """Queries on the trash."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, tenant: Tenant, tokens: Sequence[UUID]) -> dict[UUID, TrashEntry]:
        """What is known of these, be they gone by now."""
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                """
                select t.id, t.change_set_id, t.mount, t.path, t.size, t.displaced_at, t.expires_at, t.gone_at
                from toolcrib.trash t where t.workspace_id = %s and t.id = any (%s)
                """,
                (tenant.workspace_id, list(tokens)),
            )
            return {entry.token: entry for entry in map(_entry, await cursor.fetchall())}

    async def stage(self, tenant: Tenant, staged: Sequence[TrashedFile], *, node: str) -> None:
        """Writes down what is put here only to be brought into the tree, by a change that has no id yet.

        It does not crowd out what others displaced. Who means to wait for a decision says so with ``extend_staged``.
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
                    "none": UUID(int=0),
                    "node": node,
                    "soon": _SOON,
                    "staged": json_text([_row(one) for one in staged]),
                },
            )

    async def expire(self, node: str, *, limit: int) -> list[ExpiredTrashEntry]:
        """Lets go of what has expired on this node, so that nobody brings it back, and says what to remove.

        What was let go of and, by a crash, not removed is said again. What is still on its way into the trash stays.
        """
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                with expired as (
                    select t.workspace_id, t.id from toolcrib.trash t
                    where t.node = %s and not t.removed and (t.expires_at <= now() or t.gone_at is not null)
                      and not exists (select from toolcrib.pending p
                                      where p.workspace_id = t.workspace_id and p.file_id = t.file_id)
                    order by t.expires_at limit %s for update skip locked
                )
                update toolcrib.trash t set gone_at = coalesce(t.gone_at, now()) from expired e
                where t.workspace_id = e.workspace_id and t.id = e.id
                returning t.workspace_id, t.id
                """,
                (node, limit),
            )
            return [
                ExpiredTrashEntry(WorkspaceId(workspace_id), token) for workspace_id, token in await cursor.fetchall()
            ]

    async def mark_deleted(self, expired: Sequence[ExpiredTrashEntry]) -> None:
        """These are on no disk any more."""
        async with self._database.as_system() as connection:
            await connection.execute(
                """
                update toolcrib.trash t set removed = true
                from unnest(%s::uuid[], %s::uuid[]) as e (workspace_id, id)
                where t.workspace_id = e.workspace_id and t.id = e.id
                """,
                ([one.workspace_id for one in expired], [one.token for one in expired]),
            )


# Within a change's transaction, so that the rows say what the change does.


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
    """Writes down what a set displaces. The oldest expire as far as there is too much then.

    Unless ``anew``, what is written down already stays as it is.
    """
    await connection.execute(
        """
        insert into toolcrib.trash
            (workspace_id, id, file_id, change_set_id, node, mount, path, kind, mode, size, displaced_at, expires_at)
        select %(workspace)s, d.id, d.file_id, %(set)s, %(node)s, d.mount, d.path, d.kind, d.mode, d.size, now(),
               -- What would fill the trash alone, and more, is not kept at all.
               case when d.size > %(most)s then now() else now() + %(keep)s end
        from jsonb_to_recordset(%(displaced)s::jsonb)
            as d (id uuid, file_id uuid, mount text, path text, kind text, mode integer, size bigint)
        on conflict (workspace_id, id) do update set
            change_set_id = excluded.change_set_id, node = excluded.node, mount = excluded.mount, path = excluded.path,
            size = excluded.size, displaced_at = excluded.displaced_at, expires_at = excluded.expires_at,
            gone_at = null, removed = false
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
            select id, sum(size) over (order by displaced_at desc, id desc) as sum from toolcrib.trash
            where workspace_id = %(workspace)s and gone_at is null and expires_at > now()
        ) as kept
        where t.workspace_id = %(workspace)s and t.id = kept.id and kept.sum > %(most)s
        """,
        {"workspace": tenant.workspace_id, "most": limits.most_bytes},
    )


async def extend_staged(connection: Connection, tenant: Tenant, tokens: Sequence[UUID], keep: timedelta) -> None:
    """What was staged for a change waits for as long as its approval does."""
    await connection.execute(
        "update toolcrib.trash set expires_at = now() + %s where workspace_id = %s and id = any (%s)",
        (keep, tenant.workspace_id, list(tokens)),
    )


async def record_restored(connection: Connection, tenant: Tenant, tokens: Sequence[UUID]) -> bool:
    """Strikes out what a set brings back. False if some of it is gone meanwhile: then the set must not be committed."""
    cursor = await connection.execute(
        "delete from toolcrib.trash t where t.workspace_id = %s and t.id = any (%s) and t.gone_at is null",
        (tenant.workspace_id, list(tokens)),
    )
    return cursor.rowcount == len(tokens)


def _row(displaced: TrashedFile) -> dict[str, Any]:
    return {
        "id": displaced.token,
        "file_id": displaced.file_id,
        "mount": displaced.place.mount_key,
        "path": displaced.place.path,
        "kind": displaced.kind,
        "mode": displaced.mode,
        "size": displaced.size,
    }


def _entry(row: tuple[Any, ...]) -> TrashEntry:
    token, change_set_id, tree, path, size, displaced_at, expires_at, gone_at = row
    place = path_from_row(tree, path)
    return TrashEntry(token, ChangeSetId(change_set_id), place, size, displaced_at, expires_at, gone_at)

"""Blobs: file contents, stored once per workspace and hash, compressed where that helps.

Includes garbage collection.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256

from psycopg.errors import ForeignKeyViolation

from toolcrib.core.errors import NotFound
from toolcrib.core.ids import WorkspaceId
from toolcrib.storage.database import Connection, Database, Tenant

# Below this size zlib's header outweighs what it saves.
_WORTH_COMPRESSING = 512
# Contents per query.
_AT_ONCE = 1_000


def digest(body: bytes) -> bytes:
    """Return the SHA-256 of a content."""
    return sha256(body).digest()


def packed(body: bytes) -> tuple[str, bytes]:
    """Return the encoding and the bytes to store."""
    if len(body) >= _WORTH_COMPRESSING:
        small = zlib.compress(body, 1)
        if len(small) < len(body) * 0.9:
            return "zlib", small
    return "raw", body


def unpacked(encoding: str, body: bytes) -> bytes:
    """Return the content of stored bytes."""
    return zlib.decompress(body) if encoding == "zlib" else bytes(body)


class BlobStore:
    """Reads contents. They are written together with their change set."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, tenant: Tenant, sha256: bytes) -> bytes:
        """Return the content of a hash."""
        return (await self.get_all(tenant, [sha256]))[sha256]

    async def get_all(self, tenant: Tenant, hashes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the contents of these hashes. Raises ``NotFound`` if one of them is not stored."""
        found: dict[bytes, bytes] = {}
        for start in range(0, len(hashes), _AT_ONCE):
            async with self._database.transaction(tenant) as connection:
                found |= await fetch(connection, tenant, hashes[start : start + _AT_ONCE])
        for key in hashes:
            if key not in found:
                raise NotFound(f"Content {key.hex()} is not stored in this workspace.")
        return found


async def fetch(connection: Connection, tenant: Tenant, hashes: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the contents of the given hashes, within a transaction of the tenant."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(
        "select sha256, encoding, body from toolcrib.blobs where workspace_id = %s and sha256 = any (%s)",
        (tenant.workspace_id, list(hashes)),
    )
    return {bytes(key): unpacked(encoding, body) for key, encoding, body in await cursor.fetchall()}


@dataclass(frozen=True, slots=True)
class WorkspaceSize:
    """The storage of a workspace. ``stored_bytes`` is after compression, ``content_bytes`` before."""

    workspace_id: WorkspaceId
    name: str
    files: int
    deleted_files: int
    versions: int
    blobs: int
    content_bytes: int
    stored_bytes: int
    calls: int
    pending: int


@dataclass(frozen=True, slots=True)
class CollectedGarbage:
    """What one round of garbage collection deleted."""

    versions: int
    blobs: int
    bytes: int
    trashed: int = 0


class RetentionStore:
    """Sizes and garbage collection, with the system role."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sizes(self) -> list[WorkspaceSize]:
        """Return the sizes of all workspaces, largest first. Scans whole tables, so do not use it in calls."""
        async with self._database.as_system() as connection, connection.transaction():
            await connection.execute(
                "select set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true)"
            )
            cursor = await connection.execute(
                """
                select w.id, w.name,
                       coalesce(f.live, 0), coalesce(f.gone, 0), coalesce(v.count, 0), coalesce(b.count, 0),
                       coalesce(b.content, 0)::bigint, coalesce(b.stored, 0)::bigint, coalesce(c.count, 0),
                       coalesce(p.count, 0)
                from toolcrib.workspaces w
                left join (select workspace_id, count(*) filter (where not deleted) as live,
                                  count(*) filter (where deleted) as gone
                           from toolcrib.files group by 1) f on f.workspace_id = w.id
                left join (select workspace_id, count(*) from toolcrib.versions group by 1) v on v.workspace_id = w.id
                left join (select workspace_id, count(*), sum(size) as content, sum(length(body)) as stored
                           from toolcrib.blobs group by 1) b on b.workspace_id = w.id
                left join (select workspace_id, count(*) from toolcrib.tool_calls group by 1) c on c.workspace_id = w.id
                left join (select workspace_id, count(*) from toolcrib.pending_applies group by 1) p
                    on p.workspace_id = w.id
                order by 8 desc, w.id
                """
            )
            return [WorkspaceSize(*row) for row in await cursor.fetchall()]

    async def delete_old_versions(self, *, older_than: timedelta, limit: int) -> int:
        """Delete old versions, but never a file's head: what is in the tree stays readable."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                delete from toolcrib.versions v
                where (v.workspace_id, v.id) in (
                    select o.workspace_id, o.id from toolcrib.versions o
                    where o.created_at < now() - %s
                      and not exists (select from toolcrib.files f
                                      where f.workspace_id = o.workspace_id and f.id = o.file_id
                                        and f.version_id = o.id)
                      and not exists (select from toolcrib.pending_applies p
                                      where p.workspace_id = o.workspace_id and p.file_id = o.file_id)
                      -- A file in the trash can be restored only with its versions.
                      and not exists (select from toolcrib.trash t
                                      where t.workspace_id = o.workspace_id and t.file_id = o.file_id
                                        and t.expired_at is null)
                    limit %s
                )
                """,
                (older_than, limit),
            )
            return cursor.rowcount

    async def delete_old_idempotency_keys(self, *, older_than: timedelta, limit: int) -> int:
        """Delete idempotency keys with their answers."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                delete from toolcrib.idempotency_keys k
                where (k.user_id, k.caller_id, k.key_hash) in (
                    select o.user_id, o.caller_id, o.key_hash from toolcrib.idempotency_keys o
                    where o.created_at < now() - %s order by o.created_at limit %s
                )
                """,
                (older_than, limit),
            )
            return cursor.rowcount

    async def delete_unreferenced_blobs(self, *, older_than: timedelta, limit: int) -> tuple[int, int]:
        """Delete blobs that no version and no proposed change references. Returns how many, and their bytes.

        Writers continue meanwhile. The database rejects the deletion of a blob that a version references; a writer
        whose blob was just deleted plans again and stores it again.
        """
        async with self._database.as_system() as connection:
            try:
                cursor = await connection.execute(
                    """
                    with unused as (
                        select b.workspace_id, b.sha256 from toolcrib.blobs b
                        where b.created_at < now() - %s
                          and not exists (select from toolcrib.versions v
                                          where v.workspace_id = b.workspace_id and v.sha256 = b.sha256)
                          and not exists (select from toolcrib.proposed_changes p
                                          where p.workspace_id = b.workspace_id and p.sha256 = b.sha256)
                        limit %s for update skip locked
                    ), gone as (
                        delete from toolcrib.blobs b using unused u
                        where b.workspace_id = u.workspace_id and b.sha256 = u.sha256
                        returning length(b.body) as bytes
                    )
                    select count(*), coalesce(sum(bytes), 0)::bigint from gone
                    """,
                    (older_than, limit),
                )
            except ForeignKeyViolation:
                # Someone started to use one of them just now: the next round tries again.
                return 0, 0
            row = await cursor.fetchone()
        assert row is not None
        return int(row[0]), int(row[1])

"""Committing change sets, and settling them once they are on disk. Knows rows, not the disk."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b

from psycopg import pq
from psycopg.errors import UniqueViolation

from toolcrib.domain.callers import Role
from toolcrib.domain.changes import ChangeSet
from toolcrib.domain.errors import BaseChanged, Superseded
from toolcrib.domain.files import Fingerprint, NodeKind, NodeState
from toolcrib.domain.ids import FileId, VersionId
from toolcrib.domain.places import Place
from toolcrib.storage.blobs import packed
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.files import Home, Seen, seen

# More places than this are not locked one by one: the shared lock table of PostgreSQL is finite.
_MANY = 200


@dataclass(frozen=True, slots=True)
class Settled:
    """A file whose version is on disk, and how it looks there; no fingerprint if nothing stands there."""

    file_id: FileId
    version_id: VersionId
    fingerprint: Fingerprint | None


class Changes:
    """The write side of the history."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def locked(
        self, tenant: Tenant, places: Sequence[Place], *, whole: bool = False
    ) -> AsyncIterator["LockedChange"]:
        """Holds the places' locks, from before the base is checked until the change is on disk.

        ``whole`` takes the workspace's lock instead: for what changes folders, or very many places.
        """
        async with self._database.connection(tenant) as connection:
            change = LockedChange(connection, tenant, places, whole=whole or len(places) > _MANY)
            try:
                yield change
            finally:
                await change.release()

    async def remember(self, tenant: Tenant, settled: Sequence[Settled]) -> None:
        """Remembers fingerprints of files that were found to hold their head after all."""
        async with self._database.connection(tenant) as connection:
            await _settle(connection, tenant, settled)


class LockedChange:
    """One change, from looking to settling, on one connection that holds its locks."""

    def __init__(self, connection: Connection, tenant: Tenant, places: Sequence[Place], *, whole: bool) -> None:
        self._connection = connection
        self._tenant = tenant
        self._places = places
        self._whole = whole
        self._holds_locks = False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        async with self._connection.transaction():
            yield self._connection

    async def look(self, places: Sequence[Place], needs: Role) -> Seen:
        """Takes the locks if they are not held yet, then looks; inside the transaction."""
        keys = [] if self._holds_locks else sorted({_lock_key(self._tenant, place) for place in self._places})
        self._holds_locks = True
        cursor = self._connection.cursor(binary=True)
        await cursor.execute(
            "select * from toolcrib.begin_change(%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                *self._tenant.parameters,
                [place.tree for place in places],
                [place.path for place in places],
                _workspace_key(self._tenant),
                keys,
                self._whole,
            ),
            prepare=True,
        )
        return seen(await cursor.fetchall(), self._tenant, needs)

    async def commit(self, change_set: ChangeSet, home: Home, *, node: str) -> None:
        """Writes the set, its versions, contents and marks; inside the transaction."""
        if home.node is not None and home.node != node:
            raise Superseded(f"This workspace's files are on node {home.node!r}. Call it there.")
        try:
            await _insert(self._connection, self._tenant, change_set)
        except UniqueViolation:
            # Only a file that had left its place, so that no lock on a place kept others from it.
            raise BaseChanged("One of these files was changed by someone else meanwhile.") from None

    async def settle(self, settled: Sequence[Settled]) -> None:
        """The change is on disk: clears its marks and gives the locks back."""
        await _settle(self._connection, self._tenant, settled)
        self._holds_locks = False

    async def release(self) -> None:
        """Gives the locks back if ``settle`` did not; a connection that cannot is closed, which does too."""
        if not self._holds_locks:
            return
        self._holds_locks = False
        if self._connection.info.transaction_status is not pq.TransactionStatus.IDLE:
            await self._connection.close()
            return
        await self._connection.execute("select pg_advisory_unlock_all()")


async def _insert(connection: Connection, tenant: Tenant, change_set: ChangeSet) -> None:
    states = [_kept(change.before, change.after) for change in change_set.changes]
    bodies = {
        change.after.sha256: change.body
        for change in change_set.changes
        if change.body is not None and change.after is not None and change.after.sha256 is not None
    }
    packs = [packed(body) for body in bodies.values()]
    author = change_set.author
    await connection.execute(
        _INSERT,
        {
            "workspace": tenant.workspace_id,
            "set": change_set.id,
            "author": str(author.kind),
            "user": author.user_id,
            "agent": author.agent_id,
            "session": author.session_id,
            "run": author.run_id,
            "call": author.call_id,
            "file_ids": [change.file_id for change in change_set.changes],
            "version_ids": [change.version_id for change in change_set.changes],
            "types": [str(change.type) for change in change_set.changes],
            "deleted": [change.after is None for change in change_set.changes],
            "mounts": [state.place.tree for state in states],
            "paths": [state.place.path for state in states],
            "parents": [state.place.parent.path for state in states],
            "kinds": [str(state.kind) for state in states],
            "modes": [state.mode for state in states],
            "hashes": [state.sha256 for state in states],
            "sizes": [state.size for state in states],
            "lines": [state.lines for state in states],
            "contents": [str(state.content) for state in states],
            "targets": [state.target for state in states],
            "blob_hashes": list(bodies),
            "blob_sizes": [len(body) for body in bodies.values()],
            "blob_encodings": [encoding for encoding, _ in packs],
            "blob_bodies": [body for _, body in packs],
            "new_files": sum(1 for c in change_set.changes if c.before is None)
            - sum(1 for c in change_set.changes if c.after is None),
            "new_bytes": sum(len(body) for body in bodies.values()),
        },
        prepare=True,
    )


def _kept(before: NodeState | None, after: NodeState | None) -> NodeState:
    """The state a version row holds: the new one, or, of what is deleted, where it was and what it was."""
    if after is not None:
        return after
    assert before is not None
    return NodeState(before.place, before.kind, before.mode, target=before.target)


_INSERT = """
with given as (
    select * from unnest(
        %(file_ids)s::uuid[], %(version_ids)s::uuid[], %(types)s::text[], %(deleted)s::boolean[], %(mounts)s::text[],
        %(paths)s::text[], %(parents)s::text[], %(kinds)s::text[], %(modes)s::integer[], %(hashes)s::bytea[],
        %(sizes)s::bigint[], %(lines)s::integer[], %(contents)s::text[], %(targets)s::text[]
    ) as g (file_id, version_id, type, deleted, mount, path, parent, kind, mode, sha256, size, lines, content, target)
), numbered as (
    select g.*, coalesce(f.number, 0) + 1 as number, f.version_id as previous_id,
           f.mount as base_mount, f.path as base_path
    from given g left join toolcrib.files f on f.workspace_id = %(workspace)s and f.id = g.file_id
), new_blobs as (
    insert into toolcrib.blobs (workspace_id, sha256, size, encoding, body)
    select %(workspace)s, b.sha256, b.size, b.encoding, b.body
    from unnest(%(blob_hashes)s::bytea[], %(blob_sizes)s::bigint[], %(blob_encodings)s::text[],
                %(blob_bodies)s::bytea[]) as b (sha256, size, encoding, body)
    on conflict do nothing
), new_set as (
    insert into toolcrib.change_sets
        (workspace_id, id, state, author, user_id, agent_id, session_id, run_id, call_id, committed_at)
    values (%(workspace)s, %(set)s, 'committed', %(author)s, %(user)s, %(agent)s, %(session)s, %(run)s, %(call)s,
            now())
    on conflict (workspace_id, id) do update set state = 'committed', committed_at = now()
), new_files as (
    insert into toolcrib.files
        (workspace_id, id, mount, path, parent, type, deleted, version_id, number, kind, mode, sha256, size, lines,
         content, target)
    select %(workspace)s, file_id, mount, path, parent, type, deleted, version_id, number, kind, mode, sha256, size,
           lines, content, target
    from numbered
    on conflict (workspace_id, id) do update set
        mount = excluded.mount, path = excluded.path, parent = excluded.parent, type = excluded.type,
        deleted = excluded.deleted, version_id = excluded.version_id, number = excluded.number, kind = excluded.kind,
        mode = excluded.mode, sha256 = excluded.sha256, size = excluded.size, lines = excluded.lines,
        content = excluded.content, target = excluded.target, fingerprint = null, updated_at = now()
), new_versions as (
    insert into toolcrib.versions
        (workspace_id, id, file_id, number, change_set_id, previous_id, deleted, mount, path, kind, mode, sha256,
         size, lines, content, target)
    select %(workspace)s, version_id, file_id, number, %(set)s, previous_id, deleted, mount, path, kind, mode, sha256,
           size, lines, content, target
    from numbered
), marks as (
    insert into toolcrib.pending (workspace_id, file_id, base_version_id, base_mount, base_path)
    select %(workspace)s, file_id, previous_id, base_mount, base_path from numbered
    on conflict (workspace_id, file_id) do nothing
)
insert into toolcrib.usage as u (workspace_id, slot, files, versions, bytes)
values (%(workspace)s, pg_backend_pid() %% 16, %(new_files)s, cardinality(%(file_ids)s::uuid[]), %(new_bytes)s)
on conflict (workspace_id, slot) do update set
    files = u.files + excluded.files, versions = u.versions + excluded.versions, bytes = u.bytes + excluded.bytes
"""


async def _settle(connection: Connection, tenant: Tenant, settled: Sequence[Settled]) -> None:
    prints = [s.fingerprint for s in settled]
    await connection.execute(
        "select toolcrib.settle(%s, %s, %s, %s, %s, %s, %s, %s)",
        (
            tenant.workspace_id,
            [s.file_id for s in settled],
            [s.version_id for s in settled],
            [p.inode if p else None for p in prints],
            [p.size if p else None for p in prints],
            [p.mtime_ns if p else None for p in prints],
            [p.ctime_ns if p else None for p in prints],
            [p.seen_ns if p else None for p in prints],
        ),
        prepare=True,
    )


def touches_folders(change_set: ChangeSet) -> bool:
    """Whether a folder that others may stand in is moved or deleted: then the workspace's lock is needed whole."""
    return any(
        change.before is not None
        and change.before.kind is NodeKind.FOLDER
        and (change.after is None or change.after.place != change.before.place)
        for change in change_set.changes
    )


def _workspace_key(tenant: Tenant) -> int:
    return _key(tenant.workspace_id.bytes)


def _lock_key(tenant: Tenant, place: Place) -> int:
    return _key(tenant.workspace_id.bytes + f"{place.tree}\0{place.path}".encode())


def _key(what: bytes) -> int:
    """A lock's number: two places that share one by chance only wait for each other."""
    return int.from_bytes(blake2b(what, digest_size=8).digest(), "big", signed=True)

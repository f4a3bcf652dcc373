"""Commits change sets, and marks them as applied once they are on disk."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from psycopg import pq
from psycopg.errors import ForeignKeyViolation, UniqueViolation

from toolcrib.core.audit import AuditRecord, CallRecord
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.change_sets import ChangeSet, FileChange
from toolcrib.core.errors import BaseChanged
from toolcrib.core.files import EntryState, Fingerprint
from toolcrib.core.ids import FileId, VersionId, WorkspaceId
from toolcrib.core.json_text import json_text
from toolcrib.core.paths import WorkspacePath
from toolcrib.runtime.disk_threads import off_loop
from toolcrib.storage.blobs import packed
from toolcrib.storage.database import Connection, Database, Tenant, has_input
from toolcrib.storage.files import PathLookup, WorkspaceHome, paths_json, seen

# Above this number paths are not locked one by one: PostgreSQL's lock table is finite.
_MANY = 200
_FEW = 8


@dataclass(frozen=True, slots=True)
class AppliedFile:
    """A file whose version is on disk, with its fingerprint; None if the file does not exist there."""

    file_id: FileId
    version_id: VersionId
    fingerprint: Fingerprint | None


class ChangeSetStore:
    """The write side of the file history."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def lock(
        self, tenant: Tenant, paths: Sequence[WorkspacePath], *, whole: bool = False
    ) -> AsyncIterator["LockedCommit"]:
        """Lock the paths, from before the base is checked until the change is on disk.

        Args:
            whole: Lock the whole workspace instead: for changes of folders, or of very many paths.
        """
        async with self._database.connection(tenant) as connection:
            change = LockedCommit(connection, tenant, paths, whole=whole or len(paths) > _MANY)
            try:
                yield change
            finally:
                await change.release()

    async def save_fingerprints(self, tenant: Tenant, applied: Sequence[AppliedFile], home: WorkspaceHome) -> None:
        """Save the fingerprints of files that were found to match their head, unless the home has changed since.

        Takes no lock, so it never says that a change is applied: another node may have to apply it.
        """
        async with self._database.connection(tenant) as connection:
            await connection.execute(
                "select toolcrib.save_fingerprints(%s, %s, %s)",
                (tenant.workspace_id, home.epoch, _applied_json(applied)),
                prepare=True,
            )


class LockedCommit:
    """One change, from the lookup to its application, on one connection that holds its locks."""

    def __init__(self, connection: Connection, tenant: Tenant, paths: Sequence[WorkspacePath], *, whole: bool) -> None:
        self._connection = connection
        self._tenant = tenant
        self._tenant_parameters = tenant.parameters
        self._paths = paths
        self._whole = whole
        self._holds_locks = False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Open a transaction for further queries under the locks, after ``lookup`` and before ``commit``."""
        async with self._connection.transaction():
            if self._tenant.user_id is not None:
                await self._connection.execute(
                    "select toolcrib.enter_workspace(%s, %s, %s, %s)", self._tenant_parameters
                )
            yield self._connection

    async def lookup(self, paths: Sequence[WorkspacePath], needs: WorkspaceRole) -> PathLookup:
        """Acquire the locks if they are not held yet, then look up the paths."""
        keys = [] if self._holds_locks else sorted({_lock_key(self._tenant, path) for path in self._paths})
        self._holds_locks = True
        cursor = self._connection.cursor(binary=True)
        await cursor.execute(
            "select * from toolcrib.lock_paths(%s, %s, %s, %s, %s, %s, %s, %s)",
            (
                *self._tenant_parameters,
                await off_loop(paths, paths_json, paths),
                workspace_lock(self._tenant.workspace_id),
                json.dumps(keys),
                self._whole,
            ),
            prepare=True,
        )
        rows = await cursor.fetchall()
        return await off_loop(rows, seen, rows, self._tenant, needs)

    async def commit(
        self,
        change_set: ChangeSet,
        home: WorkspaceHome,
        *,
        node: str,
        call: CallRecord | None = None,
        audit: AuditRecord | None = None,
    ) -> None:
        """Write the change set, its versions and blobs with the call's outcome and audit record, atomically.

        It is a single statement in autocommit, so it is its own transaction; the locks belong to the connection and
        stay.

        Raises:
            BaseChanged: A concurrent change was committed first.
        """
        rows, contents = await off_loop(change_set.changes, _rows_of, change_set, call, audit)
        # A few blobs are passed one by one: the driver is slow with arrays.
        given = "%s::bytea[]" if len(contents) > _FEW else f"array[{', '.join(['%s'] * len(contents))}]::bytea[]"
        try:
            await self._connection.execute(
                f"""
                select toolcrib.commit_change_set(
                    %s, %s, %s, %s, %s, %s, r -> 'set', r -> 'files', r -> 'call', r -> 'audit', r -> 'blobs', {given})
                from (select %s::jsonb) as given (r)
                """,  # noqa: S608 - placeholders only
                (
                    *self._tenant_parameters,
                    node,
                    home.epoch,
                    *([contents] if len(contents) > _FEW else contents),
                    rows,
                ),
                prepare=True,
            )
        except UniqueViolation:
            # Only possible for a file that had left its path, so that no path lock protected it.
            raise BaseChanged("One of these files was changed concurrently.") from None
        except ForeignKeyViolation:
            # A stored but unused blob was collected at this moment: it must be stored again.
            raise BaseChanged("A content was deleted concurrently.") from None

    @property
    def has_lost_locks(self) -> bool:
        """Whether the database ended the session, as it does for a process that was suspended for too long."""
        return has_input(self._connection)

    async def mark_applied(self, applied: Sequence[AppliedFile]) -> None:
        """Mark the change as applied to disk, and release the locks."""
        await _mark_applied(self._connection, self._tenant, applied)
        self._holds_locks = False

    async def release(self) -> None:
        """Release the locks if ``mark_applied`` did not.

        If that fails, the connection is closed, which releases them too.
        """
        if not self._holds_locks:
            return
        self._holds_locks = False
        if self.has_lost_locks or self._connection.info.transaction_status is not pq.TransactionStatus.IDLE:
            await self._connection.close()
            return
        await self._connection.execute("select pg_advisory_unlock_all()")


def _bodies(change_set: ChangeSet) -> dict[bytes, bytes]:
    """Return the contents that the change set brings, each once."""
    return {
        change.after.sha256: change.body
        for change in change_set.changes
        if change.body is not None and change.after is not None and change.after.sha256 is not None
    }


def _set_row(change_set: ChangeSet) -> dict[str, Any]:
    author = change_set.author
    made = sum(change.before is None for change in change_set.changes)
    return {
        "id": change_set.id,
        "author_kind": author.kind,
        "user_id": author.user_id,
        "agent_id": author.agent_id,
        "session_id": author.session_id,
        "run_id": author.run_id,
        "call_id": author.call_id,
        "trades": _trades_places(change_set),
        "new_files": made - sum(change.after is None for change in change_set.changes),
    }


def _trades_places(change_set: ChangeSet) -> bool:
    """Return whether a file takes a path that another file leaves."""
    left = {change.before.path for change in change_set.changes if change.before is not None and change.vacates_path}
    return any(change.after.path in left for change in change_set.changes if change.after is not None)


def _rows_of(change_set: ChangeSet, call: CallRecord | None, audit: AuditRecord | None) -> tuple[str, list[bytes]]:
    """Return the rows of a commit as JSON, and the contents to store with them."""
    bodies = _bodies(change_set)
    packs = [packed(body) for body in bodies.values()]
    rows = {
        "set": _set_row(change_set),
        "files": [_file_row(change) for change in change_set.changes],
        "blobs": [
            {"hash": sha256.hex(), "size": len(body), "encoding": encoding}
            for (sha256, body), (encoding, _) in zip(bodies.items(), packs, strict=True)
        ],
    }
    if call is not None:
        rows["call"] = call.row
    if audit is not None:
        rows["audit"] = [audit.row]
    return json_text(rows), [body for _, body in packs]


def _file_row(change: FileChange) -> dict[str, Any]:
    state = _kept(change)
    return {
        "file_id": change.file_id,
        "version_id": change.version_id,
        "type": change.type,
        "deleted": change.after is None,
        "mount": state.path.mount_key,
        "path": state.path.path,
        "parent": state.path.parent.path,
        "kind": state.kind,
        "mode": state.mode,
        "hash": state.sha256.hex() if state.sha256 else None,
        "size": state.size,
        "line_count": state.line_count,
        "content_kind": state.content_kind,
        "link_target": state.link_target,
        "trash_id": state.trash_id,
        "inode": state.inode,
    }


def _kept(change: FileChange) -> EntryState:
    """Return the state for the version row: the new one or, for a deletion, the old path and kind."""
    if change.after is not None:
        return change.after
    assert change.before is not None
    before = change.before
    return EntryState(
        before.path,
        before.kind,
        before.mode,
        link_target=before.link_target,
        trash_id=before.trash_id,
        inode=before.inode,
    )


async def _mark_applied(connection: Connection, tenant: Tenant, applied: Sequence[AppliedFile]) -> None:
    await connection.execute(
        "select toolcrib.mark_applied(%s, %s)", (tenant.workspace_id, _applied_json(applied)), prepare=True
    )


def _applied_json(applied: Sequence[AppliedFile]) -> str:
    return json_text(
        [
            {"file_id": s.file_id, "version_id": s.version_id, "fingerprint": s.fingerprint and s.fingerprint.values}
            for s in applied
        ]
    )


def _lock_key(tenant: Tenant, path: WorkspacePath) -> int:
    return _key(tenant.workspace_id.bytes + f"{path.mount_key}\0{path.path}".encode())


def workspace_lock(workspace_id: WorkspaceId) -> int:
    """Return the number of the lock that every commit to a workspace holds, shared or alone, until it is on disk."""
    return _key(workspace_id.bytes)


def _key(what: bytes) -> int:
    """Return the number of a lock. Two paths that share one by chance only wait for each other."""
    return int.from_bytes(blake2b(what, digest_size=8).digest(), "big", signed=True)

"""Committing change sets, and settling them once they are on disk. Knows rows, not the disk."""

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
from toolcrib.core.files import EntryKind, EntryState, Fingerprint
from toolcrib.core.ids import FileId, VersionId
from toolcrib.core.json_text import json_text
from toolcrib.core.paths import WorkspacePath
from toolcrib.storage.audit import audit_row
from toolcrib.storage.blobs import packed
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.files import PathLookup, WorkspaceHome, places_json, seen
from toolcrib.storage.tool_calls import call_row

# More places than this are not locked one by one: the shared lock table of PostgreSQL is finite.
_MANY = 200
_FEW = 8


@dataclass(frozen=True, slots=True)
class AppliedFile:
    """A file whose version is on disk, and how it looks there; no fingerprint if nothing stands there."""

    file_id: FileId
    version_id: VersionId
    fingerprint: Fingerprint | None


class ChangeSetStore:
    """The write side of the history."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @asynccontextmanager
    async def lock(
        self, tenant: Tenant, places: Sequence[WorkspacePath], *, whole: bool = False
    ) -> AsyncIterator["LockedCommit"]:
        """Holds the places' locks, from before the base is checked until the change is on disk.

        ``whole`` takes the workspace's lock instead: for what changes folders, or very many places.
        """
        async with self._database.connection(tenant) as connection:
            change = LockedCommit(connection, tenant, places, whole=whole or len(places) > _MANY)
            try:
                yield change
            finally:
                await change.release()

    async def save_fingerprints(self, tenant: Tenant, settled: Sequence[AppliedFile]) -> None:
        """Remembers fingerprints of files that were found to hold their head after all."""
        async with self._database.connection(tenant) as connection:
            await _settle(connection, tenant, settled)


class LockedCommit:
    """One change, from looking to settling, on one connection that holds its locks."""

    def __init__(self, connection: Connection, tenant: Tenant, places: Sequence[WorkspacePath], *, whole: bool) -> None:
        self._connection = connection
        self._tenant = tenant
        self._places = places
        self._whole = whole
        self._holds_locks = False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """For whoever must ask more of the database under the locks, after ``look`` and before ``commit``."""
        async with self._connection.transaction():
            if self._tenant.user_id is not None:
                await self._connection.execute("select toolcrib.enter(%s, %s, %s, %s)", self._tenant.parameters)
            yield self._connection

    async def lookup(self, places: Sequence[WorkspacePath], needs: WorkspaceRole) -> PathLookup:
        """Takes the locks if they are not held yet, then looks."""
        keys = [] if self._holds_locks else sorted({_lock_key(self._tenant, place) for place in self._places})
        self._holds_locks = True
        cursor = self._connection.cursor(binary=True)
        await cursor.execute(
            "select * from toolcrib.begin_change(%s, %s, %s, %s, %s, %s, %s, %s)",
            (
                *self._tenant.parameters,
                places_json(places),
                _workspace_key(self._tenant),
                json_text(keys),
                self._whole,
            ),
            prepare=True,
        )
        return seen(await cursor.fetchall(), self._tenant, needs)

    async def commit(
        self,
        change_set: ChangeSet,
        home: WorkspaceHome,
        *,
        node: str,
        call: CallRecord | None = None,
        audit: AuditRecord | None = None,
    ) -> None:
        """Writes the set, its versions, contents and marks, with the call's outcome and record: all or nothing.

        One statement in autocommit, so it is a transaction of its own; the locks are the connection's and stay.
        """
        bodies = _bodies(change_set)
        packs = [packed(body) for body in bodies.values()]
        # Few contents are given one by one: the driver takes its time over arrays.
        given = "%s::bytea[]" if len(packs) > _FEW else f"array[{', '.join(['%s'] * len(packs))}]::bytea[]"
        contents = [body for _, body in packs]
        try:
            await self._connection.execute(
                f"select toolcrib.commit_change(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, {given})",
                (
                    *self._tenant.parameters,
                    node,
                    home.epoch,
                    json_text(_set_row(change_set)),
                    json_text([_file_row(change) for change in change_set.changes]),
                    None if call is None else json_text(call_row(call)),
                    None if audit is None else json_text([audit_row(audit)]),
                    json_text([_blob_row(*blob) for blob in zip(bodies.items(), packs, strict=True)]),
                    *([contents] if len(packs) > _FEW else contents),
                ),
                prepare=True,
            )
        except UniqueViolation:
            # Only a file that had left its place, so that no lock on a place kept others from it.
            raise BaseChanged("One of these files was changed by someone else meanwhile.") from None
        except ForeignKeyViolation:
            # A content that was stored, but unused, was collected in this very moment: it is brought along anew.
            raise BaseChanged("A content was collected meanwhile.") from None

    async def mark_applied(self, settled: Sequence[AppliedFile]) -> None:
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


def _bodies(change_set: ChangeSet) -> dict[bytes, bytes]:
    """The contents that the set brings along, each once."""
    return {
        change.after.sha256: change.body
        for change in change_set.changes
        if change.body is not None and change.after is not None and change.after.sha256 is not None
    }


def _blob_row(content: tuple[bytes, bytes], pack: tuple[str, bytes]) -> dict[str, Any]:
    return {"hash": content[0].hex(), "size": len(content[1]), "encoding": pack[0]}


def _set_row(change_set: ChangeSet) -> dict[str, Any]:
    author = change_set.author
    made = sum(change.before is None for change in change_set.changes)
    return {
        "id": change_set.id,
        "author": author.kind,
        "user_id": author.user_id,
        "agent_id": author.agent_id,
        "session_id": author.session_id,
        "run_id": author.run_id,
        "call_id": author.call_id,
        "trades": _trades_places(change_set),
        "new_files": made - sum(change.after is None for change in change_set.changes),
    }


def _trades_places(change_set: ChangeSet) -> bool:
    """Whether some file takes a place that another leaves."""
    left = {change.before.place for change in change_set.changes if change.before is not None and change.vacates_path}
    return any(change.after.place in left for change in change_set.changes if change.after is not None)


def _file_row(change: FileChange) -> dict[str, Any]:
    state = _kept(change)
    return {
        "file_id": change.file_id,
        "version_id": change.version_id,
        "type": change.type,
        "deleted": change.after is None,
        "mount": state.place.mount_key,
        "path": state.place.path,
        "parent": state.place.parent.path,
        "kind": state.kind,
        "mode": state.mode,
        "hash": state.sha256.hex() if state.sha256 else None,
        "size": state.size,
        "lines": state.lines,
        "content": state.content,
        "target": state.target,
    }


def _kept(change: FileChange) -> EntryState:
    """The state a version row holds: the new one, or, of what is deleted, where it was and what it was."""
    if change.after is not None:
        return change.after
    assert change.before is not None
    return EntryState(change.before.place, change.before.kind, change.before.mode, target=change.before.target)


async def _settle(connection: Connection, tenant: Tenant, settled: Sequence[AppliedFile]) -> None:
    rows = [
        {"file_id": s.file_id, "version_id": s.version_id, "fingerprint": s.fingerprint and s.fingerprint.values}
        for s in settled
    ]
    await connection.execute("select toolcrib.settle(%s, %s)", (tenant.workspace_id, json_text(rows)), prepare=True)


def touches_folders(change_set: ChangeSet) -> bool:
    """Whether a folder that others may stand in is moved or deleted: then the workspace's lock is needed whole."""
    return any(
        change.before is not None
        and change.before.kind is EntryKind.FOLDER
        and (change.after is None or change.after.place != change.before.place)
        for change in change_set.changes
    )


def _workspace_key(tenant: Tenant) -> int:
    return _key(tenant.workspace_id.bytes)


def _lock_key(tenant: Tenant, place: WorkspacePath) -> int:
    return _key(tenant.workspace_id.bytes + f"{place.mount_key}\0{place.path}".encode())


def _key(what: bytes) -> int:
    """A lock's number: two places that share one by chance only wait for each other."""
    return int.from_bytes(blake2b(what, digest_size=8).digest(), "big", signed=True)

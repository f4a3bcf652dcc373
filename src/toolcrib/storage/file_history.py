"""What calls changed per file, and what happened to those files since; for undo and conflict checks."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.change_sets import UndoCall, within
from toolcrib.core.files import File, Version
from toolcrib.core.ids import CallId, FileId, VersionId
from toolcrib.core.paths import Mount, WorkspacePath, mount_root, path_from_row
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.files import FILE_COLUMNS, VERSION_COLUMNS, file_of, paths_json, version_of

# The columns in these statements are constants:
# ruff: noqa: S608


@dataclass(frozen=True, slots=True)
class UndoScope:
    """Selects calls: by their ids, or all of a run or a session."""

    calls: tuple[UUID, ...] = ()
    run_id: UUID | None = None
    session_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class FileTimeline:
    """A file with its versions, from the one before the first of ``ours`` to its head."""

    file: File
    versions: tuple[Version, ...]
    ours: frozenset[VersionId]


class UndoStore:
    """Queries for undo."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def timelines(self, tenant: Tenant, scope: UndoScope, needs: WorkspaceRole) -> list[FileTimeline]:
        """Return the timeline of every file that these calls changed."""
        async with self._database.transaction(tenant, needs) as connection:
            touched = await _touched(connection, tenant, scope)
            files = await _files(connection, tenant, list(touched))
            versions = await _versions(connection, tenant, {id_: first for id_, (first, _) in touched.items()})
            ours = {id_ for _, ids in touched.values() for id_ in ids}
            ours |= await _undone_before(connection, tenant, scope, [v for of in versions.values() for v in of], ours)
        return [_history(file, versions[file.id], ours) for file in files]


def _history(file: File, versions: Sequence[Version], ours: Collection[VersionId]) -> FileTimeline:
    return FileTimeline(file, tuple(versions), frozenset(version.id for version in versions if version.id in ours))


async def _touched(
    connection: Connection, tenant: Tenant, scope: UndoScope
) -> dict[FileId, tuple[int, list[VersionId]]]:
    """Return the files, with the number of the first relevant version and the ids of all of them."""
    cursor = await connection.execute(
        """
        select v.file_id, min(v.version_number), array_agg(v.id)
        from toolcrib.change_sets c
        cross join lateral (
            select v.file_id, v.version_number, v.id from toolcrib.versions v
            where v.workspace_id = c.workspace_id and v.change_set_id = c.id
            offset 0
        ) v
        where c.workspace_id = %(workspace)s and c.state = 'committed'
          and (c.call_id = any (%(calls)s) or c.run_id = %(run)s or c.session_id = %(session)s)
          and (%(agent)s::uuid is null or c.agent_id = %(agent)s)
        group by v.file_id
        """,
        {
            "workspace": tenant.workspace_id,
            "calls": list(scope.calls),
            "run": scope.run_id,
            "session": scope.session_id,
            # An agent undoes its own changes only.
            "agent": tenant.agent_id,
        },
    )
    return {FileId(id_): (first, [VersionId(v) for v in ids]) for id_, first, ids in await cursor.fetchall()}


async def _undone_before(
    connection: Connection,
    tenant: Tenant,
    undo_scope: UndoScope,
    versions: Sequence[Version],
    ours: Collection[VersionId],
) -> set[VersionId]:
    """Return the versions that already undid or redid a part of these calls. They do not count as changes by others."""
    others = {version.call_id for version in versions if version.id not in ours and version.call_id is not None}
    if not others:
        return set()
    cursor = await connection.execute(
        """
        select id, arguments from toolcrib.tool_calls
        where workspace_id = %s and id = any (%s) and tool = 'undo' order by id
        """,
        (tenant.workspace_id, list(others)),
    )
    undos = [UndoCall(CallId(id_), arguments) for id_, arguments in await cursor.fetchall()]
    own = [version for version in versions if version.id in ours]
    scopes = {scope for scope in (undo_scope.run_id, undo_scope.session_id) if scope is not None}
    if undo_scope.session_id is not None:
        scopes |= {version.run_id for version in own if version.run_id is not None}
    calls = {version.call_id for version in own if version.call_id is not None} | set(undo_scope.calls)
    counted = within(undos, calls, scopes)
    return {version.id for version in versions if version.call_id in counted}


async def _files(connection: Connection, tenant: Tenant, ids: Sequence[FileId]) -> list[File]:
    cursor = connection.cursor(binary=True)
    await cursor.execute(
        f"""
        select {FILE_COLUMNS} from unnest(%s::uuid[]) as wanted (id)
        cross join lateral (
            select * from toolcrib.files f where f.workspace_id = %s and f.id = wanted.id limit 1
        ) f
        left join toolcrib.pending_applies p on p.workspace_id = f.workspace_id and p.file_id = f.id
        """,
        (ids, tenant.workspace_id),
    )
    return [file_of(row) for row in await cursor.fetchall()]


async def _versions(connection: Connection, tenant: Tenant, firsts: dict[FileId, int]) -> dict[FileId, list[Version]]:
    cursor = connection.cursor(binary=True)
    await cursor.execute(
        f"""
        select {VERSION_COLUMNS} from unnest(%s::uuid[], %s::integer[]) as wanted (file_id, first)
        cross join lateral (
            select * from toolcrib.versions v
            where v.workspace_id = %s and v.file_id = wanted.file_id and v.version_number >= wanted.first - 1
            order by v.version_number
            offset 0
        ) v
        join toolcrib.change_sets c on c.workspace_id = v.workspace_id and c.id = v.change_set_id
        order by v.file_id, v.version_number
        """,
        (list(firsts), list(firsts.values()), tenant.workspace_id),
    )
    found: dict[FileId, list[Version]] = {}
    for version in map(version_of, await cursor.fetchall()):
        found.setdefault(version.file_id, []).append(version)
    return found


@dataclass(frozen=True, slots=True)
class HistorySnapshot:
    """A moment in the database: which transactions had ended, and whether all their changes were on disk."""

    snapshot: str
    any_pending: bool


class SnapshotStore:
    """Queries on changes after a snapshot."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self, tenant: Tenant) -> HistorySnapshot:
        """Return the current snapshot. A version whose transaction had not ended by then counts as later."""
        async with self._database.connection(tenant) as connection:
            cursor = await connection.execute(
                """
                select pg_current_snapshot()::text,
                       (select bool_or(any_pending) from toolcrib.lookup_paths(%s, %s, %s, %s, %s))
                """,
                (*tenant.parameters, paths_json([mount_root(Mount.PROJECT)])),
                prepare=True,
            )
            row = await cursor.fetchone()
        assert row is not None
        return HistorySnapshot(*row)

    async def changed_since(
        self, tenant: Tenant, moment: HistorySnapshot, paths: Sequence[WorkspacePath]
    ) -> dict[WorkspacePath, VersionId]:
        """Return those of these paths that a call changed since, with the resulting version; deletions too."""
        async with self._database.connection(tenant) as connection:
            cursor = connection.cursor(binary=True)
            await cursor.execute(
                "select * from toolcrib.changed_since(%s, %s, %s, %s, %s::pg_snapshot, %s)",
                (*tenant.parameters, moment.snapshot, paths_json(paths)),
                prepare=True,
            )
            rows = await cursor.fetchall()
        return {path_from_row(tree, path): VersionId(version_id) for tree, path, version_id in rows}

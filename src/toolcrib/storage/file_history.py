"""What calls changed per file, and what happened to those files since; for undo, reviews and conflict checks."""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.change_sets import (
    ChangingCall,
    LastUndoable,
    UndoCall,
    UndoneCalls,
    UndoScope,
    last_undoable,
    within,
)
from toolcrib.core.files import File, Version
from toolcrib.core.ids import CallId, FileId, SessionId, VersionId
from toolcrib.core.paths import Mount, WorkspacePath, mount_root, path_from_row
from toolcrib.runtime.disk_threads import off_loop
from toolcrib.storage.database import Connection, Store, Tenant
from toolcrib.storage.files import FILE_COLUMNS, VERSION_COLUMNS, file_of, paths_json, version_of
from toolcrib.storage.runs import require_session, runs_above

# The columns in these statements are constants:
# ruff: noqa: S608


# How many calls that changed files are searched for the last one that is still in effect.
_LATEST = 5_000
# Files per query.
_AT_ONCE = 2_000


@dataclass(frozen=True, slots=True)
class FileTimeline:
    """A file with its versions, from the one before the first of ``ours`` to its head."""

    file: File
    versions: tuple[Version, ...]
    ours: frozenset[VersionId]


@dataclass(frozen=True, slots=True)
class ReviewedFile:
    """A person's decision about a file, up to a version."""

    file_id: FileId
    version_number: int
    decision: str
    decided_by: str
    decided_at: datetime
    path: WorkspacePath


@dataclass(frozen=True, slots=True)
class UnreviewedChanges:
    """What a session's agent changed since the last review, and the decisions of the reviews so far."""

    timelines: list[FileTimeline]
    reviewed: dict[FileId, ReviewedFile]


@dataclass(frozen=True, slots=True)
class ReopenedFile:
    """A file whose review decision is taken back: up to which version it was reviewed, and is again."""

    file_id: FileId
    session_id: SessionId
    path: WorkspacePath
    reviewed_to: int
    reopened_from: int


class UndoStore(Store):
    """Queries for undo and review."""

    async def timelines(self, tenant: Tenant, scope: UndoScope, needs: WorkspaceRole) -> list[FileTimeline]:
        """Return the timeline of every file that these calls changed."""
        async with self._database.transaction(tenant, needs) as connection:
            scope = await _with_child_runs(connection, tenant, scope)
            touched = await _touched(connection, tenant, scope)
            return await _timelines(connection, tenant, scope, touched)

    async def versions(self, tenant: Tenant, ids: Sequence[FileId]) -> dict[FileId, list[Version]]:
        """Return all versions of these files, oldest first."""
        async with self._database.transaction(tenant) as connection:
            return await _versions(connection, tenant, dict.fromkeys(ids, 1))

    async def unreviewed(self, tenant: Tenant, session_id: SessionId, needs: WorkspaceRole) -> UnreviewedChanges:
        """Return the timeline of every file that the session's agent changed since a person reviewed it.

        Child runs are reviewed with the session that started them.
        """
        async with self._database.transaction(tenant, needs) as connection:
            await require_session(connection, tenant, session_id)
            [root] = await connection.returned_row(
                "select toolcrib.root_session(%s, %s)", (tenant.workspace_id, session_id)
            )
            scope = await _with_child_runs(connection, tenant, UndoScope(session_id=root))
            reviewed = await _reviewed(connection, tenant, root)
            touched = await _touched(connection, tenant, scope, reviewed_in=root)
            timelines = await _timelines(connection, tenant, scope, touched)
        return UnreviewedChanges(timelines, reviewed)

    async def reopened(self, tenant: Tenant, calls: Sequence[CallId], needs: WorkspaceRole) -> list[ReopenedFile]:
        """Return the files that wait for a review again when these calls are undone: those that they decided last."""
        async with self._database.transaction(tenant, needs) as connection:
            cursor = await connection.execute(
                """
                select r.session_id, d.file_id, d.version_number, d.expected, r.version_number, f.mount, f.path
                from toolcrib.tool_calls t
                cross join lateral jsonb_to_recordset(t.result -> 'reviewed')
                    as d (file_id uuid, version_number integer, expected integer)
                join toolcrib.reviewed_files r
                    on r.workspace_id = t.workspace_id and r.file_id = d.file_id
                    and r.session_id = toolcrib.root_session(t.workspace_id, t.session_id)
                join toolcrib.files f on f.workspace_id = t.workspace_id and f.id = d.file_id
                where t.workspace_id = %s and t.id = any (%s) and t.tool = 'review_decide' and t.state = 'done'
                order by t.id desc
                """,
                (tenant.workspace_id, list(calls)),
            )
            rows = await cursor.fetchall()
        found: dict[tuple[SessionId, FileId], ReopenedFile] = {}
        for session_id, file_id, decided, expected, now, mount, path in rows:
            before = found.get((session_id, file_id))
            # Newest first: of several decisions about a file, each takes back the one that follows from it.
            if decided == (now if before is None else before.reopened_from):
                found[session_id, file_id] = ReopenedFile(
                    file_id, session_id, path_from_row(mount, path), now, expected
                )
        return list(found.values())

    async def last(self, tenant: Tenant, last: LastUndoable, needs: WorkspaceRole) -> UndoScope | None:
        """Return what the newest change of files that is still in effect belongs to.

        What a child run changed belongs to the run and the session that people see. An agent finds its own calls only;
        that others have undone them counts.
        """
        async with self._database.transaction(tenant, needs) as connection:
            cursor = await connection.execute(
                """
                -- The results of other tools may be large.
                select id, run_id, session_id, case tool when 'undo' then coalesce(result -> 'undone', arguments) end
                from toolcrib.tool_calls
                where workspace_id = %(workspace)s and state = 'done' and change_set_id is not null
                  and (%(agent)s::uuid is null or agent_id = %(agent)s or tool = 'undo')
                order by id desc limit %(limit)s
                """,
                {"workspace": tenant.workspace_id, "agent": tenant.agent_id, "limit": _LATEST},
            )
            rows = await cursor.fetchall()
            above = await runs_above(connection, tenant, {run_id for _, run_id, _, _ in rows if run_id is not None})
        calls = []
        for id_, run_id, session_id, undone in rows:
            parents = above.get(run_id, ())
            of = parents[-1] if parents and tenant.agent_id is None else None
            calls.append(
                ChangingCall(
                    id_,
                    run_id if of is None else of.run_id,
                    session_id if of is None else of.session_id,
                    None if undone is None else UndoCall(id_, undone),
                    frozenset((run_id, session_id, *(one for parent in parents for one in parent.ids))),
                )
            )
        return last_undoable(calls, last)


# Of each file: the number of the first relevant version, and the ids of all of them.
_Touched = Mapping[FileId, tuple[int, list[VersionId]]]


async def _timelines(connection: Connection, tenant: Tenant, scope: UndoScope, touched: _Touched) -> list[FileTimeline]:
    ids, files, versions = list(touched), list[File](), dict[FileId, list[Version]]()
    for start in range(0, len(ids), _AT_ONCE):
        # In pieces, so that other calls have their turn in between.
        piece = ids[start : start + _AT_ONCE]
        files += await _files(connection, tenant, piece)
        versions |= await _versions(connection, tenant, {id_: touched[id_][0] for id_ in piece})

    def joined(ours: Set[VersionId]) -> list[FileTimeline]:
        return [
            FileTimeline(file, tuple(versions[file.id]), frozenset(v.id for v in versions[file.id] if v.id in ours))
            for file in files
        ]

    ours = {id_ for _, ids in touched.values() for id_ in ids}
    ours |= await _undone_before(connection, tenant, scope, [v for of in versions.values() for v in of], ours)
    return await off_loop(files, joined, ours)


async def _touched(
    connection: Connection, tenant: Tenant, scope: UndoScope, *, reviewed_in: SessionId | None = None
) -> _Touched:
    """Return the files that these calls changed.

    Args:
        reviewed_in: Only what agents changed since the last review of this session, in it and in those below it.
    """
    cursor = await connection.execute(
        """
        select v.file_id, min(v.version_number), array_agg(v.id)
        from toolcrib.change_sets c
        cross join lateral (
            select v.file_id, v.version_number, v.id from toolcrib.versions v
            where v.workspace_id = c.workspace_id and v.change_set_id = c.id
            offset 0
        ) v
        left join toolcrib.reviewed_files r
            on r.workspace_id = c.workspace_id and r.session_id = %(reviewed_in)s and r.file_id = v.file_id
        where c.workspace_id = %(workspace)s and c.state = 'committed'
          and (%(reviewed_in)s::uuid is null
               or (c.author_kind = 'agent' and v.version_number > coalesce(r.version_number, 0)))
          and (c.call_id = any (%(calls)s) or c.run_id = %(run)s or c.session_id = %(session)s
               or c.run_id = any (%(child_runs)s)
               or c.session_id = any (array(select s.id from toolcrib.sessions s
                                            where s.workspace_id = %(workspace)s
                                              and s.root_session_id = %(reviewed_in)s)))
          and (%(agent)s::uuid is null or c.agent_id = %(agent)s)
        group by v.file_id
        """,
        {
            "workspace": tenant.workspace_id,
            "calls": list(scope.calls),
            "run": scope.run_id,
            "session": scope.session_id,
            "child_runs": list(scope.child_runs),
            # An agent undoes its own changes only.
            "agent": tenant.agent_id,
            "reviewed_in": reviewed_in,
        },
    )
    return {file_id: (first, version_ids) for file_id, first, version_ids in await cursor.fetchall()}


async def _with_child_runs(connection: Connection, tenant: Tenant, scope: UndoScope) -> UndoScope:
    """Add the child runs that these calls started, and theirs."""
    cursor = await connection.execute(
        """
        with recursive below as (
            select r.id from toolcrib.runs r
            where r.workspace_id = %(workspace)s and r.parent_call_id = any (%(calls)s)
            union all
            select r.id from toolcrib.runs r where r.workspace_id = %(workspace)s and r.parent_run_id = %(run)s
            union all
            select r.id from toolcrib.sessions s
            join toolcrib.runs r on r.workspace_id = s.workspace_id and r.session_id = s.id
                 and r.parent_run_id = s.parent_run_id
            where s.workspace_id = %(workspace)s and s.parent_session_id = %(session)s
        ), all_below as (
            select id from below
            union
            select r.id from all_below b
            join toolcrib.runs r on r.workspace_id = %(workspace)s and r.parent_run_id = b.id
        )
        select id from all_below
        """,
        {
            "workspace": tenant.workspace_id,
            "calls": list(scope.calls),
            "run": scope.run_id,
            "session": scope.session_id,
        },
    )
    return replace(scope, child_runs=tuple(id_ for (id_,) in await cursor.fetchall()))


async def _reviewed(connection: Connection, tenant: Tenant, session_id: SessionId) -> dict[FileId, ReviewedFile]:
    cursor = await connection.execute(
        """
        select r.file_id, r.version_number, r.decision, coalesce(u.full_name, u.email, 'someone'), r.decided_at,
               f.mount, f.path
        from toolcrib.reviewed_files r
        join toolcrib.files f on f.workspace_id = r.workspace_id and f.id = r.file_id
        left join toolcrib.users u on u.id = r.decided_by
        where r.workspace_id = %s and r.session_id = %s and r.version_number > 0
        """,
        (tenant.workspace_id, session_id),
    )
    rows = await cursor.fetchall()
    return {row[0]: ReviewedFile(row[0], row[1], row[2], row[3], row[4], path_from_row(row[5], row[6])) for row in rows}


async def _undone_before(
    connection: Connection,
    tenant: Tenant,
    undo_scope: UndoScope,
    versions: Sequence[Version],
    ours: Collection[VersionId],
) -> set[VersionId]:
    """Return the versions that already undid or redid a part of these calls. They do not count as changes by others.

    Nor do a review decision and the undo that took it back.
    """
    others = await off_loop(versions, lambda: {v.call_id for v in versions if v.id not in ours}) - {None}
    if not others:
        return set()
    cursor = await connection.execute(
        """
        select id, tool, case tool when 'undo' then coalesce(result -> 'undone', arguments) end
        from toolcrib.tool_calls
        where workspace_id = %s and id = any (%s) and tool in ('undo', 'review_decide') order by id
        """,
        (tenant.workspace_id, list(others)),
    )
    rows = await cursor.fetchall()
    undos = [UndoCall(CallId(id_), reverted) for id_, tool, reverted in rows if tool == "undo"]
    undone = UndoneCalls.by(reversed(undos))
    decisions = {id_: undone.taken_back_by(id_, ()) for id_, tool, _ in rows if tool == "review_decide"}
    taken_back = {id_ for pair in decisions.items() if pair[1] is not None for id_ in pair}

    def undone_versions() -> set[VersionId]:
        own = [version for version in versions if version.id in ours]
        scopes = {scope for scope in (undo_scope.run_id, undo_scope.session_id) if scope is not None}
        scopes |= set(undo_scope.child_runs)
        if undo_scope.session_id is not None:
            scopes |= {version.run_id for version in own if version.run_id is not None}
        calls = {version.call_id for version in own if version.call_id is not None} | set(undo_scope.calls)
        counted = within(undos, calls, scopes)
        return {version.id for version in versions if version.call_id in counted or version.call_id in taken_back}

    return await off_loop(versions, undone_versions)


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


class SnapshotStore(Store):
    """Queries on changes after a snapshot."""

    async def now(self, tenant: Tenant) -> HistorySnapshot:
        """Return the current snapshot. A version whose transaction had not ended by then counts as later."""
        async with self._database.connection(tenant) as connection:
            row = await connection.returned_row(
                """
                select pg_current_snapshot()::text,
                       (select bool_or(any_pending) from toolcrib.lookup_paths(%s, %s, %s, %s, %s))
                """,
                (*tenant.parameters, paths_json([mount_root(Mount.PROJECT)])),
                prepare=True,
            )
        return HistorySnapshot(*row)

    async def changed_since(
        self, tenant: Tenant, moment: HistorySnapshot, paths: Sequence[WorkspacePath]
    ) -> dict[WorkspacePath, VersionId]:
        """Return those of these paths that a call changed since, with the resulting version; deletions too."""
        async with self._database.connection(tenant) as connection:
            cursor = connection.cursor(binary=True)
            await cursor.execute(
                "select * from toolcrib.changed_since(%s, %s, %s, %s, %s::pg_snapshot, %s)",
                (*tenant.parameters, moment.snapshot, await off_loop(paths, paths_json, paths)),
                prepare=True,
            )
            rows = await cursor.fetchall()
        return {path_from_row(tree, path): VersionId(version_id) for tree, path, version_id in rows}

"""Files at their head, and their versions. Changing them is in ``change_sets``."""
# The columns in these statements are constants of this module:
# ruff: noqa: S608

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import Forbidden, HomeMoved, NotFound
from toolcrib.core.files import (
    AuthorKind,
    ContentKind,
    EntryKind,
    EntryState,
    File,
    FileType,
    Fingerprint,
    Version,
)
from toolcrib.core.ids import AgentId, CallId, ChangeSetId, FileId, RunId, SessionId, UserId, VersionId, WorkspaceId
from toolcrib.core.json_text import json_text
from toolcrib.core.paths import WorkspacePath, path_from_row
from toolcrib.runtime.disk_threads import off_loop
from toolcrib.storage.database import NOT_A_MEMBER, Connection, Database, Tenant, require
from toolcrib.storage.virtual_files import virtual_below


@dataclass(frozen=True, slots=True)
class WorkspaceHome:
    """The node that has a workspace's tree, and the epoch in which that is true."""

    root_path: str | None
    node: str | None
    epoch: int

    def require(self, node: str) -> None:
        """Raise HomeMoved unless this node has the tree: another node's disk does not show the workspace."""
        if self.node not in (None, node):
            raise HomeMoved(f"This workspace is on node {self.node!r}, and this is {node!r}. Call that node.")


@dataclass(frozen=True, slots=True)
class PathLookup:
    """The result of one lookup: the caller's role, the workspace's home, and the file at each requested path."""

    role: WorkspaceRole | None
    home: WorkspaceHome
    files: tuple[File | None, ...]
    # Whether a committed change may not be on disk yet, at one of these paths or, if the history does not know one of
    # them, anywhere in the workspace.
    any_pending: bool


class FileStore:
    """Queries on files and versions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def lookup(
        self, tenant: Tenant, paths: Sequence[WorkspacePath], needs: WorkspaceRole = WorkspaceRole.VIEWER
    ) -> PathLookup:
        """Return membership, home and files in one round trip.

        Raises:
            Forbidden: The user is not a member.
        """
        async with self._database.connection(tenant) as connection:
            cursor = connection.cursor(binary=True)
            await cursor.execute(
                "select * from toolcrib.lookup_paths(%s, %s, %s, %s, %s)",
                (*tenant.parameters, await off_loop(paths, paths_json, paths)),
                prepare=True,
            )
            rows = await cursor.fetchall()
        return await off_loop(rows, seen, rows, tenant, needs)

    async def below(self, tenant: Tenant, folders: Sequence[WorkspacePath]) -> list[File]:
        """Return every live file below these folders, at any depth, by folder and path."""
        async with self._database.transaction(tenant) as connection:
            return await list_below(connection, tenant, folders)

    async def off_disk(self, tenant: Tenant, folder: WorkspacePath, *, recursive: bool, virtual: bool) -> list[File]:
        """Return files for a listing that may not be on disk: changes still being applied, and ``virtual`` files."""
        prefix = "/" if folder.is_root else folder.path + "/"
        async with self._database.transaction(tenant) as connection:
            cursor = connection.cursor(binary=True)
            await cursor.execute(
                f"""
                select {FILE_COLUMNS} from toolcrib.pending_applies p
                -- Look up by key: few rows are pending, but the workspace may have a million files.
                cross join lateral (
                    select * from toolcrib.files f where f.workspace_id = %(workspace)s and f.id = p.file_id limit 1
                ) f
                where p.workspace_id = %(workspace)s and f.mount = %(tree)s and not f.deleted
                  and case when %(recursive)s then f.path >= %(low)s and f.path < %(high)s
                      else f.parent = %(parent)s end
                """,
                {
                    "workspace": tenant.workspace_id,
                    "tree": folder.mount_key,
                    "recursive": recursive,
                    "low": prefix,
                    "high": prefix[:-1] + "0",
                    "parent": folder.path,
                },
            )
            found = [file_of(row) for row in await cursor.fetchall()]
            if virtual:
                found += await virtual_below(connection, tenant, folder, recursive=recursive)
            return found

    async def plans(self, tenant: Tenant, tree: str) -> list[File]:
        """Return every live plan, by path."""
        async with self._database.transaction(tenant) as connection:
            cursor = connection.cursor(binary=True)
            await cursor.execute(
                f"""
                select {FILE_COLUMNS} from toolcrib.files f
                left join toolcrib.pending_applies p on p.workspace_id = f.workspace_id and p.file_id = f.id
                where f.workspace_id = %s and f.mount = %s and f.type = 'plan' and not f.deleted
                order by f.path
                """,
                (tenant.workspace_id, tree),
            )
            return [file_of(row) for row in await cursor.fetchall()]

    async def by_id(self, tenant: Tenant, file_id: FileId, needs: WorkspaceRole = WorkspaceRole.VIEWER) -> File:
        """Return one file."""
        async with self._database.transaction(tenant, needs) as connection:
            cursor = connection.cursor(binary=True)
            await cursor.execute(
                f"""
                select {FILE_COLUMNS} from toolcrib.files f
                left join toolcrib.pending_applies p on p.workspace_id = f.workspace_id and p.file_id = f.id
                where f.workspace_id = %s and f.id = %s
                """,
                (tenant.workspace_id, file_id),
            )
            row = await cursor.fetchone()
        if row is None:
            raise NotFound(f"File {file_id} not found in this workspace.")
        return file_of(row)

    async def made_in_session(
        self, tenant: Tenant, session_id: SessionId, file_ids: Sequence[FileId]
    ) -> frozenset[FileId]:
        """Return those of the files that the session's agent created, and nobody else has deleted and created since."""
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                """
                select f.id from toolcrib.files f
                cross join lateral (
                    select v.change_set_id from toolcrib.versions v
                    where v.workspace_id = f.workspace_id and v.file_id = f.id and not v.deleted
                      and (v.version_number = 1
                           or exists (select from toolcrib.versions before
                                      where before.workspace_id = v.workspace_id and before.file_id = v.file_id
                                        and before.version_number = v.version_number - 1 and before.deleted))
                    order by v.version_number desc limit 1
                ) as created
                join toolcrib.change_sets c on c.workspace_id = f.workspace_id and c.id = created.change_set_id
                where f.workspace_id = %s and f.id = any (%s) and c.session_id = %s and c.author_kind = 'agent'
                """,
                (tenant.workspace_id, list(file_ids), session_id),
            )
            return frozenset(FileId(file_id) for (file_id,) in await cursor.fetchall())

    async def deleted(self, tenant: Tenant, tree: str, *, limit: int) -> list[File]:
        """Return soft-deleted files, latest first."""
        async with self._database.transaction(tenant) as connection:
            cursor = connection.cursor(binary=True)
            await cursor.execute(
                f"""
                select {FILE_COLUMNS} from (
                    select v.id, v.file_id from toolcrib.versions v
                    where v.workspace_id = %(workspace)s and v.mount = %(tree)s and v.deleted
                    order by v.id desc
                    offset 0
                ) v
                -- Look up by key, latest deletion first, until the limit is reached. Skips files that were restored.
                cross join lateral (
                    select * from toolcrib.files f
                    where f.workspace_id = %(workspace)s and f.id = v.file_id and f.version_id = v.id
                    limit 1
                ) f
                left join toolcrib.pending_applies p on p.workspace_id = f.workspace_id and p.file_id = f.id
                order by v.id desc limit %(limit)s
                """,
                {"workspace": tenant.workspace_id, "tree": tree, "limit": limit},
            )
            return [file_of(row) for row in await cursor.fetchall()]

    async def workspaces_pending(self, node: str) -> dict[WorkspaceId, int]:
        """Return the workspaces of this node with committed changes that may not be on disk, and their home epochs."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                -- From one workspace with pending files to the next: there are few, of many workspaces and files.
                with recursive pending (id) as (
                    (select p.workspace_id from toolcrib.pending_applies p order by p.workspace_id limit 1)
                    union all
                    select (select p.workspace_id from toolcrib.pending_applies p
                            where p.workspace_id > pending.id order by p.workspace_id limit 1)
                    from pending where pending.id is not null
                )
                select w.id, w.home_epoch from pending join toolcrib.workspaces w on w.id = pending.id
                where (w.home_node = %s or w.home_node is null)
                  and exists (select from toolcrib.pending_applies p
                              where p.workspace_id = w.id and p.rebuild_id is null)
                """,
                (node,),
            )
            return {WorkspaceId(id_): epoch for id_, epoch in await cursor.fetchall()}

    async def any_pending(self, workspace_id: WorkspaceId, *, node: str) -> bool:
        """Return whether a workspace has committed changes that may not be on disk, other than those of a rebuild.

        Raises:
            NotFound: It was deleted.
            Superseded: Another node has its trees.
        """
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                select w.root_path, w.home_node, w.home_epoch,
                       exists (select from toolcrib.pending_applies p
                               where p.workspace_id = w.id and p.rebuild_id is null)
                from toolcrib.workspaces w where w.id = %s
                """,
                (workspace_id,),
            )
            row = await cursor.fetchone()
        if row is None:
            raise NotFound("This workspace was deleted.")
        *home, is_pending = row
        WorkspaceHome(*home).require(node)
        return bool(is_pending)

    async def workspaces_rebuilding(self, node: str) -> list[WorkspaceId]:
        """Return the workspaces of this node whose trees are not completely rebuilt."""
        async with self._database.as_system() as connection:
            cursor = await connection.execute(
                """
                select w.id from toolcrib.workspaces w
                where (w.home_node = %s or w.home_node is null)
                  and exists (select from toolcrib.pending_applies p
                              where p.workspace_id = w.id and p.rebuild_id is not null)
                order by w.id
                """,
                (node,),
            )
            return [WorkspaceId(id_) for (id_,) in await cursor.fetchall()]

    async def next_rebuilding(
        self, tenant: Tenant, *, after: FileId | None, limit: int, name: str | None = None
    ) -> list[File]:
        """Return the next files that a rebuild has not written yet, by id; with ``name``, only those of that name."""
        async with self._database.transaction(tenant) as connection:
            cursor = connection.cursor(binary=True)
            await cursor.execute(
                f"""
                select {FILE_COLUMNS} from toolcrib.pending_applies p
                cross join lateral (
                    select * from toolcrib.files f where f.workspace_id = p.workspace_id and f.id = p.file_id limit 1
                ) f
                where p.workspace_id = %(workspace)s and p.rebuild_id is not null
                  and (%(after)s::uuid is null or p.file_id > %(after)s)
                  and (%(name)s::text is null or f.path = rtrim(f.parent, '/') || '/' || %(name)s)
                order by p.file_id limit %(limit)s
                """,
                {"workspace": tenant.workspace_id, "after": after, "limit": limit, "name": name},
            )
            return [file_of(row) for row in await cursor.fetchall()]

    async def repositories(self, tenant: Tenant, trees: Sequence[str]) -> list[WorkspacePath]:
        """Return the folders of these trees that have a git repository in the history."""
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                """
                select f.mount, f.path from toolcrib.files f
                where f.workspace_id = %s and f.mount = any (%s) and not f.deleted and f.path like '%%/.git/HEAD'
                order by f.mount, f.path
                """,
                (tenant.workspace_id, list(trees)),
            )
            return [path_from_row(mount, path).parent.parent for mount, path in await cursor.fetchall()]

    async def versions(self, tenant: Tenant, file_id: FileId, *, before: int | None, limit: int) -> list[Version]:
        """Return a file's versions, newest first."""
        async with self._database.transaction(tenant) as connection:
            cursor = connection.cursor(binary=True)
            await cursor.execute(
                f"""
                {_VERSIONS} where v.workspace_id = %(workspace)s and v.file_id = %(file)s
                  and (%(before)s::integer is null or v.version_number < %(before)s)
                order by v.version_number desc limit %(limit)s
                """,
                {"workspace": tenant.workspace_id, "file": file_id, "before": before, "limit": limit},
            )
            return [version_of(row) for row in await cursor.fetchall()]

    async def version(self, tenant: Tenant, version_id: VersionId) -> Version:
        """Return one version."""
        async with self._database.transaction(tenant) as connection:
            return (await get_versions(connection, tenant, [version_id]))[version_id]


# The functions below run within a change's transaction. It holds locks, so it must not wait for a second connection.


async def list_below(connection: Connection, tenant: Tenant, folders: Sequence[WorkspacePath]) -> list[File]:
    """Return every live file below these folders, at any depth, by folder and path."""
    prefixes = ["/" if folder.is_root else folder.path + "/" for folder in folders]
    cursor = connection.cursor(binary=True)
    # "0" is the character after "/": a range over the index, where LIKE would scan every row.
    await cursor.execute(
        f"""
        select {FILE_COLUMNS}
        from unnest(%s::text[], %s::text[], %s::text[]) with ordinality as w (mount, low, high, number)
        cross join lateral (
            select * from toolcrib.files f
            where f.workspace_id = %s and f.mount = w.mount and f.path >= w.low and f.path < w.high and not f.deleted
            order by f.path
            offset 0
        ) f
        left join toolcrib.pending_applies p on p.workspace_id = f.workspace_id and p.file_id = f.id
        order by w.number, f.path
        """,
        (
            [folder.mount_key for folder in folders],
            prefixes,
            [prefix[:-1] + "0" for prefix in prefixes],
            tenant.workspace_id,
        ),
    )
    return [file_of(row) for row in await cursor.fetchall()]


async def list_pending(
    connection: Connection, tenant: Tenant, paths: Sequence[WorkspacePath] | None = None
) -> list[File]:
    """Return files whose last change may not be on disk; only those that are or were at the given paths.

    Leaves out the files of a rebuild.
    """
    cursor = connection.cursor(binary=True)
    await cursor.execute(
        f"""
        select {FILE_COLUMNS} from toolcrib.pending_applies p
        cross join lateral (
            select * from toolcrib.files f where f.workspace_id = p.workspace_id and f.id = p.file_id limit 1
        ) f
        where p.workspace_id = %(workspace)s and p.rebuild_id is null
          -- Keys of an object are found by binary search: there may be many paths, and many pending files.
          and (%(paths)s::jsonb is null or %(paths)s::jsonb ? (f.mount || E'\\n' || f.path)
               or %(paths)s::jsonb ? (p.base_mount || E'\\n' || p.base_path))
        order by f.mount, f.path
        """,
        {
            "workspace": tenant.workspace_id,
            "paths": None if paths is None else json_text({f"{path.mount_key}\n{path.path}": None for path in paths}),
        },
    )
    return [file_of(row) for row in await cursor.fetchall()]


async def list_tracked_trees(connection: Connection, tenant: Tenant) -> list[str]:
    """Return the trees of the workspace in which the history has live files, without @pkg, which it does not keep."""
    cursor = await connection.execute(
        """
        select distinct f.mount from toolcrib.files f
        where f.workspace_id = %s and not f.deleted and f.mount <> 'pkg' order by f.mount
        """,
        (tenant.workspace_id,),
    )
    return [mount for (mount,) in await cursor.fetchall()]


async def list_untracked(connection: Connection, tenant: Tenant, trees: Sequence[str]) -> list[File]:
    """Return the live files and folders of these trees whose content the history does not store."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(
        f"""
        select {FILE_COLUMNS} from toolcrib.files f
        left join toolcrib.pending_applies p on p.workspace_id = f.workspace_id and p.file_id = f.id
        where f.workspace_id = %s and f.mount = any (%s) and not f.deleted and f.trash_id is not null
        order by f.mount, f.path
        """,
        (tenant.workspace_id, list(trees)),
    )
    return [file_of(row) for row in await cursor.fetchall()]


async def begin_rebuild(connection: Connection, tenant: Tenant, trees: Sequence[str], rebuild_id: UUID) -> int:
    """Mark every file of these trees as pending, for a disk that has none of them. Returns their number."""
    await connection.execute(
        """
        delete from toolcrib.pending_applies p using toolcrib.files f
        where p.workspace_id = %(workspace)s and f.workspace_id = p.workspace_id and f.id = p.file_id
          and f.mount = any (%(trees)s) and f.deleted
        """,
        {"workspace": tenant.workspace_id, "trees": list(trees)},
    )
    cursor = await connection.execute(
        """
        insert into toolcrib.pending_applies (workspace_id, file_id, rebuild_id)
        select f.workspace_id, f.id, %(rebuild)s from toolcrib.files f
        where f.workspace_id = %(workspace)s and f.mount = any (%(trees)s) and not f.deleted and f.trash_id is null
        on conflict (workspace_id, file_id) do update set rebuild_id = excluded.rebuild_id
        """,
        {"workspace": tenant.workspace_id, "trees": list(trees), "rebuild": rebuild_id},
    )
    return cursor.rowcount


async def is_rebuilding(connection: Connection, tenant: Tenant, rebuild_id: UUID) -> bool:
    """Whether files of this rebuild are still pending."""
    row = await connection.fetch_row(
        "select from toolcrib.pending_applies where workspace_id = %s and rebuild_id = %s limit 1",
        (tenant.workspace_id, rebuild_id),
    )
    return row is not None


async def list_rebuilding(connection: Connection, tenant: Tenant, file_ids: Sequence[FileId]) -> list[File]:
    """Return those of the files that a rebuild has not written yet."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(
        f"""
        select {FILE_COLUMNS} from toolcrib.files f
        join toolcrib.pending_applies p on p.workspace_id = f.workspace_id and p.file_id = f.id
        where f.workspace_id = %s and f.id = any (%s) and p.rebuild_id is not null
        order by f.mount, f.path
        """,
        (tenant.workspace_id, list(file_ids)),
    )
    return [file_of(row) for row in await cursor.fetchall()]


async def get_versions(
    connection: Connection, tenant: Tenant, version_ids: Sequence[VersionId]
) -> dict[VersionId, Version]:
    """Return these versions by their ids."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(
        f"{_VERSIONS} where v.workspace_id = %s and v.id = any (%s)", (tenant.workspace_id, list(version_ids))
    )
    found = {version.id: version for version in map(version_of, await cursor.fetchall())}
    for version_id in version_ids:
        if version_id not in found:
            raise NotFound(f"Version {version_id} not found in this workspace.")
    return found


def paths_json(paths: Sequence[WorkspacePath]) -> str:
    """Serialize paths as JSON for the lookup function, because the driver is slow with arrays."""
    return json_text([{"mount": path.mount_key, "path": path.path} for path in paths])


def seen(rows: Sequence[tuple[Any, ...]], tenant: Tenant, needs: WorkspaceRole) -> PathLookup:
    """Parse the rows of a lookup; one per path, so there is always a first."""
    role, root_path, node, epoch = rows[0][:4]
    held = None if tenant.user_id is None else require(role, needs)
    if epoch is None:
        # The policies hide the workspace itself. Without this check the files on its disk would look untracked.
        raise Forbidden(NOT_A_MEMBER)
    files = tuple(None if row[5] is None else file_of((*row[5:-1], False)) for row in rows)
    return PathLookup(held, WorkspaceHome(root_path, node, epoch), files, any_pending=any(row[-1] for row in rows))


FILE_COLUMNS = """f.id, f.mount, f.path, f.type, f.version_id, f.version_number, f.kind, f.mode, f.sha256, f.size,
    f.line_count, f.content_kind, f.link_target, f.trash_id, f.inode, f.fingerprint, f.created_at, f.updated_at,
    p.file_id is not null, p.base_version_id, f.deleted"""

VERSION_COLUMNS = """v.id, v.file_id, v.version_number, v.change_set_id, v.parent_id, v.deleted, v.mount, v.path,
    v.kind, v.mode, v.sha256, v.size, v.line_count, v.content_kind, v.link_target, v.trash_id, v.inode,
    v.created_at, c.author_kind, c.user_id, c.agent_id, c.run_id, c.call_id"""

_VERSIONS = f"""
    select {VERSION_COLUMNS}
    from toolcrib.versions v
    join toolcrib.change_sets c on c.workspace_id = v.workspace_id and c.id = v.change_set_id
"""


def file_of(row: tuple[Any, ...]) -> File:
    """Parse a row of ``FILE_COLUMNS``."""
    (
        id_, mount, path, type_, version_id, version_number, kind, mode, sha256, size, line_count, content_kind,
        link_target, trash_id, inode, fingerprint, created_at, updated_at, pending, base_version_id, deleted,
    ) = row  # fmt: skip
    return File(
        id=FileId(id_),
        type=FileType(type_),
        state=_state(mount, path, kind, mode, sha256, size, line_count, content_kind, link_target, trash_id, inode),
        version_id=VersionId(version_id),
        version_number=version_number,
        deleted=deleted,
        pending=pending,
        base_version_id=base_version_id,
        fingerprint=Fingerprint(*fingerprint) if fingerprint else None,
        created_at=created_at,
        updated_at=updated_at,
    )


def _state(
    mount: str,
    path: str,
    kind: str,
    mode: int,
    sha256: bytes | None,
    size: int,
    line_count: int | None,
    content_kind: str,
    link_target: str | None,
    trash_id: UUID | None,
    inode: int | None,
) -> EntryState:
    return EntryState(
        path=path_from_row(mount, path),
        kind=EntryKind(kind),
        mode=mode,
        sha256=None if sha256 is None else bytes(sha256),
        size=size,
        line_count=line_count,
        content_kind=ContentKind(content_kind),
        link_target=link_target,
        trash_id=trash_id,
        inode=inode,
    )


def version_of(row: tuple[Any, ...]) -> Version:
    """Parse a row of ``VERSION_COLUMNS``."""
    id_, file_id, version_number, change_set_id, parent_id, deleted = row[:6]
    created_at: datetime
    created_at, author_kind, user_id, agent_id, run_id, call_id = row[17:]
    return Version(
        id=VersionId(id_),
        file_id=FileId(file_id),
        version_number=version_number,
        change_set_id=ChangeSetId(change_set_id),
        parent_id=_maybe(VersionId, parent_id),
        state=_state(*row[6:17]),
        deleted=deleted,
        author_kind=AuthorKind(author_kind),
        user_id=_maybe(UserId, user_id),
        agent_id=_maybe(AgentId, agent_id),
        run_id=_maybe(RunId, run_id),
        call_id=_maybe(CallId, call_id),
        created_at=created_at,
    )


def _maybe(kind: Any, value: UUID | None) -> Any:
    return None if value is None else kind(value)

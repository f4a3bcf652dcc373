"""Chats and agents as virtual files: derived from sessions and agents on each read, and stored nowhere.

A chat is ``/chats/<session id>.chat``, an agent is ``/agents/<agent id>.agent``, both in @project. The id is the name,
so that a new title does not change the path. A user who may read a session may read its chat: same rows, same policies.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from toolcrib.core.files import FILE_MODE, FOLDER_MODE, EntryKind, EntryState, File, FileType
from toolcrib.core.ids import FileId, VersionId, WorkspaceId
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.storage.database import Connection, Database, Tenant
from toolcrib.storage.regex_search import bounded_matching, without_nul

# The folders of virtual files in @project.
VIRTUAL_FOLDERS = {"/chats": FileType.CHAT, "/agents": FileType.AGENT}
_PATHS = {type_: folder for folder, type_ in VIRTUAL_FOLDERS.items()}


class VirtualFileStore:
    """Queries on sessions and agents that return files."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def at(self, tenant: Tenant, paths: Iterable[WorkspacePath]) -> dict[WorkspacePath, File]:
        """Return the virtual files at these paths. Without a query if there can be none."""
        wanted = {path: source for path in paths if (source := _source_of(path)) is not None}
        if not wanted:
            return {}
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                _FILES + " where v.id = any (%(ids)s)",
                {"workspace": tenant.workspace_id, "ids": [id_ for _, id_ in wanted.values()]},
            )
            files = [_file(row) for row in await cursor.fetchall()]
        return {file.state.path: file for file in files if file.state.path in wanted}

    async def folder_at(self, tenant: Tenant, path: WorkspacePath) -> File | None:
        """Return the virtual folder at a path; it exists if it contains something."""
        if not is_virtual_folder(path):
            return None
        async with self._database.transaction(tenant) as connection:
            folders = await _folders(connection, tenant)
        return next((folder for folder in folders if folder.state.path == path), None)

    async def texts(self, tenant: Tenant, ids: Collection[FileId]) -> dict[FileId, bytes]:
        """Return the current contents of these files."""
        async with self._database.transaction(tenant) as connection:
            cursor = await connection.execute(
                """
                select s.id, toolcrib.chat_heading(s.title) || coalesce(
                    (select string_agg(toolcrib.message_text(m.role, m.content, m.metadata, m.created_at), ''
                                       order by m.position)
                     from toolcrib.messages m where m.workspace_id = s.workspace_id and m.session_id = s.id), '')
                from toolcrib.sessions s where s.workspace_id = %(workspace)s and s.id = any (%(ids)s)
                union all
                select a.id, a.definition from toolcrib.agents a
                where a.workspace_id = %(workspace)s and a.id = any (%(ids)s) and a.deleted_at is null
                """,
                {"workspace": tenant.workspace_id, "ids": list(ids)},
            )
            return {FileId(id_): text.encode() for id_, text in await cursor.fetchall()}

    async def matching(self, tenant: Tenant, pattern: str, *, ignore_case: bool, seconds: float) -> set[FileId]:
        """Return the files with a line that matches a regular expression.

        Raises:
            TimedOut: The search took longer than ``seconds``.
        """
        async with (
            self._database.transaction(tenant) as connection,
            bounded_matching(connection, pattern, seconds=seconds),
        ):
            cursor = await connection.execute(
                """
                select s.id from toolcrib.sessions s
                where s.workspace_id = %(workspace)s and (
                    toolcrib.some_line_matches(toolcrib.chat_heading(s.title), %(pattern)s, %(ignore_case)s)
                    or exists (
                        select from toolcrib.messages m
                        where m.workspace_id = s.workspace_id and m.session_id = s.id
                          and toolcrib.some_line_matches(
                              toolcrib.message_text(m.role, m.content, m.metadata, m.created_at),
                              %(pattern)s, %(ignore_case)s)))
                union all
                select a.id from toolcrib.agents a
                where a.workspace_id = %(workspace)s and a.deleted_at is null
                  and toolcrib.some_line_matches(a.definition, %(pattern)s, %(ignore_case)s)
                """,
                {
                    "workspace": tenant.workspace_id,
                    "pattern": without_nul(pattern),
                    "ignore_case": ignore_case,
                },
            )
            return {FileId(id_) for (id_,) in await cursor.fetchall()}


async def virtual_below(
    connection: Connection, tenant: Tenant, folder: WorkspacePath, *, recursive: bool
) -> list[File]:
    """Return the virtual files and folders in a folder, within a listing's transaction.

    Without a query if there are none.
    """
    if not (folder == WorkspacePath(Mount.PROJECT, "/") or is_virtual_folder(folder)):
        return []
    folders = await _folders(connection, tenant) if folder.is_root else []
    if folder.is_root and not (recursive and folders):
        return folders
    # There may be very many: ids and times are faster in binary.
    cursor = connection.cursor(binary=True)
    await cursor.execute(
        _FILES + " where v.type = any (%(types)s) order by v.id",
        {
            "workspace": tenant.workspace_id,
            "types": list(_PATHS) if folder.is_root else [VIRTUAL_FOLDERS[folder.path]],
        },
    )
    return folders + [_file(row) for row in await cursor.fetchall()]


def is_virtual_folder(path: WorkspacePath) -> bool:
    """Return whether virtual files, if there are any, are in this folder."""
    return path.mount is Mount.PROJECT and path.path in VIRTUAL_FOLDERS


def _source_of(path: WorkspacePath) -> tuple[FileType, UUID] | None:
    """Return what the file at a path would be derived from."""
    folder, _, name = path.path.rpartition("/")
    type_ = VIRTUAL_FOLDERS.get(folder) if path.mount is Mount.PROJECT else None
    if type_ is None or not name.endswith(f".{type_}"):
        return None
    try:
        id_ = UUID(name.removesuffix(f".{type_}"))
    except ValueError:
        return None
    # A UUID can be written in several ways; a file has one name.
    return (type_, id_) if _path(type_, id_) == path.path else None


def _path(type_: FileType, id_: UUID) -> str:
    return f"{_PATHS[type_]}/{id_}.{type_}"


_FILES = """
    select v.type, v.id, v.display_name, v.size, v.lines, v.created_at, v.updated_at from (
        select 'chat' as type, s.id, coalesce(s.title, 'Untitled chat') as display_name,
               s.text_bytes + octet_length(toolcrib.chat_heading(s.title)) as size,
               s.text_lines + toolcrib.count_lines(toolcrib.chat_heading(s.title)) as lines, s.created_at, s.updated_at
        from toolcrib.sessions s where s.workspace_id = %(workspace)s
        union all
        select 'agent', a.id, a.name, octet_length(a.definition),
               toolcrib.count_lines(a.definition) + (a.definition ~ '[^\\n]\\Z')::integer, a.created_at, a.updated_at
        from toolcrib.agents a where a.workspace_id = %(workspace)s and a.deleted_at is null
    ) v"""


async def _folders(connection: Connection, tenant: Tenant) -> list[File]:
    """Return the folders that contain something. As on disk, a folder is as old as its newest entry."""
    cursor = await connection.execute(
        """
        select (select s.created_at from toolcrib.sessions s where s.workspace_id = %(workspace)s
                order by s.id desc limit 1),
               (select a.created_at from toolcrib.agents a where a.workspace_id = %(workspace)s and a.deleted_at is null
                order by a.id desc limit 1)
        """,
        {"workspace": tenant.workspace_id},
    )
    row: Sequence[datetime | None] = await cursor.fetchone() or ()
    return [
        _folder(tenant.workspace_id, path, since)
        for path, since in zip(VIRTUAL_FOLDERS, row, strict=True)
        if since is not None
    ]


def _folder(workspace_id: WorkspaceId, path: str, since: datetime) -> File:
    state = EntryState(WorkspacePath(Mount.PROJECT, path), EntryKind.FOLDER, FOLDER_MODE)
    return _virtual(uuid5(workspace_id, path), FileType.FOLDER, state, path[1:], since, since)


def _file(row: tuple[Any, ...]) -> File:
    type_, id_, display_name, size, lines, created_at, updated_at = row
    path = WorkspacePath(Mount.PROJECT, _path(FileType(type_), id_))
    state = EntryState(path, EntryKind.FILE, FILE_MODE, size=size, line_count=lines)
    return _virtual(id_, FileType(type_), state, display_name, created_at, updated_at)


def _virtual(
    id_: UUID, type_: FileType, state: EntryState, display_name: str, created_at: datetime, updated_at: datetime
) -> File:
    return File(
        id=FileId(id_),
        type=type_,
        is_virtual=True,
        display_name=display_name,
        state=state,
        # It has no versions: the session or agent keeps its own history.
        version_id=VersionId(id_),
        version_number=0,
        deleted=False,
        pending=False,
        base_version_id=None,
        fingerprint=None,
        created_at=created_at,
        updated_at=updated_at,
    )

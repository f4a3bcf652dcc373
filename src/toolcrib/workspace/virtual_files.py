"""Virtual files in one caller's tree: chats and agents, shown at paths without a file on disk."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from toolcrib.core.errors import NotFound
from toolcrib.core.files import File
from toolcrib.core.ids import FileId
from toolcrib.core.paths import WorkspacePath, shown
from toolcrib.storage.blobs import digest
from toolcrib.storage.database import Tenant
from toolcrib.storage.files import PathLookup
from toolcrib.workspace.fs.mount_writer import too_large
from toolcrib.workspace.sync.path_state import FileContent, PathState
from toolcrib.workspace.workspace_services import WorkspaceServices


class VirtualTree:
    """The virtual files that a caller sees. The guard decides who may read them, as for any file."""

    def __init__(self, workspace_services: WorkspaceServices, tenant: Tenant) -> None:
        self._files = workspace_services.virtual
        self._most = workspace_services.max_file_bytes
        self._tenant = tenant

    async def added_to(self, seen: PathLookup, paths: Sequence[WorkspacePath]) -> PathLookup:
        """Add virtual files to the result of a lookup."""
        found = await self._files.at(self._tenant, paths)
        if not found:
            return seen
        files = (found.get(path, file) for path, file in zip(paths, seen.files, strict=True))
        return replace(seen, files=tuple(files))

    async def among(self, paths: Iterable[WorkspacePath]) -> Collection[WorkspacePath]:
        """Return those of the paths that are virtual files."""
        return await self._files.at(self._tenant, paths)

    async def folder_or(self, path_state: PathState) -> PathState:
        """Return a folder of virtual files if nothing else is at the path."""
        if path_state.exists:
            return path_state
        return replace(path_state, file=await self._files.folder_at(self._tenant, path_state.path))

    async def read(self, file: File) -> FileContent:
        """Return the current content of a virtual file."""
        if file.state.size > self._most:
            raise too_large(file.state.path, f"{file.state.size:,}", self._most)
        body = (await self._files.texts(self._tenant, [file.id])).get(file.id)
        if body is None:
            raise NotFound(f"File not found: {shown(file.state.path)}")
        return FileContent(PathState(file.state.path, file, None), body, digest(body))

    async def matching(self, pattern: str, *, ignore_case: bool, seconds: float) -> set[FileId]:
        """Return the virtual files with a line that matches a regular expression."""
        return await self._files.matching(self._tenant, pattern, ignore_case=ignore_case, seconds=seconds)

"""Virtual files in one caller's tree: chats and agents, put where the disk and the history know nothing of them."""

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
    """What a caller sees of virtual files. Whether they may read one is the guard's to say, as of any file."""

    def __init__(self, shelves: WorkspaceServices, tenant: Tenant) -> None:
        self._files = shelves.virtual
        self._most = shelves.max_file_bytes
        self._tenant = tenant

    async def added_to(self, seen: PathLookup, places: Sequence[WorkspacePath]) -> PathLookup:
        """A look at these places, with the virtual files among them."""
        found = await self._files.at(self._tenant, places)
        if not found:
            return seen
        files = (found.get(place, file) for place, file in zip(places, seen.files, strict=True))
        return replace(seen, files=tuple(files))

    async def among(self, places: Iterable[WorkspacePath]) -> Collection[WorkspacePath]:
        """Those of these places where a virtual file stands."""
        return await self._files.at(self._tenant, places)

    async def folder_or(self, standing: PathState) -> PathState:
        """The folder of virtual files where nothing else stands: what is on disk or in the history goes first."""
        if standing.exists:
            return standing
        return replace(standing, file=await self._files.folder_at(self._tenant, standing.place))

    async def read(self, file: File) -> FileContent:
        """What a virtual file holds now."""
        if file.state.size > self._most:
            raise too_large(file.state.place, f"{file.state.size:,}", self._most)
        body = (await self._files.texts(self._tenant, [file.id])).get(file.id)
        if body is None:
            raise NotFound(f"File not found: {shown(file.state.place)}")
        return FileContent(PathState(file.state.place, file, None), body, digest(body))

    async def matching(self, pattern: str, *, ignore_case: bool, seconds: float) -> set[FileId]:
        """The virtual files of which some line matches a regular expression."""
        return await self._files.matching(self._tenant, pattern, ignore_case=ignore_case, seconds=seconds)

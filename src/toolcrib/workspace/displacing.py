"""Moves into the trash what a program put where nobody may without being asked. For the server itself, not for calls.

Nothing of it is read, and undoing the program's work does not bring it back: a person does that, by restoring it.
"""

from collections.abc import Sequence

from toolcrib.domain.callers import Role
from toolcrib.domain.changes import Author, Change, ChangeSet
from toolcrib.domain.files import AuthorKind, File, NodeKind
from toolcrib.domain.ids import VersionId, new_id
from toolcrib.domain.places import Place
from toolcrib.storage.database import Tenant
from toolcrib.workspace.commit import Committer
from toolcrib.workspace.mounts import Disks
from toolcrib.workspace.shelves import Shelves
from toolcrib.workspace.threads import in_thread
from toolcrib.workspace.trash import token_of

_SYSTEM = Author(AuthorKind.SYSTEM)


async def displace_unknown(
    shelves: Shelves, committer: Committer, tenant: Tenant, disk_of: Disks, places: Sequence[Place]
) -> tuple[Place, ...]:
    """Moves away those of these places that the history does not know. What it knows came through the gate."""
    unknown = [place for place in places if not await _is_known(shelves, tenant, place)]
    nodes = await in_thread(lambda: {place: disk_of(place).look(place) for place in unknown})
    whole = [
        place for place, node in nodes.items() if node is not None and node.kind in (NodeKind.FILE, NodeKind.FOLDER)
    ]
    links = [place for place, node in nodes.items() if node is not None and node.kind is NodeKind.LINK]
    for wanted, taken_whole in ((whole, whole), (links, [])):
        above = {folder for place in wanted for folder in place.ancestors}
        if wanted:
            await shelves.sync.reconcile(tenant, sorted({*above, *wanted}), take_in=True, whole=taken_whole)
    gone = [*whole, *links]
    seen = await shelves.files.look(tenant, gone, Role.VIEWER) if gone else None
    changes = [_removal(file) for file in (seen.files if seen else ()) if file is not None]
    if changes:
        await committer.commit(tenant, ChangeSet(_SYSTEM, tuple(changes)), needs=Role.VIEWER)
    return tuple(sorted(state.place for change in changes if (state := change.before)))


async def _is_known(shelves: Shelves, tenant: Tenant, place: Place) -> bool:
    """Whether the history has it, or a folder around it as a whole."""
    *above, file = (await shelves.files.look(tenant, [*place.ancestors, place], Role.VIEWER)).files
    return file is not None or any(folder is not None and token_of(folder.state) is not None for folder in above)


def _removal(file: File) -> Change:
    return Change(file.id, VersionId(new_id()), file.type, file.version_id, file.state, None)

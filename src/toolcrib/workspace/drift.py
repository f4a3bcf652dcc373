"""Does the disk hold what the history says? By fingerprint first, by content where that proves nothing."""

from dataclasses import replace

from toolcrib.domain.errors import LinkInTheWay, OutsideMount
from toolcrib.domain.files import FOLDER_MODE, ContentKind, File, NodeKind, NodeState
from toolcrib.domain.places import Place
from toolcrib.storage.blobs import digest
from toolcrib.workspace.content import decoded, file_state
from toolcrib.workspace.disk import Disk
from toolcrib.workspace.nodes import Node
from toolcrib.workspace.trash import is_it, token_of, unkept_state

# What the history can take in. Of larger files it keeps no content: displaced, they go to the trash.
MOST_BYTES = 256_000_000

_NOTHING = (None, None, None)


def still_holds(disk: Disk, file: File, node: Node | None) -> bool:
    """Whether the disk holds a file's head."""
    if node is not None and node.kind is NodeKind.FILE and file.fingerprint is not None:
        if file.fingerprint.proves(node.fingerprint):
            return file.state.kind is NodeKind.FILE
        if not file.fingerprint.looks_like(node.fingerprint):
            return False
    return holds(disk, file.state, node)


def holds(disk: Disk, state: NodeState, node: Node | None) -> bool:
    """Whether the disk holds a state, by content where there is any."""
    if node is None or node.kind is not state.kind:
        return False
    if state.kind is NodeKind.LINK:
        return node.target == state.target
    if node.mode != state.mode:
        return False
    if state.kind is NodeKind.FOLDER:
        return True
    if node.fingerprint.size != state.size:
        return False
    if token_of(state) is not None:
        # Nobody knows its content but the disk. If that is another, it is kept all the same when it is displaced.
        return is_it(state, node)
    body, _ = disk.read(state.place, limit=MOST_BYTES)
    return digest(body) == state.sha256


def look_past_links(disk: Disk, place: Place) -> Node | None:
    """What stands at a place, for one who changes the tree: where a link is on the way, nothing does."""
    try:
        return disk.look(place)
    except (LinkInTheWay, OutsideMount):
        return None


def observed(disk: Disk, place: Place, known: NodeState | None) -> tuple[NodeState | None, bytes | None, Node | None]:
    """What stands on disk now, as a state with its content; nothing for special files, which no history can keep."""
    node = disk.look(place)
    if node is None or node.kind is None:
        return _NOTHING
    if node.kind is NodeKind.FOLDER:
        return _folder(place, node, known), None, node
    if node.kind is NodeKind.LINK:
        # A target that is not text cannot be kept, and nobody could write it down again.
        told = node.target is not None and node.target.isprintable()
        return (NodeState(place, NodeKind.LINK, node.mode, target=node.target), None, node) if told else _NOTHING
    if node.fingerprint.size > MOST_BYTES:
        return unkept_state(place, node), None, node
    body, node = disk.read(place, limit=MOST_BYTES)
    state = file_state(place, body, mode=node.mode, content=known.content if known else ContentKind.TEXT)
    if state.content is ContentKind.JSON and isinstance(decoded(body, ContentKind.JSON), str):
        state = replace(state, content=ContentKind.TEXT)
    return state, body, node


def observed_whole(disk: Disk, place: Place) -> tuple[NodeState | None, Node | None]:
    """What stands on disk now, as something whose content the history shall not keep; of a folder with all in it."""
    node = disk.look(place)
    if node is None or node.kind not in (NodeKind.FILE, NodeKind.FOLDER):
        return None, None
    size = None if node.kind is NodeKind.FILE else size_below(disk, place)
    return unkept_state(place, node, size=size), node


def _folder(place: Place, node: Node, known: NodeState | None) -> NodeState:
    state = NodeState(place, NodeKind.FOLDER, node.mode or FOLDER_MODE)
    # One that is known as a whole stays so: looking at it does not tell what is in it.
    return replace(state, size=known.size, target=known.target) if known and token_of(known) else state


def size_below(disk: Disk, folder: Place) -> int:
    """The bytes of all files in a folder, at any depth."""
    nodes = (disk.look(place) for place, entry in disk.walk(folder) if entry.kind is NodeKind.FILE)
    return sum(node.fingerprint.size for node in nodes if node is not None)

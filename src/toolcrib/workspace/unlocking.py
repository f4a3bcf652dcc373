"""Opens folders that are locked against their owner while a change is brought to disk, and locks them again."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from toolcrib.domain.errors import NotFound
from toolcrib.domain.files import NodeKind
from toolcrib.domain.places import Place
from toolcrib.workspace.drift import look_past_links
from toolcrib.workspace.mounts import Disks

OPEN = 0o700


@contextmanager
def unlocked(disk_of: Disks, places: Collection[Place]) -> Iterator[None]:
    """Lets us, who own them, change what is in the folders above these places, whatever their modes are.

    Where the change itself gives a folder a mode, that counts afterwards.
    """
    was: dict[Place, int] = {}
    above = {folder for place in places for folder in place.ancestors}
    try:
        for folder in sorted(above, key=_depth):
            node = look_past_links(disk_of(folder), folder)
            if node is not None and node.kind is NodeKind.FOLDER and node.mode & OPEN != OPEN:
                disk_of(folder).set_mode(folder, node.mode | OPEN)
                was[folder] = node.mode
        yield
    finally:
        for folder in sorted(was, key=_depth, reverse=True):
            node = look_past_links(disk_of(folder), folder)
            if node is not None and node.mode == was[folder] | OPEN:
                with suppress(NotFound):
                    disk_of(folder).set_mode(folder, was[folder])


def _depth(place: Place) -> int:
    return len(place.parts)

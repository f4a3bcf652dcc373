"""What stands in some trees on disk, as far as the history would keep it, and what is different the next time.

For who let a program work on the live tree. Reads no content but ignore rules; of what did not change it only looks at
the dates. Ignored files are passed over, unless the history knows them; so are files too large for it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from toolcrib.domain.errors import OutsideMount, Refused, ToolFailed
from toolcrib.domain.files import NodeKind
from toolcrib.domain.places import Place
from toolcrib.workspace.ignoring import RULES, Ignoring
from toolcrib.workspace.mounts import Disks
from toolcrib.workspace.nodes import Node
from toolcrib.workspace.paths import is_sayable

_MOST_RULES: Final = 100_000

Stamp = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """Every place with how it looks, and those whose content is too large to be kept."""

    nodes: Mapping[Place, Node]
    too_large: tuple[Place, ...]


class Census:
    """Counts some trees again and again. ``known`` are places that the history keeps, whatever the rules say.

    What is ``closed`` is left out, with all that is in it.
    """

    def __init__(
        self,
        disk_of: Disks,
        roots: Sequence[Place],
        *,
        known: Collection[Place],
        closed: Callable[[Place], bool],
        max_file_bytes: int,
    ) -> None:
        self._disk_of = disk_of
        self._roots = roots
        self._known = frozenset(known)
        self._above_known = frozenset(above for place in known for above in place.ancestors)
        self._closed = closed
        self._max_file_bytes = max_file_bytes
        self._ignored: dict[tuple[Place, bool], bool] = {}
        self._rules: dict[Place, Stamp] = {}
        self._last: dict[Place, Stamp] = {}

    def count(self) -> Counted:
        """What stands there now."""
        ignoring = Ignoring(partial(_rules_at, self._disk_of))
        nodes: dict[Place, Node] = {}
        too_large: list[Place] = []
        for root in self._roots:
            for place, node in self._walk(root, ignoring):
                if node.kind is NodeKind.FILE and node.fingerprint.size > self._max_file_bytes:
                    too_large.append(place)
                else:
                    nodes[place] = node
        self._last = {place: _stamp(node) for place, node in nodes.items()}
        return Counted(nodes, tuple(too_large))

    def changed(self) -> list[Place]:
        """Where something else stands than the last time, or nothing any more."""
        before = self._last
        self.count()
        now = self._last
        different = {place for place, stamp in now.items() if before.get(place) != stamp}
        return sorted(different | (before.keys() - now.keys()))

    def _walk(self, root: Place, ignoring: Ignoring) -> Iterator[tuple[Place, Node]]:
        disk = self._disk_of(root)
        pending = [root]
        while pending:
            folder = pending.pop()
            try:
                looks = disk.looks(folder)
            except (ToolFailed, OutsideMount):
                continue
            self._heed_rules(folder, looks)
            for name, node in looks:
                place = folder.child(name)
                if node.kind is None or not is_sayable(name) or self._passes_over(place, node, ignoring):
                    continue
                yield place, node
                if node.kind is NodeKind.FOLDER:
                    pending.append(place)

    def _heed_rules(self, folder: Place, looks: Sequence[tuple[str, Node]]) -> None:
        """What was judged by rules that are others now is judged anew."""
        stamp: Stamp = next((_stamp(node) for name, node in looks if name == RULES), ())
        if self._rules.get(folder, ()) != stamp:
            self._rules[folder] = stamp
            self._ignored.clear()

    def _passes_over(self, place: Place, node: Node, ignoring: Ignoring) -> bool:
        if self._closed(place):
            return True
        if place in self._known or place in self._above_known:
            return False
        key = (place, node.kind is NodeKind.FOLDER)
        known = self._ignored.get(key)
        if known is None:
            known = self._ignored[key] = ignoring.ignores(place, folder=key[1])
        return known


def _rules_at(disk_of: Disks, place: Place) -> bytes | None:
    try:
        return disk_of(place).read(place, limit=_MOST_RULES)[0]
    except (ToolFailed, Refused):
        return None


def _stamp(node: Node) -> Stamp:
    """What differs whenever the node does. Of a folder not its dates: what is put into it is counted for itself."""
    if node.kind is NodeKind.FOLDER:
        return node.kind, node.mode
    seen = node.fingerprint
    return node.kind, node.mode, seen.inode, seen.size, seen.mtime_ns, seen.ctime_ns, node.target

"""What stands in some trees on disk, as far as the history would keep it, and what is different the next time.

For who let a program work on the live tree. Reads no content but ignore rules; of what did not change it only looks at
the dates. Ignored files are passed over, unless the history knows them; so are files too large for it.
"""

import os
import stat
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from toolcrib.domain.errors import OutsideMount, Refused, ToolFailed
from toolcrib.domain.places import Place
from toolcrib.workspace.ignoring import RULES, Ignoring
from toolcrib.workspace.mounts import Disks
from toolcrib.workspace.nodes import Node
from toolcrib.workspace.paths import is_sayable

_MOST_RULES: Final = 100_000
_KINDS: Final = frozenset({stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK})

_Stamp = tuple[int, ...]
# The number of a tree's root, and a path below it. No places: most are only looked at, and places take their time.
_Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Counted:
    """Every place with how it looks, and those whose content is too large to be kept."""

    nodes: dict[Place, Node]
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
        self._known = frozenset(known) | {above for place in known for above in place.ancestors}
        self._closed = closed
        self._max_file_bytes = max_file_bytes
        self._passed_over: dict[tuple[_Key, bool], bool] = {}
        self._rules: dict[_Key, _Stamp] = {}
        self._last: dict[_Key, _Stamp] = {}

    def count(self) -> Counted:
        """What stands there now."""
        self._last, too_large = self._walked()
        looks = ((place, self._disk_of(place).look(place)) for place in map(self._place, self._last))
        return Counted({place: node for place, node in looks if node is not None}, tuple(map(self._place, too_large)))

    def changed(self) -> list[Place]:
        """Where something else stands than the last time, or nothing any more."""
        before = self._last
        self._last, _ = self._walked()
        different = {key for key, stamp in self._last.items() if before.get(key) != stamp}
        return sorted(map(self._place, different | (before.keys() - self._last.keys())))

    def _walked(self) -> tuple[dict[_Key, _Stamp], list[_Key]]:
        ignoring = Ignoring(partial(_rules_at, self._disk_of))
        found: dict[_Key, _Stamp] = {}
        too_large: list[_Key] = []
        pending: list[_Key] = [(root, "") for root in range(len(self._roots))]
        while pending:
            root, folder = pending.pop()
            entries = self._entries((root, folder))
            self._heed_rules((root, folder), entries)
            for name, seen in entries:
                key, is_folder = (root, f"{folder}/{name}"), stat.S_ISDIR(seen.st_mode)
                if self._passes_over(key, seen.st_mode, ignoring):
                    continue
                if seen.st_size > self._max_file_bytes and stat.S_ISREG(seen.st_mode):
                    too_large.append(key)
                    continue
                found[key] = _stamp(seen)
                if is_folder:
                    pending.append(key)
        return found, too_large

    def _place(self, key: _Key) -> Place:
        root = self._roots[key[0]]
        return Place(root.mount, key[1] or "/", root.scope)

    def _entries(self, key: _Key) -> list[tuple[str, os.stat_result]]:
        folder = self._place(key)
        try:
            return self._disk_of(folder).stats(folder)
        except (ToolFailed, OutsideMount):
            return []

    def _heed_rules(self, folder: _Key, entries: Sequence[tuple[str, os.stat_result]]) -> None:
        """What was judged by rules that are others now is judged anew."""
        stamp: _Stamp = next((_stamp(seen) for name, seen in entries if name == RULES), ())
        if self._rules.get(folder, ()) != stamp:
            self._rules[folder] = stamp
            self._passed_over.clear()

    def _passes_over(self, key: _Key, mode: int, ignoring: Ignoring) -> bool:
        is_folder = stat.S_ISDIR(mode)
        if stat.S_IFMT(mode) not in _KINDS:
            return True
        judged = self._passed_over.get((key, is_folder))
        if judged is None:
            judged = self._passed_over[key, is_folder] = self._judged(self._place(key), ignoring, is_folder=is_folder)
        return judged

    def _judged(self, place: Place, ignoring: Ignoring, *, is_folder: bool) -> bool:
        if not is_sayable(place.name) or self._closed(place):
            return True
        return place not in self._known and ignoring.ignores(place, folder=is_folder)


def _rules_at(disk_of: Disks, place: Place) -> bytes | None:
    try:
        return disk_of(place).read(place, limit=_MOST_RULES)[0]
    except (ToolFailed, Refused):
        return None


def _stamp(seen: os.stat_result) -> _Stamp:
    """What differs whenever the node does. Of a folder not its dates: what is put into it is counted for itself."""
    if stat.S_ISDIR(seen.st_mode):
        return (seen.st_mode,)
    return seen.st_mode, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns

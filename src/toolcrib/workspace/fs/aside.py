"""Trees that were put aside because another node has become the home of their workspace. They are kept for a while.

They may have what no other disk and no history has: ignored files, and files that are too large for the history.
"""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Final

from toolcrib.core.ids import WorkspaceId
from toolcrib.runtime.process_setup import make_private

_FOLDER: Final = "aside"
_DATE: Final = "%Y%m%dT%H%M%SZ"
# Older trees are deleted. Of the others, the oldest are while there are more bytes, but none within its retention.
_MOST_DAYS: Final = timedelta(days=30)
_MOST_BYTES: Final = 20_000_000_000


class AsideDirectory:
    """The trees that this disk has put aside, each in a folder named by workspace and date.

    ``keep`` is the retention: within it, no tree is deleted unless its workspace is.
    """

    def __init__(self, data_dir: Path, *, keep: timedelta = timedelta(days=7), most_bytes: int = _MOST_BYTES) -> None:
        self._data_dir = data_dir
        self._keep = keep
        self._most_bytes = most_bytes

    def put(self, tree: Path, workspace_id: WorkspaceId) -> None:
        """Move the directory of a workspace here in one step. Nothing happens if it does not exist."""
        make_private(folder := self._data_dir / _FOLDER, self._data_dir)
        try:
            tree.rename(folder / f"{workspace_id}-{datetime.now(UTC):{_DATE}}-{token_hex(4)}")
        except FileNotFoundError:
            return

    def of(self, workspace_id: WorkspaceId) -> list[Path]:
        """Return the trees of a workspace."""
        return [path for _, path in self._dated() if path.name.startswith(f"{workspace_id}-")]

    def expired(self, now: datetime) -> list[Path]:
        """Return the trees to delete, oldest first. Walks through the trees, so call it in a thread."""
        trees = self._dated()
        expired = [path for date, path in trees if date < now - max(_MOST_DAYS, self._keep)]
        optional = [path for date, path in trees if path not in expired and date < now - self._keep]
        if not optional:
            return expired
        sizes = {path: _bytes_below(path) for _, path in trees if path not in expired}
        excess = sum(sizes.values()) - self._most_bytes
        for path in optional:
            if excess <= 0:
                break
            expired.append(path)
            excess -= sizes[path]
        return expired

    def _dated(self) -> list[tuple[datetime, Path]]:
        """Return the trees with their dates, oldest first. Leaves out what others have put here."""
        try:
            names = os.listdir(self._data_dir / _FOLDER)
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            try:
                date = datetime.strptime(name.split("-")[-2], _DATE).replace(tzinfo=UTC)
            except (ValueError, IndexError):
                continue
            found.append((date, self._data_dir / _FOLDER / name))
        return sorted(found)


def _bytes_below(folder: Path) -> int:
    """Return the space that a tree takes. What cannot be read counts as nothing."""
    return sum(
        os.lstat(os.path.join(above, name)).st_blocks * 512
        for above, _, names in os.walk(folder)
        for name in names
        if os.path.lexists(os.path.join(above, name))
    )

"""The marker of a workspace's trees on a disk. Without one, a disk never had them, or lost them."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from toolcrib.core.ids import WorkspaceId
from toolcrib.core.json_text import json_text
from toolcrib.runtime.durable_file import replace_durably
from toolcrib.workspace.fs.mounts import MARKER

# The most losses that a marker lists.
_MOST_LOST = 10_000


@dataclass(frozen=True, slots=True)
class LostContent:
    """Content that only the lost disk had."""

    path: str
    reason: str
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class TreeMarker:
    """Says that a disk has the trees of a workspace, since which home epoch, and what a rebuild could not bring back.

    Attributes:
        rebuild_id: The rebuild that is not complete yet.
        trees: What the last rebuild wrote.
        files: How many files and folders these have.
        lost: What it could not write.
    """

    workspace_id: WorkspaceId
    home_epoch: int
    rebuild_id: UUID | None = None
    trees: tuple[str, ...] = ()
    files: int = 0
    lost: tuple[LostContent, ...] = ()

    @classmethod
    def load(cls, folder: Path) -> "TreeMarker | None":
        """Read the marker in a workspace's own directory. None if there is none."""
        try:
            row: dict[str, Any] = json.loads((folder / MARKER).read_bytes())
        except FileNotFoundError:
            return None
        rebuild_id = row["rebuild_id"]
        return cls(
            WorkspaceId(UUID(row["workspace_id"])),
            int(row["home_epoch"]),
            None if rebuild_id is None else UUID(rebuild_id),
            tuple(row["trees"]),
            int(row["files"]),
            tuple(LostContent(**one) for one in row["lost"]),
        )

    def save(self, folder: Path) -> None:
        """Replace the marker, durably and in one step."""
        replace_durably(folder / MARKER, json_text(asdict(self)).encode())


def few_lost(lost: Sequence[LostContent]) -> tuple[LostContent, ...]:
    """Return the losses that a marker lists, each once."""
    lost = list(dict.fromkeys(lost))
    if len(lost) <= _MOST_LOST:
        return tuple(lost)
    return (*lost[:_MOST_LOST], LostContent("…", f"and {len(lost) - _MOST_LOST:,} more"))

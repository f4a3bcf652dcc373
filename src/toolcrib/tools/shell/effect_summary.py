"""Summarizes what a command did to the tree, for a result."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from toolcrib.core.change_sets import ChangeKind, ChangeSet
from toolcrib.tools.dialects.studio.studio_paths import written

MOST_PATHS: Final = 50


def summarize_effect(change_sets: Sequence[ChangeSet]) -> dict[str, Any]:
    """Count created, modified and deleted files, and list the first paths; empty without changes."""
    changes = [change for change_set in change_sets for change in change_set.changes]
    if not changes:
        return {}
    count = Counter(change.kind for change in changes)
    paths = sorted({path for change_set in change_sets for path in change_set.paths})
    return {
        **{str(kind): count[kind] for kind in (ChangeKind.CREATED, ChangeKind.MODIFIED, ChangeKind.DELETED)},
        "paths": [written(path) for path in paths[:MOST_PATHS]],
    }

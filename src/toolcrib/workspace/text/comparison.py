"""Compares two contents: small ones directly, large ones in a worker with a deadline."""

from collections.abc import Sequence

from toolcrib.core.errors import TooCostly
from toolcrib.workers.worker_pool import in_worker
from toolcrib.workspace.text.text_diff import (
    Pair,
    TextDiff,
    are_quick,
    unified,
    unified_diff_parts,
    unified_diff_parts_within,
)


async def compared(before: bytes, after: bytes, names: tuple[str, str], *, context: int = 3) -> TextDiff:
    """Return the diff from ``before`` to ``after``. Raises ``TooCostly`` with the sizes if it takes too long."""
    if are_quick([(before, after, names)]):
        return unified(before, after, names, context=context)
    try:
        return TextDiff(*await in_worker(unified_diff_parts, before, after, names, context))
    except TooCostly:
        raise TooCostly(
            f"Too large to compare line by line: {names[0]} has {len(before):,} bytes, {names[1]} has {len(after):,}."
        ) from None


async def all_compared(pairs: Sequence[Pair], *, room: int) -> list[TextDiff | None]:
    """Compare each pair while ``room`` for the texts lasts. ``None`` for pairs beyond it, or if all is too costly."""
    if are_quick(pairs):
        found = unified_diff_parts_within(list(pairs), room)
    else:
        try:
            found = await in_worker(unified_diff_parts_within, list(pairs), room)
        except TooCostly:
            found = [None] * len(pairs)
    return [TextDiff(*diff) if diff is not None else None for diff in found]

"""Compare two contents off the loop: what is small right here, what is large in a worker that ends at its deadline."""

from collections.abc import Sequence

from toolcrib.core.errors import TooCostly
from toolcrib.workers.worker_pool import in_worker
from toolcrib.workspace.text.text_diff import (
    Pair,
    TextDiff,
    are_quick,
    plainly_unified,
    plainly_unified_within,
    unified,
)


async def compared(before: bytes, after: bytes, names: tuple[str, str], *, context: int = 3) -> TextDiff:
    """What became of the lines of ``before``; TooCostly tells the sizes if that is too much to find out."""
    if are_quick([(before, after, names)]):
        return unified(before, after, names, context=context)
    try:
        return TextDiff(*await in_worker(plainly_unified, before, after, names, context))
    except TooCostly:
        raise TooCostly(
            f"Too large to compare line by line: {names[0]} has {len(before):,} bytes, {names[1]} has {len(after):,}."
        ) from None


async def all_compared(pairs: Sequence[Pair], *, room: int) -> list[TextDiff | None]:
    """Each of them while there is ``room`` for their texts; none in place of those beyond, or if it is too much."""
    if are_quick(pairs):
        found = plainly_unified_within(list(pairs), room)
    else:
        try:
            found = await in_worker(plainly_unified_within, list(pairs), room)
        except TooCostly:
            found = [None] * len(pairs)
    return [TextDiff(*diff) if diff is not None else None for diff in found]

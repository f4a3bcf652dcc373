"""Runs possibly expensive text operations: small inputs directly, the rest in a worker with a deadline."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Any

from toolcrib.core.errors import BadArguments, TooCostly, WorkerFailed
from toolcrib.policy.json_schema import (
    flaw_in_schema_text,
    flaw_in_texts,
    is_quick,
    is_quick_schema,
    schema_error,
    validation_error,
)
from toolcrib.runtime.disk_threads import in_thread
from toolcrib.runtime.worker_pool import in_worker
from toolcrib.workspace.text import frontmatter, plans
from toolcrib.workspace.text.edits import Edit, EditedText, edited, edited_by_all
from toolcrib.workspace.text.hunks import DiffWindow, Hunk, HunkPage, Step, page_of_change, revert_hunks, split_hunks
from toolcrib.workspace.text.plans import PlanDocument, PlanStatus
from toolcrib.workspace.text.text_diff import Pair, TextDiff, are_quick, unified, unified_within

# Searching through more than this would delay other calls.
_SMALL = 65_536
# Contents that are compared by one call to a worker.
_AT_ONCE_BYTES = 1_000_000
# Pure Python parses dense YAML at ten kilobytes a second.
_LITTLE_YAML = 256
# After this time, a failed edit is reported without a hint.
_HINT_SECONDS = 2.0


async def edit_made(body: bytes, edit: Edit) -> EditedText:
    """Apply an edit. Raises ``BadArguments`` with the reason if that is not possible."""
    return await _edited(partial(edited, body, edit), is_small=len(body) <= _SMALL)


async def all_edits_made(body: bytes, edits: Sequence[Edit]) -> EditedText:
    """Apply all edits. Raises ``BadArguments`` naming the edit that cannot be applied, and why."""
    return await _edited(partial(edited_by_all, body, list(edits)), is_small=len(body) * len(edits) <= _SMALL)


async def _edited(make: "partial[EditedText]", *, is_small: bool) -> EditedText:
    if is_small:
        # The explanation of an error may take long, so it is computed in a worker.
        with suppress(BadArguments):
            return make(explains=False)
    try:
        return await in_worker(make, seconds=_HINT_SECONDS)
    except (TooCostly, WorkerFailed):
        # Only the explanation of an error needs a worker.
        return await in_thread(partial(make, explains=False))


async def plan_in(content: bytes) -> PlanDocument:
    """Parse a plan. Raises ``InvalidFrontmatter`` with what is wrong if it cannot be read."""
    if not content.startswith((b"---", b"\xef\xbb\xbf---")) or len(frontmatter.split(content)[0]) <= _LITTLE_YAML:
        return plans.parsed(content)
    return await in_worker(plans.parsed, content)


async def plan_composed(
    earlier: PlanDocument | None, *, title: str, status: PlanStatus, body: bytes, now: datetime
) -> PlanDocument:
    """Create a plan, or update an earlier one. Other fields of its frontmatter stay."""
    compose = partial(plans.composed, earlier, title=title, status=status, body=body, now=now)
    if len(title) + len(earlier.head if earlier else b"") <= _LITTLE_YAML:
        return compose()
    return await in_worker(compose)


async def answer_flaw(schema: Mapping[str, Any], answer: Any) -> str | None:
    """Return what is wrong with an answer by its schema, or ``None``. Both must be JSON values."""
    if is_quick(schema, answer):
        return validation_error(schema, answer)
    return await in_worker(flaw_in_texts, json.dumps(schema), json.dumps(answer))


async def flaw_of_schema(schema: Mapping[str, Any]) -> str | None:
    """Return why a schema cannot be used to check answers, or ``None``."""
    if is_quick_schema(schema):
        return schema_error(schema)
    return await in_worker(flaw_in_schema_text, json.dumps(schema))


async def frontmatter_in(content: bytes) -> dict[str, Any]:
    """Return a document's frontmatter. Raises ``InvalidFrontmatter`` with what is wrong if it cannot be read."""
    head = frontmatter.split(content)[0]
    if not head:
        return {}
    if len(head) <= _LITTLE_YAML:
        return frontmatter.fields_of(head)
    return await in_worker(frontmatter.fields_of, head)


async def compared(before: bytes, after: bytes, names: tuple[str, str], *, context: int = 3) -> TextDiff:
    """Return the diff from ``before`` to ``after``. Raises ``TooCostly`` with the sizes if it takes too long."""
    compare = partial(unified, before, after, names, context=context)
    if are_quick([(before, after, names)]):
        return compare()
    try:
        return await in_worker(compare)
    except TooCostly:
        raise TooCostly(
            f"Too large to compare line by line: {names[0]} has {len(before):,} bytes, {names[1]} has {len(after):,}."
        ) from None


class NoDiff(StrEnum):
    """Why two texts have no diff: it does not fit the room, it takes too long, or a process of ours failed."""

    ROOM = "room"
    COSTLY = "costly"
    FAILED = "failed"


async def all_compared(pairs: Sequence[Pair], *, room: int) -> list[TextDiff | NoDiff]:
    """Compare each pair while ``room`` for the texts lasts."""
    found: list[TextDiff | NoDiff] = []
    for some in _in_portions(pairs):
        for diff in await _compared_together(some, room):
            room -= len(diff.text) if isinstance(diff, TextDiff) else 0
            found.append(diff)
    return found


async def _compared_together(pairs: Sequence[Pair], room: int) -> list[TextDiff | NoDiff]:
    if room <= 0:
        return [NoDiff.ROOM] * len(pairs)
    try:
        diffs = unified_within(pairs, room) if are_quick(pairs) else await in_worker(unified_within, list(pairs), room)
    except (TooCostly, WorkerFailed) as error:
        if len(pairs) == 1:
            return [NoDiff.COSTLY if isinstance(error, TooCostly) else NoDiff.FAILED]
        # One of them; the others are shown.
        return [diff for pair in pairs for diff in await _compared_together([pair], room)]
    return [NoDiff.ROOM if diff is None else diff for diff in diffs]


def _in_portions(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """Yield the pairs in portions that one call to a worker compares well within its limits."""
    portion: list[Pair] = []
    size = 0
    for pair in pairs:
        length = len(pair[0]) + len(pair[1])
        if portion and size + length > _AT_ONCE_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(pair)
        size += length
    if portion:
        yield portion


async def hunks_of(before: bytes, after: bytes, steps: Sequence[Step] = ()) -> list[Hunk]:
    """Split a change into hunks. Raises ``TooCostly`` if it takes too long, and ``WorkerFailed`` if we fail."""
    split = partial(split_hunks, before, after, list(steps))
    return split() if _are_quick_hunks(before, after, steps) else await in_worker(split)


async def hunk_page(before: bytes, after: bytes, steps: Sequence[Step], window: DiffWindow) -> HunkPage:
    """Return the lines of a change that are in the window. Raises as ``hunks_of`` does."""
    show = partial(page_of_change, before, after, list(steps), window)
    return show() if _are_quick_hunks(before, after, steps) else await in_worker(show)


async def hunks_reverted(before: bytes, after: bytes, ids: Collection[str], steps: Sequence[Step] = ()) -> bytes:
    """Return ``after`` with these hunks as in ``before``. The ids must be of its hunks."""
    revert = partial(revert_hunks, before, after, list(ids), list(steps))
    return revert() if _are_quick_hunks(before, after, steps) else await in_worker(revert)


def _are_quick_hunks(before: bytes, after: bytes, steps: Sequence[Step]) -> bool:
    texts = [before, *(body for body, _ in steps), after]
    return are_quick([(one, other, ("", "")) for one, other in pairwise(texts)])

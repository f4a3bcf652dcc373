"""Runs possibly expensive text operations: small inputs directly, the rest in a worker with a deadline."""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any

from toolcrib.core.errors import BadArguments, TooCostly
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
from toolcrib.workspace.text.hunks import Hunk, Step, revert_hunks, split_hunks
from toolcrib.workspace.text.plans import PlanDocument, PlanStatus
from toolcrib.workspace.text.text_diff import Pair, TextDiff, are_quick, unified, unified_within

# Searching through more than this would delay other calls.
_SMALL = 65_536
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
        return EditedText(*await in_worker(make, seconds=_HINT_SECONDS))
    except TooCostly:
        return await in_thread(partial(make, explains=False))


async def plan_in(content: bytes) -> PlanDocument:
    """Parse a plan. Raises ``InvalidFrontmatter`` with what is wrong if it cannot be read."""
    if not content.startswith((b"---", b"\xef\xbb\xbf---")) or len(frontmatter.split(content)[0]) <= _LITTLE_YAML:
        return plans.parsed(content)
    return PlanDocument(*await in_worker(plans.parsed, content))


async def plan_composed(
    earlier: PlanDocument | None, *, title: str, status: PlanStatus, body: bytes, now: datetime
) -> PlanDocument:
    """Create a plan, or update an earlier one. Other fields of its frontmatter stay."""
    compose = partial(plans.composed, earlier, title=title, status=status, body=body, now=now)
    if len(title) + len(earlier.head if earlier else b"") <= _LITTLE_YAML:
        return compose()
    return PlanDocument(*await in_worker(compose))


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
        return TextDiff(*await in_worker(compare))
    except TooCostly:
        raise TooCostly(
            f"Too large to compare line by line: {names[0]} has {len(before):,} bytes, {names[1]} has {len(after):,}."
        ) from None


async def all_compared(pairs: Sequence[Pair], *, room: int) -> list[TextDiff | None]:
    """Compare each pair while ``room`` for the texts lasts. ``None`` for pairs beyond it, or if all is too costly."""
    if are_quick(pairs):
        found = unified_within(list(pairs), room)
    else:
        try:
            found = await in_worker(unified_within, list(pairs), room)
        except TooCostly:
            found = [None] * len(pairs)
    return [TextDiff(*diff) if diff is not None else None for diff in found]


async def hunks_of(before: bytes, after: bytes, steps: Sequence[Step] = ()) -> list[Hunk]:
    """Split a change into hunks. Raises ``TooCostly`` if it takes too long."""
    split = partial(split_hunks, before, after, list(steps))
    if _are_quick_hunks(before, after, steps):
        return split()
    return [Hunk(*hunk) for hunk in await in_worker(split)]


async def hunks_reverted(before: bytes, after: bytes, ids: Collection[str], steps: Sequence[Step] = ()) -> bytes:
    """Return ``after`` with these hunks as in ``before``. The ids must be of its hunks."""
    revert = partial(revert_hunks, before, after, list(ids), list(steps))
    return revert() if _are_quick_hunks(before, after, steps) else await in_worker(revert)


def _are_quick_hunks(before: bytes, after: bytes, steps: Sequence[Step]) -> bool:
    texts = [before, *(body for body, _ in steps), after]
    return are_quick([(one, other, ("", "")) for one, other in pairwise(texts)])

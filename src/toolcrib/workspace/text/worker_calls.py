"""Runs possibly expensive text operations: small inputs directly, the rest in a worker with a deadline."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
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
from toolcrib.workers.worker_pool import in_worker
from toolcrib.workspace.text import frontmatter, plans
from toolcrib.workspace.text.edits import (
    Edit,
    EditedText,
    apply_encoded_edit,
    apply_encoded_edits,
    edited,
    edited_by_all,
    encode_edit,
)
from toolcrib.workspace.text.plans import PlanDocument, PlanStatus

# Searching through more than this would delay other calls.
_SMALL = 65_536
# Pure Python parses dense YAML at ten kilobytes a second.
_LITTLE_YAML = 256
# After this time, a failed edit is reported without a hint.
_HINT_SECONDS = 2.0


async def edit_made(body: bytes, edit: Edit) -> EditedText:
    """Apply an edit. Raises ``BadArguments`` with the reason if that is not possible."""
    if len(body) <= _SMALL:
        try:
            return edited(body, edit, explains=False)
        except BadArguments:
            # The explanation may take long, so it is computed in a worker.
            pass
    try:
        return EditedText(*await in_worker(apply_encoded_edit, body, encode_edit(edit), seconds=_HINT_SECONDS))
    except TooCostly:
        return await in_thread(partial(edited, body, edit, explains=False))


async def all_edits_made(body: bytes, edits: Sequence[Edit]) -> EditedText:
    """Apply all edits. Raises ``BadArguments`` naming the edit that cannot be applied, and why."""
    if len(body) * len(edits) <= _SMALL:
        try:
            return edited_by_all(body, edits, explains=False)
        except BadArguments:
            pass
    plain = [encode_edit(edit) for edit in edits]
    try:
        return EditedText(*await in_worker(apply_encoded_edits, body, plain, seconds=_HINT_SECONDS))
    except TooCostly:
        return await in_thread(partial(edited_by_all, body, edits, explains=False))


async def plan_in(content: bytes) -> PlanDocument:
    """Parse a plan. Raises ``InvalidFrontmatter`` with what is wrong if it cannot be read."""
    if not content.startswith((b"---", b"\xef\xbb\xbf---")) or len(frontmatter.split(content)[0]) <= _LITTLE_YAML:
        return plans.parsed(content)
    return PlanDocument(*await in_worker(plans.parse_plan_parts, content))


async def plan_composed(
    earlier: PlanDocument | None, *, title: str, status: PlanStatus, body: bytes, now: datetime
) -> PlanDocument:
    """Create a plan, or update an earlier one. Other fields of its frontmatter stay."""
    if len(title) + len(earlier.head if earlier else b"") <= _LITTLE_YAML:
        return plans.composed(earlier, title=title, status=status, body=body, now=now)
    known = None if earlier is None else (earlier.head, earlier.metadata, earlier.body)
    return PlanDocument(*await in_worker(plans.compose_plan_parts, known, title, str(status), body, now.isoformat()))


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

"""A change set as a person is shown it before it counts: what becomes of each file, with diffs while there is room."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from toolcrib.domain.changes import Change, ChangeSet
from toolcrib.domain.files import NodeState
from toolcrib.storage.blobs import Blobs
from toolcrib.storage.database import Tenant
from toolcrib.workspace.content import is_binary
from toolcrib.workspace.diffs import unified
from toolcrib.workspace.paths import shown
from toolcrib.workspace.threads import in_thread

# A person reads no more, and a row should hold no more. What is beyond is named, or at least counted.
_MOST_FILES = 1_000
_MOST_DIFFS = 100
_MOST_DIFFED_BYTES = 200_000
_ROOM = 200_000
# Comparing lines costs, at worst, more than their product: someone could make every question cost minutes.
_MOST_COMPARISONS = 4_000_000
_SECONDS = 2.0


async def preview(blobs: Blobs, tenant: Tenant, change_set: ChangeSet) -> list[dict[str, Any]]:
    """Every change of the set, those that were planned first in front."""
    listed = change_set.changes[:_MOST_FILES]
    bodies = await _bodies_before(blobs, tenant, listed[:_MOST_DIFFS])
    entries = await in_thread(_entries, listed, bodies)
    if missing := len(change_set.changes) - len(listed):
        entries.append({"path": None, "change": "more", "count": missing})
    return entries


async def _bodies_before(blobs: Blobs, tenant: Tenant, changes: Sequence[Change]) -> dict[bytes, bytes]:
    wanted = {
        change.before.sha256
        for change in changes
        if change.before is not None and change.before.sha256 is not None and change.before.size <= _MOST_DIFFED_BYTES
    }
    return {sha256: await blobs.get(tenant, sha256) for sha256 in wanted}


def _entries(changes: Sequence[Change], bodies: Mapping[bytes, bytes]) -> list[dict[str, Any]]:
    entries, room, deadline = [], _ROOM, time.monotonic() + _SECONDS
    for change in changes:
        entry = _facts(change)
        diff = _diff(change, bodies) if room > 0 and time.monotonic() < deadline else None
        if diff is not None and len(diff["diff"]) <= room:
            entry |= diff
            room -= len(diff["diff"])
        entries.append(entry)
    return entries


def _facts(change: Change) -> dict[str, Any]:
    before, after = change.before, change.after
    node = after or before
    assert node is not None
    moved = before is not None and after is not None and before.place != after.place
    return {
        "path": shown(node.place),
        "change": change.kind,
        "kind": node.kind,
        **({"from": shown(before.place)} if before is not None and moved else {}),
        **({"target": after.target} if after is not None and after.target is not None else {}),
        "before": _side(before),
        "after": _side(after),
    }


def _side(state: NodeState | None) -> dict[str, Any] | None:
    if state is None:
        return None
    return {
        "sha256": state.sha256.hex() if state.sha256 else None,
        "size": state.size,
        "mode": f"{state.mode:o}",
    }


def _diff(change: Change, bodies: Mapping[bytes, bytes]) -> dict[str, Any] | None:
    """The diff of a text, if both sides are at hand and small."""
    before, after = _body(change.before, None, bodies), _body(change.after, change.body, bodies)
    if before is None or after is None or before == after:
        return None
    if max(len(before), len(after)) > _MOST_DIFFED_BYTES or is_binary(before) or is_binary(after):
        return None
    if _is_costly(before, after):
        return None
    names = tuple(shown(state.place) if state else "/dev/null" for state in (change.before, change.after))
    diff = unified(before, after, (names[0], names[1]))
    return {"added": diff.added, "removed": diff.removed, "diff": diff.text}


def _is_costly(before: bytes, after: bytes) -> bool:
    """Whether too many lines differ to be compared with each other, those at the start and at the end aside."""
    old, new = before.split(b"\n"), after.split(b"\n")
    same = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    old, new = old[same:], new[same:]
    same = next((n for n, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b), 0)
    return (len(old) - same) * (len(new) - same) > _MOST_COMPARISONS


def _body(state: NodeState | None, brought: bytes | None, bodies: Mapping[bytes, bytes]) -> bytes | None:
    if state is None or state.sha256 is None:
        return b""
    return brought if brought is not None else bodies.get(state.sha256)

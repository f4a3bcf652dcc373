"""Renders a change set for an approval: what happens to each file, with diffs within size limits."""

from collections.abc import Mapping, Sequence
from typing import Any

from toolcrib.core.change_sets import ChangeSet, FileChange
from toolcrib.core.files import EntryKind, EntryState
from toolcrib.core.paths import shown
from toolcrib.storage.blobs import BlobStore
from toolcrib.storage.database import Tenant
from toolcrib.workspace.changes.untracked_hashes import UntrackedHash
from toolcrib.workspace.fs.trash import token_of
from toolcrib.workspace.text.comparison import all_compared
from toolcrib.workspace.text.content import is_binary
from toolcrib.workspace.text.text_diff import Pair

# Limits for what a person reads and what one database row stores. The rest is named or at least counted.
_MOST_FILES = 1_000
_MOST_DIFFS = 100
_MOST_DIFFED_BYTES = 200_000
_ROOM = 200_000
_MOST_COMPARED_BYTES = 4_000_000


async def preview_changes(
    blobs: BlobStore, tenant: Tenant, change_set: ChangeSet, unkept: UntrackedHash | None = None
) -> list[dict[str, Any]]:
    """List every change of the set in planned order, then the untracked content that its folders bring.

    The hash of an untracked folder covers everything in it, including entries that the preview does not list.
    """
    unkept = unkept or UntrackedHash()
    changes = (*change_set.changes, *unkept.inside)
    listed = changes[:_MOST_FILES]
    bodies = {**unkept.bodies, **await _bodies_before(blobs, tenant, listed[:_MOST_DIFFS])}
    entries = await _entries(listed, bodies)
    if missing := len(changes) - len(listed) + unkept.more:
        entries.append({"path": None, "change": "omitted", "count": missing})
    return entries


async def _bodies_before(blobs: BlobStore, tenant: Tenant, changes: Sequence[FileChange]) -> dict[bytes, bytes]:
    wanted = {
        change.before.sha256
        for change in changes
        if change.before is not None and change.before.sha256 is not None and change.before.size <= _MOST_DIFFED_BYTES
    }
    return {sha256: await blobs.get(tenant, sha256) for sha256 in wanted}


async def _entries(changes: Sequence[FileChange], bodies: Mapping[bytes, bytes]) -> list[dict[str, Any]]:
    entries = [_facts(change) for change in changes]
    pairs, room = {}, _MOST_COMPARED_BYTES
    for number, change in enumerate(changes):
        pair = _pair(change, bodies)
        if pair is not None and (room := room - len(pair[0]) - len(pair[1])) >= 0:
            pairs[number] = pair
    for number, diff in zip(pairs, await all_compared(list(pairs.values()), room=_ROOM), strict=True):
        if diff is not None:
            entries[number] |= {"added": diff.added, "removed": diff.removed, "diff": diff.text}
    return entries


def _facts(change: FileChange) -> dict[str, Any]:
    before, after = change.before, change.after
    node = after or before
    assert node is not None
    moved = before is not None and after is not None and before.path != after.path
    return {
        "path": shown(node.path),
        "change": change.kind,
        "kind": node.kind,
        **({"from": shown(before.path)} if before is not None and moved else {}),
        **({"target": after.target} if after is not None and after.kind is EntryKind.LINK else {}),
        "before": _side(before),
        "after": _side(after),
    }


def _side(state: EntryState | None) -> dict[str, Any] | None:
    if state is None:
        return None
    return {
        "sha256": known.hex() if (known := state.sha256 or state.unkept_sha256) else None,
        "size": state.size,
        "mode": f"{state.mode:o}",
    }


def _pair(change: FileChange, bodies: Mapping[bytes, bytes]) -> Pair | None:
    """Return both sides of a text change if they are loaded and small enough to compare."""
    before, after = _body(change.before, None, bodies), _body(change.after, change.body, bodies)
    if before is None or after is None or before == after:
        return None
    if max(len(before), len(after)) > _MOST_DIFFED_BYTES or is_binary(before) or is_binary(after):
        return None
    names = tuple(shown(state.path) if state else "/dev/null" for state in (change.before, change.after))
    return before, after, (names[0], names[1])


def _body(state: EntryState | None, brought: bytes | None, bodies: Mapping[bytes, bytes]) -> bytes | None:
    if state is None:
        return b""
    if (known := state.sha256 or state.unkept_sha256) is None:
        # Folders and links have no lines. An untracked file has lines, but they were not read.
        return b"" if token_of(state) is None else None
    return brought if brought is not None else bodies.get(known)

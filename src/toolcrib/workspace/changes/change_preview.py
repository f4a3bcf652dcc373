"""What an approval shows of a change set: what happens to each file, with diffs within size limits.

Untracked content is moved as one piece and is normally not read. Before an approval it is hashed: the preview shows the
hash, the proposed change stores it, and the commit checks it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final

from toolcrib.core.change_sets import ChangeSet, FileChange
from toolcrib.core.errors import BaseChanged, CallDenied, TooCostly, ToolFailed, WorkerFailed
from toolcrib.core.files import EntryKind, EntryState, FileType
from toolcrib.core.ids import FileId, VersionId, new_id
from toolcrib.core.paths import WorkspacePath
from toolcrib.policy.protected_paths import ProtectedPaths
from toolcrib.storage.blobs import BlobStore
from toolcrib.storage.database import Tenant
from toolcrib.workspace.fs.mounts import WorkspaceDisks
from toolcrib.workspace.fs.tree_hash import LARGEST_KEPT, TreeHash, digest_of
from toolcrib.workspace.text.content import is_binary
from toolcrib.workspace.text.hunks import DiffWindow
from toolcrib.workspace.text.text_diff import Pair, TextDiff
from toolcrib.workspace.text.worker_calls import NoDiff, all_compared, hunk_page

# Limits for what one database row stores. Pages show the lines of the rest.
_MOST_FILES = 1_000
_MOST_DIFFED_BYTES = 200_000
_ROOM = 200_000
_MOST_COMPARED_BYTES = 4_000_000
# A page of changes, or of the lines of one.
MOST_ON_PAGE: Final = 100
_PAGE: Final = DiffWindow(0, 20_000, 500_000)
# Bytes of untracked content kept for diffs, and files listed per preview. A folder's own hash covers all of its files.
_HASHED_ROOM: Final = 4_000_000
_MOST_INSIDE: Final = 500
# Ignored files are often secrets. Show their hashes but not their lines, because approvals are stored.
_hides: Final[Callable[[WorkspacePath], str | None]] = ProtectedPaths().protects_reading


@dataclass(slots=True)
class UntrackedHash:
    """What the preview shows beyond the change set: small contents by hash, and the files that folders bring."""

    bodies: dict[bytes, bytes] = field(default_factory=dict)
    inside: list[FileChange] = field(default_factory=list)
    # How many more files those folders have.
    more: int = 0
    room: int = _HASHED_ROOM


async def preview_changes(
    blobs: BlobStore, tenant: Tenant, change_set: ChangeSet, unkept: UntrackedHash | None = None
) -> list[dict[str, Any]]:
    """List every change of the set in planned order, then the untracked content that its folders bring.

    The hash of an untracked folder covers everything in it, including entries that the preview does not list.
    """
    unkept = unkept or UntrackedHash()
    changes = (*change_set.changes, *unkept.inside)
    listed = changes[:_MOST_FILES]
    bodies = {**unkept.bodies, **await _bodies_before(blobs, tenant, list(_within_room(listed)))}
    entries = await _entries(listed, bodies)
    if missing := len(changes) - len(listed) + unkept.more:
        entries.append({"path": None, "change": "omitted", "count": missing})
    return entries


def with_hashes(disk_of: WorkspaceDisks, change_set: ChangeSet) -> tuple[ChangeSet, UntrackedHash]:
    """Add hashes of all untracked content that the set brings, and of untracked files that it replaces."""
    unkept = UntrackedHash()
    changes = tuple(_with_hashes(disk_of, change, unkept) for change in change_set.changes)
    return replace(change_set, changes=changes), unkept


def require_as_shown(disk_of: WorkspaceDisks, change_set: ChangeSet) -> None:
    """Raise ``BaseChanged`` if content that was hashed for the proposal is different now."""
    for change in change_set.changes:
        for state, look in ((change.after, _hash_in_trash), (change.before, _hash_in_tree)):
            if state is None or state.unkept_sha256 is None:
                continue
            if look(disk_of, state) != state.unkept_sha256:
                error = BaseChanged(f"{state.path.display} differs from what the approval showed. Nothing was changed.")
                error.unlike_shown = True
                raise error


@dataclass(frozen=True, slots=True)
class PreviewPage:
    """Some changes of a proposal with all their lines. ``next`` is the first one of the next page."""

    entries: list[dict[str, Any]]
    next: int | None


async def preview_page(
    blobs: BlobStore, tenant: Tenant, changes: Sequence[FileChange], *, first: int, total: int, from_line: int = 0
) -> PreviewPage:
    """Show changes with their lines, whatever their number and size.

    Args:
        changes: Those that the page may have, and ``first`` the number of the first of them.
        from_line: Where the lines of the first one begin. An entry with more lines than fit has ``next_line``.
    """
    wanted, size = list[FileChange](), 0
    for change in changes:
        size += sum(state.size for state in change.states)
        if wanted and size > _MOST_COMPARED_BYTES:
            break
        wanted.append(change)
    bodies = await _bodies_before(blobs, tenant, wanted)
    entries: list[dict[str, Any]] = []
    room = _PAGE.characters
    for number, change in enumerate(wanted):
        window = _PAGE._replace(first=from_line if number == 0 else 0, characters=room)
        entry = _facts(change) | await _lines(change, bodies, window) | {"number": first + number}
        if entries and entry.get("next_line") is not None:
            # It begins the next page.
            break
        entries.append(entry)
        room -= len(entry.get("diff", ""))
    following = first + len(entries)
    return PreviewPage(entries, following if following < total else None)


async def _lines(change: FileChange, bodies: Mapping[bytes, bytes], window: DiffWindow) -> dict[str, Any]:
    """Return the lines of a change that are in the window, or why there are none."""
    pair = _pair(change, bodies)
    if pair is None:
        why = _why_no_diff(change, bodies)
        return {} if why is None else {"no_diff": why}
    before, after, names = pair
    try:
        page = await hunk_page(before, after, (), window)
    except TooCostly:
        return {"no_diff": NoDiff.COSTLY}
    except WorkerFailed:
        return {"no_diff": NoDiff.FAILED}
    text = "".join(hunk.text for hunk in page.shown)
    head = f"--- {names[0]}\n+++ {names[1]}\n" if text else ""
    rest = {} if page.next is None else {"next_line": page.next}
    return {"added": page.added, "removed": page.removed, "diff": f"{head}{text}", **rest}


async def _bodies_before(blobs: BlobStore, tenant: Tenant, changes: Sequence[FileChange]) -> dict[bytes, bytes]:
    wanted = [
        change.before.sha256 for change in changes if change.before is not None and change.before.sha256 is not None
    ]
    return await blobs.get_all(tenant, list(dict.fromkeys(wanted)))


def _within_room(changes: Sequence[FileChange]) -> Iterator[FileChange]:
    """Yield the changes whose contents are read to be stored with the approval. Pages show the others."""
    room = _MOST_COMPARED_BYTES
    for change in changes:
        sizes = [state.size for state in change.states]
        if max(sizes) <= _MOST_DIFFED_BYTES and (room := room - sum(sizes)) >= 0:
            yield change


async def _entries(changes: Sequence[FileChange], bodies: Mapping[bytes, bytes]) -> list[dict[str, Any]]:
    entries = [_facts(change) for change in changes]
    pairs, why = {}, dict[int, NoDiff]()
    room = _MOST_COMPARED_BYTES
    for number, change in enumerate(changes):
        if max(state.size for state in change.states) > _MOST_DIFFED_BYTES:
            continue
        pair = _pair(change, bodies)
        if pair is not None and (room := room - len(pair[0]) - len(pair[1])) >= 0:
            pairs[number] = pair
    for number, diff in zip(pairs, await all_compared(list(pairs.values()), room=_ROOM), strict=True):
        if isinstance(diff, TextDiff):
            entries[number] |= {"added": diff.added, "removed": diff.removed, "diff": diff.text}
        else:
            why[number] = diff
    for number, change in enumerate(changes):
        if "diff" not in entries[number] and (reason := _why_no_diff(change, bodies)) is not None:
            failed = why.get(number, NoDiff.ROOM)
            entries[number]["no_diff"] = reason if failed is NoDiff.ROOM else failed
    return entries


def _facts(change: FileChange) -> dict[str, Any]:
    before, after = change.before, change.after
    node = after or before
    assert node is not None
    moved = before is not None and after is not None and before.path != after.path
    return {
        "path": node.path.display,
        "change": change.kind,
        "kind": node.kind,
        **({"from": before.path.display} if before is not None and moved else {}),
        **({"was_kind": before.kind} if before is not None and before.kind is not node.kind else {}),
        **({"target": after.link_target} if after is not None and after.kind is EntryKind.LINK else {}),
        **({"was_target": before.link_target} if before is not None and before.kind is EntryKind.LINK else {}),
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
    """Return both sides of a text change if they are loaded."""
    before, after = _body(change.before, None, bodies), _body(change.after, change.body, bodies)
    if before is None or after is None or before == after:
        return None
    if is_binary(before) or is_binary(after):
        return None
    names = tuple(state.path.display if state else "/dev/null" for state in (change.before, change.after))
    return before, after, (names[0], names[1])


def _why_no_diff(change: FileChange, bodies: Mapping[bytes, bytes]) -> str | None:
    """Return why changed content has no diff; ``None`` if the content of a file does not change."""
    sides = [state for state in change.states if state.kind is EntryKind.FILE]
    hashes = {state.sha256 or state.unkept_sha256 for state in sides}
    if not any(state.size for state in sides) or (len(hashes) == 1 and len(sides) == 2):
        return None
    if any(state.is_untracked and _hides(state.path) is not None for state in sides):
        return "secret"
    known = [_body(change.before, None, bodies), _body(change.after, change.body, bodies)]
    if any(body is not None and is_binary(body) for body in known):
        return "binary"
    return "large" if any(state.size > _MOST_DIFFED_BYTES for state in sides) else "unread"


def _body(state: EntryState | None, brought: bytes | None, bodies: Mapping[bytes, bytes]) -> bytes | None:
    if state is None:
        return b""
    if (known := state.sha256 or state.unkept_sha256) is None:
        # Folders and links have no lines. An untracked file has lines, but they were not read.
        return None if state.is_untracked else b""
    return brought if brought is not None else bodies.get(known)


def _with_hashes(disk_of: WorkspaceDisks, change: FileChange, unkept: UntrackedHash) -> FileChange:
    before, after = change.before, change.after
    if (before.trash_id if before else None) == (after.trash_id if after else None):
        return change
    if after is not None and after.trash_id is not None:
        found = disk_of.trash.hashed(after.trash_id, room=unkept.room)
        _show(unkept, after.path, found)
        after = replace(after, unkept_sha256=digest_of(found))
    if before is not None and before.is_untracked and before.kind is EntryKind.FILE:
        before = replace(before, unkept_sha256=_hash_in_tree(disk_of, before, unkept))
    return replace(change, before=before, after=after)


def _show(unkept: UntrackedHash, top: WorkspacePath, found: list[TreeHash]) -> None:
    first, *inside = found
    if first.sha256 is not None and first.body is not None and _hides(top) is None:
        unkept.bodies[first.sha256] = first.body
    unkept.room -= sum(len(one.body) for one in found if one.body is not None)
    shown_here = inside[: max(0, _MOST_INSIDE - len(unkept.inside))]
    unkept.inside += [_made(top, one) for one in shown_here]
    unkept.more += len(inside) - len(shown_here)


def _made(top: WorkspacePath, one: TreeHash) -> FileChange:
    """Represent an entry inside a folder as a change that creates it."""
    path = replace(top, path=f"{top.path}{one.path}")
    # A special file is shown as an empty file. Commands cannot create any.
    state = EntryState(path, one.kind or EntryKind.FILE, one.mode & 0o777, one.sha256, one.size, link_target=one.target)
    body = None if _hides(path) else one.body
    return FileChange(FileId(new_id()), VersionId(new_id()), FileType.DOCUMENT, None, None, state, body)


def _hash_in_trash(disk_of: WorkspaceDisks, state: EntryState) -> bytes | None:
    assert state.trash_id is not None
    with suppress(ToolFailed, CallDenied):
        return digest_of(disk_of.trash.hashed(state.trash_id))
    return None


def _hash_in_tree(disk_of: WorkspaceDisks, state: EntryState, unkept: UntrackedHash | None = None) -> bytes | None:
    """Hash a file in the tree. Returns ``None`` if it cannot be read."""
    whole, kept = sha256(), bytearray()
    with suppress(ToolFailed, CallDenied):
        for piece in disk_of(state.path).pieces(state.path):
            whole.update(piece)
            if len(kept) <= LARGEST_KEPT:
                kept += piece
        if unkept is not None and len(kept) <= min(LARGEST_KEPT, unkept.room) and _hides(state.path) is None:
            unkept.bodies[whole.digest()] = bytes(kept)
            unkept.room -= len(kept)
        return whole.digest()
    return None

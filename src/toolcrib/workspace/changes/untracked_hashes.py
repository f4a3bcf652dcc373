"""Hashes untracked content that a change set brings or replaces, for the person who approves it.

Such content is moved as one piece and is normally not read. Before an approval it is hashed: the preview shows the
hash, the proposed change stores it, and the commit checks it.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from toolcrib.core.change_sets import ChangeSet, FileChange
from toolcrib.core.errors import BaseChanged, CallDenied, ToolFailed
from toolcrib.core.files import EntryKind, EntryState, FileType
from toolcrib.core.ids import FileId, VersionId, new_id
from toolcrib.core.paths import WorkspacePath, shown
from toolcrib.policy.protected_paths import ProtectedPaths
from toolcrib.workspace.effects.tree_hash import LARGEST_KEPT, TreeHash, digest_of
from toolcrib.workspace.fs.mounts import WorkspaceDisks
from toolcrib.workspace.fs.trash import token_of

# Bytes kept for diffs, and files listed per preview. A folder's own hash covers all of its files.
_ROOM: Final = 4_000_000
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
    room: int = _ROOM


def with_hashes(disk_of: WorkspaceDisks, change_set: ChangeSet) -> tuple[ChangeSet, UntrackedHash]:
    """Add hashes of all untracked content that the set brings, and of untracked files that it replaces."""
    unkept = UntrackedHash()
    changes = tuple(_with_hashes(disk_of, change, unkept) for change in change_set.changes)
    return replace(change_set, changes=changes), unkept


def require_as_shown(disk_of: WorkspaceDisks, change_set: ChangeSet) -> None:
    """Raise ``BaseChanged`` if content that was hashed for the proposal is different now."""
    for change in change_set.changes:
        for state, look in ((change.after, _lying), (change.before, _path_state)):
            if state is None or state.unkept_sha256 is None:
                continue
            if look(disk_of, state) != state.unkept_sha256:
                error = BaseChanged(f"{shown(state.path)} differs from what the approval showed. Nothing was changed.")
                error.unlike_shown = True
                raise error


def has_hashes(change_set: ChangeSet) -> bool:
    """Whether the set has hashes of untracked content."""
    return any(
        state is not None and state.unkept_sha256 is not None
        for change in change_set.changes
        for state in (change.before, change.after)
    )


def _with_hashes(disk_of: WorkspaceDisks, change: FileChange, unkept: UntrackedHash) -> FileChange:
    before, after = change.before, change.after
    if token_of(before) == token_of(after):
        return change
    if after is not None and (token := token_of(after)) is not None:
        found = disk_of.trash.hashed(token, room=unkept.room)
        _show(unkept, after.path, found)
        after = replace(after, unkept_sha256=digest_of(found))
    if before is not None and token_of(before) is not None and before.kind is EntryKind.FILE:
        before = replace(before, unkept_sha256=_path_state(disk_of, before, unkept))
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
    state = EntryState(path, one.kind or EntryKind.FILE, one.mode & 0o777, one.sha256, one.size, target=one.target)
    body = None if _hides(path) else one.body
    return FileChange(FileId(new_id()), VersionId(new_id()), FileType.DOCUMENT, None, None, state, body)


def _lying(disk_of: WorkspaceDisks, state: EntryState) -> bytes | None:
    token = token_of(state)
    assert token is not None
    with suppress(ToolFailed, CallDenied):
        return digest_of(disk_of.trash.hashed(token))
    return None


def _path_state(disk_of: WorkspaceDisks, state: EntryState, unkept: UntrackedHash | None = None) -> bytes | None:
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

"""Hashes of what a change set brings or replaces and the history does not keep, for the person who is asked about it.

Such a thing is moved as one piece and not read. Before anyone says yes to it, it is: the hash is shown, kept with the
proposed change, and what is committed must have it.
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

# How many bytes may be held for diffs, and how many files of one folder are named. Its own hash is over all of them.
_ROOM: Final = 4_000_000
_MOST_INSIDE: Final = 500
# Secrets are mostly ignored, too. Their hashes are shown and their lines are not: an approval is kept.
_hides: Final[Callable[[WorkspacePath], str | None]] = ProtectedPaths().protects_reading


@dataclass(slots=True)
class UntrackedHash:
    """What a person is shown beyond the change set: small contents by their hash, and what folders would bring."""

    bodies: dict[bytes, bytes] = field(default_factory=dict)
    inside: list[FileChange] = field(default_factory=list)
    # How many more there are in those folders.
    more: int = 0
    room: int = _ROOM


def with_hashes(disk_of: WorkspaceDisks, change_set: ChangeSet) -> tuple[ChangeSet, UntrackedHash]:
    """The set with the hash of every such content that it brings, and of every such file that it replaces."""
    unkept = UntrackedHash()
    changes = tuple(_with_hashes(disk_of, change, unkept) for change in change_set.changes)
    return replace(change_set, changes=changes), unkept


def require_as_shown(disk_of: WorkspaceDisks, change_set: ChangeSet) -> None:
    """BaseChanged unless every content that was hashed when it was proposed is the same still."""
    for change in change_set.changes:
        for state, look in ((change.after, _lying), (change.before, _standing)):
            if state is None or state.unkept_sha256 is None:
                continue
            if look(disk_of, state) != state.unkept_sha256:
                error = BaseChanged(
                    f"{shown(state.place)} does not hold what was shown when this was asked about. Nothing was changed."
                )
                error.unlike_shown = True
                raise error


def has_hashes(change_set: ChangeSet) -> bool:
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
        _show(unkept, after.place, found)
        after = replace(after, unkept_sha256=digest_of(found))
    if before is not None and token_of(before) is not None and before.kind is EntryKind.FILE:
        before = replace(before, unkept_sha256=_standing(disk_of, before, unkept))
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
    """A thing within a folder, as if it were made by a change of its own."""
    place = replace(top, path=f"{top.path}{one.path}")
    # A special file is shown as an empty one; commands cannot bring any.
    state = EntryState(place, one.kind or EntryKind.FILE, one.mode & 0o777, one.sha256, one.size, target=one.target)
    body = None if _hides(place) else one.body
    return FileChange(FileId(new_id()), VersionId(new_id()), FileType.DOCUMENT, None, None, state, body)


def _lying(disk_of: WorkspaceDisks, state: EntryState) -> bytes | None:
    token = token_of(state)
    assert token is not None
    with suppress(ToolFailed, CallDenied):
        return digest_of(disk_of.trash.hashed(token))
    return None


def _standing(disk_of: WorkspaceDisks, state: EntryState, unkept: UntrackedHash | None = None) -> bytes | None:
    """The hash of a file in the tree; nothing if it cannot be read."""
    whole, kept = sha256(), bytearray()
    with suppress(ToolFailed, CallDenied):
        for piece in disk_of(state.place).pieces(state.place):
            whole.update(piece)
            if len(kept) <= LARGEST_KEPT:
                kept += piece
        if unkept is not None and len(kept) <= min(LARGEST_KEPT, unkept.room) and _hides(state.place) is None:
            unkept.bodies[whole.digest()] = bytes(kept)
            unkept.room -= len(kept)
        return whole.digest()
    return None

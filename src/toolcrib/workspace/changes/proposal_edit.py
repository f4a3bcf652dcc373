"""Edits of a proposed change set: a person changes the contents of its files before approving it.

An edit replaces the content of a file that the change set writes. It adds no path and takes none away, so what was
checked for the call still holds for the edited set.
"""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

from toolcrib.core.change_sets import ChangeSet, FileChange
from toolcrib.core.errors import BadArguments, NotFound
from toolcrib.core.files import ContentKind, EntryKind, EntryState
from toolcrib.core.json_text import json_text
from toolcrib.core.paused_calls import FileEdit
from toolcrib.policy.protected_paths import ProtectedPaths
from toolcrib.workspace.text.content import encode_content, file_state, is_binary

# What a preview always shows as a diff, so that nothing is approved unseen.
MOST_BYTES: Final = 200_000
_PROTECTED: Final = ProtectedPaths()


def change_set_sha256(change_set: ChangeSet) -> str:
    """Return the hash of all that would be committed: each file's base, path, mode and content."""
    changes = [
        [str(one.file_id), str(one.version_id), str(one.base), str(one.type), _facts(one.before), _facts(one.after)]
        for one in change_set.changes
    ]
    return sha256(json_text([str(change_set.id), changes]).encode()).hexdigest()


def proposed_text(change_set: ChangeSet, path: str) -> str:
    """Return the content that the change set gives to a file. Raises ``NotFound`` if a person cannot edit it."""
    change = _by_path(change_set).get(path)
    if change is None:
        raise NotFound(f"The call does not write {path}.")
    if (flaw := _why_not_editable(change)) is not None:
        raise NotFound(f"{path} cannot be edited: {flaw}")
    assert change.body is not None
    return change.body.decode("utf-8", "replace")


def edit_change_set(change_set: ChangeSet, edits: Sequence[FileEdit]) -> ChangeSet:
    """Return the change set with the contents that a person gave to some of its files.

    Raises:
        BadArguments: An edit names a file that the change set does not write, a protected one, or one without text; or
            its content is too large or not text.
    """
    by_path, flaws = _by_path(change_set), dict[str, str]()
    edited: dict[str, FileChange] = {}
    for number, edit in enumerate(edits):
        change = by_path.get(edit.path)
        if change is None:
            flaws[f"edits.{number}.path"] = f"The call does not write {edit.path}. An edit cannot add a file."
        elif edit.path in edited:
            flaws[f"edits.{number}.path"] = f"{edit.path} is edited twice."
        elif (flaw := _why_not_editable(change) or _content_flaw(edit.content)) is not None:
            flaws[f"edits.{number}"] = flaw
        else:
            edited[edit.path] = _with_content(change, edit.content)
    if flaws:
        raise BadArguments(flaws)
    return replace(change_set, changes=tuple(edited.get(_path_of(one), one) for one in change_set.changes))


def edited_files(proposed: ChangeSet, edited: ChangeSet) -> list[tuple[FileChange, FileChange]]:
    """Return the changes whose content differs, as they were proposed and as they are now."""
    pairs = zip(proposed.changes, edited.changes, strict=True)
    return [(one, other) for one, other in pairs if one.after != other.after]


def _by_path(change_set: ChangeSet) -> dict[str, FileChange]:
    return {one.after.path.display: one for one in change_set.changes if one.after is not None}


def _path_of(change: FileChange) -> str:
    return change.after.path.display if change.after is not None else ""


def _why_not_editable(change: FileChange) -> str | None:
    after, body = change.after, change.body
    if after is None or after.kind is not EntryKind.FILE or body is None or after.is_untracked:
        return "The call brings no content for it."
    if _PROTECTED.protects_reading(after.path) or _PROTECTED.protects_writing(after.path):
        return "It is a protected path. Approve what the call proposes, or reject it with a reason."
    if is_binary(body) or len(body) > MOST_BYTES or _decoded(body) is None:
        return f"Only UTF-8 text of at most {MOST_BYTES:,} bytes can be edited."
    return None


def _content_flaw(content: str) -> str | None:
    try:
        body = content.encode()
    except UnicodeEncodeError:
        return "The content is not valid Unicode."
    if "\0" in content:
        return "The content is not text: it has a NUL character."
    if len(body) > MOST_BYTES:
        return f"The content has {len(body):,} bytes. At most {MOST_BYTES:,} can be shown, and so be approved."
    return None


def _with_content(change: FileChange, content: str) -> FileChange:
    assert change.after is not None
    body, _ = encode_content(content)
    # What a person wrote is text, also if the call brought a JSON value.
    after = file_state(change.after.path, body, mode=change.after.mode, content=ContentKind.TEXT)
    if after.sha256 == change.after.sha256:
        return change
    return replace(change, after=after, body=body)


def _decoded(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _facts(state: EntryState | None) -> list[Any] | None:
    if state is None:
        return None
    return [
        state.path.mount_key,
        state.path.path,
        str(state.kind),
        state.mode,
        state.sha256.hex() if state.sha256 else None,
        state.size,
        str(state.content_kind),
        state.link_target,
        str(state.trash_id),
        state.unkept_sha256.hex() if state.unkept_sha256 else None,
    ]

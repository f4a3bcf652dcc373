"""Approvals of an edited change set: what the person sees before, what is stored, and what the model learns of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolcrib.core.change_sets import ChangeSet, FileChange
from toolcrib.core.errors import BadArguments, Conflict
from toolcrib.core.paused_calls import ApprovalDecision, FileEdit, GrantScope
from toolcrib.storage.blobs import BlobStore
from toolcrib.storage.database import Tenant
from toolcrib.workspace.changes.change_preview import preview_changes
from toolcrib.workspace.changes.proposal_edit import change_set_sha256, edit_change_set, edited_files
from toolcrib.workspace.text.text_diff import TextDiff
from toolcrib.workspace.text.worker_calls import all_compared

# Characters of diffs that a row keeps and a model reads.
_ROOM: Final = 50_000


@dataclass(frozen=True, slots=True)
class EditedProposal:
    """A proposed change set with a person's edits.

    Attributes:
        sha256: The hash with which the person approves exactly this set.
        changes: What the person sees: every change of the set.
        edits: By edited file: the hashes, and the diff from what was proposed.
    """

    change_set: ChangeSet
    sha256: str
    changes: list[dict[str, Any]]
    edits: list[dict[str, Any]]


async def edited_proposal(
    blobs: BlobStore, tenant: Tenant, proposed: ChangeSet, edits: Sequence[FileEdit]
) -> EditedProposal:
    """Apply the edits to a proposal. Raises ``BadArguments`` for an edit that is not possible."""
    change_set = edit_change_set(proposed, edits)
    pairs = edited_files(proposed, change_set)
    return EditedProposal(
        change_set,
        change_set_sha256(change_set),
        await preview_changes(blobs, tenant, change_set),
        await _described(pairs),
    )


def require_edit_decision(decision: ApprovalDecision) -> None:
    """Raise ``BadArguments`` if the decision cannot carry edits."""
    if not decision.edits:
        return
    if not decision.approved:
        raise BadArguments({"edits": "A rejected call changes nothing. Approve it, or leave the edits out."})
    if decision.scope is not GrantScope.ONCE:
        raise BadArguments({"scope": "An edited call is approved `once`: a rule would allow what you have changed."})
    if decision.change_set_sha256 is None:
        raise BadArguments({"change_set_sha256": "Required with edits: the hash from the preview of the edited call."})


def require_as_seen(decision: ApprovalDecision, change_set: ChangeSet) -> None:
    """Raise ``Conflict`` if the decision is about another change set than the one that would be committed."""
    if decision.change_set_sha256 not in (None, change_set_sha256(change_set)):
        raise Conflict("`change_set_sha256` does not match the change set. Preview the edits again, then decide.")


def edited_result(planned: Any, edits: Sequence[Mapping[str, Any]], *, by: str | None) -> Any:
    """Return the result that the model reads: with the new hashes, and with what a person changed."""
    hashes = {one["proposed_sha256"]: one["sha256"] for one in edits}
    result = _replaced(planned, hashes)
    note = {
        "by": by or "a person",
        "note": "A person edited this change before approving it. The files have the person's content, not yours.",
        "files": [{"path": one["path"], "diff": one["diff"]} for one in edits],
    }
    return {**(result if isinstance(result, dict) else {"result": result}), "edited_by_person": note}


async def _described(pairs: Sequence[tuple[FileChange, FileChange]]) -> list[dict[str, Any]]:
    diffs = await all_compared([_pair(one, other) for one, other in pairs], room=_ROOM)
    found = []
    for (one, other), found_diff in zip(pairs, diffs, strict=True):
        diff = found_diff if isinstance(found_diff, TextDiff) else None
        assert one.after is not None and other.after is not None
        found.append(
            {
                "path": other.after.path.display,
                "proposed_sha256": one.after.sha256.hex() if one.after.sha256 else None,
                "sha256": other.after.sha256.hex() if other.after.sha256 else None,
                "added": diff.added if diff else None,
                "removed": diff.removed if diff else None,
                "diff": diff.text if diff else None,
            }
        )
    return found


def _pair(one: FileChange, other: FileChange) -> tuple[bytes, bytes, tuple[str, str]]:
    assert one.body is not None and other.body is not None and other.after is not None
    return one.body, other.body, (other.after.path.display, other.after.path.display)


def _replaced(value: Any, hashes: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return hashes.get(value, value)
    if isinstance(value, Mapping):
        return {key: _replaced(inner, hashes) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, hashes) for inner in value]
    return value

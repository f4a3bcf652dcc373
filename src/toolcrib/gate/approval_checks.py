"""Checks on a person's decision, and the errors that explain a rejection or a stale approval. Pure functions."""

from datetime import UTC, datetime

from toolcrib.core.approvals import Approval, ApprovalDecision, ApprovalState
from toolcrib.core.errors import ApprovalRejected, BadArguments, Conflict, Forbidden
from toolcrib.core.paths import WorkspacePath, shown
from toolcrib.core.tool_calls import UNSTORABLE_TEXT, is_storable_text
from toolcrib.storage.database import Tenant


def rejection_error(approval: Approval, decision: ApprovalDecision) -> ApprovalRejected:
    """Return the error that the caller receives after a rejection."""
    who = approval.decided_by_name or "A person"
    why = f": {decision.reason.rstrip(' .')}" if decision.reason else ", without giving a reason"
    return ApprovalRejected(f"{who} rejected this call{why}. Nothing was changed. Do not repeat it unchanged.")


def require_person(tenant: Tenant) -> None:
    """Raise Forbidden unless a person decides."""
    if tenant.agent_id is not None or tenant.user_id is None:
        raise Forbidden("Only a person can approve or reject a call. An agent's API key cannot.")


def require_storable(decision: ApprovalDecision) -> None:
    """Raise BadArguments for text that PostgreSQL cannot store."""
    rule = decision.rule
    texts: dict[str, tuple[str, ...]] = {"reason": (decision.reason or "",)}
    if rule is not None:
        texts |= {"rule.tool": (rule.tool,), "rule.paths": rule.paths or (), "rule.commands": rule.commands or ()}
    if flaws := {name: UNSTORABLE_TEXT for name, values in texts.items() if not all(map(is_storable_text, values))}:
        raise BadArguments(flaws)


def require_pending(approval: Approval) -> None:
    """Raise Conflict if the approval was decided, expired or withdrawn."""
    match approval.state:
        case ApprovalState.OPEN if approval.expires_at > datetime.now(UTC):
            return
        case ApprovalState.OPEN | ApprovalState.EXPIRED:
            raise Conflict(f"This approval expired at {approval.expires_at.isoformat(timespec='seconds')}.")
        case ApprovalState.ALLOWED | ApprovalState.DENIED:
            when = approval.decided_at.isoformat(timespec="seconds") if approval.decided_at else "some time ago"
            raise Conflict(f"Already {approval.state} by {approval.decided_by_name or 'someone'} at {when}.")
        case ApprovalState.STALE:
            raise Conflict("The effect changed since the first request. Decide on the new approval.")
        case ApprovalState.WITHDRAWN:
            raise Conflict("The call was cancelled, so this approval is closed.")


def stale_message(paths: list[tuple[WorkspacePath, str]]) -> str:
    """Return the message that names the changed paths and who changed them."""
    path, who = paths[0]
    others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return (
        f"{shown(path)}{others} was changed by {who} since the approval was requested. Decide on the new approval, "
        "which shows the current content."
    )

"""Why a person's decision on an approval cannot stand, and how a no is told to whoever called. Words only."""

from datetime import UTC, datetime

from toolcrib.domain.approvals import Approval, ApprovalState, Judgement
from toolcrib.domain.arguments import UNWRITABLE, is_writable
from toolcrib.domain.errors import BadArguments, Conflict, Denied, Forbidden
from toolcrib.domain.places import Place
from toolcrib.storage.database import Tenant
from toolcrib.workspace.paths import shown


def denied(approval: Approval, judgement: Judgement) -> Denied:
    who = approval.decided_by_name or "A person"
    why = f": {judgement.reason.rstrip(' .')}" if judgement.reason else ", without giving a reason"
    return Denied(f"{who} denied this call{why}. Nothing was changed. Do not repeat it unchanged.")


def refuse_agents(tenant: Tenant) -> None:
    if tenant.agent_id is not None or tenant.user_id is None:
        raise Forbidden("Only a person decides on an approval. An agent's key cannot.")


def refuse_unwritable(judgement: Judgement) -> None:
    """BadArguments for texts that no row can hold."""
    rule = judgement.rule
    texts: dict[str, tuple[str, ...]] = {"reason": (judgement.reason or "",)}
    if rule is not None:
        texts |= {"rule.tool": (rule.tool,), "rule.paths": rule.paths or (), "rule.commands": rule.commands or ()}
    if flaws := {name: UNWRITABLE for name, said in texts.items() if not all(map(is_writable, said))}:
        raise BadArguments(flaws)


def refuse_unless_open(approval: Approval) -> None:
    match approval.state:
        case ApprovalState.OPEN if approval.expires_at > datetime.now(UTC):
            return
        case ApprovalState.OPEN | ApprovalState.EXPIRED:
            raise Conflict(f"This approval expired at {approval.expires_at.isoformat(timespec='seconds')}.")
        case ApprovalState.ALLOWED | ApprovalState.DENIED:
            when = approval.decided_at.isoformat(timespec="seconds") if approval.decided_at else "some time ago"
            raise Conflict(f"Already {approval.state} by {approval.decided_by_name or 'someone'} at {when}.")
        case ApprovalState.STALE:
            raise Conflict("What this was about has changed since. It is asked again; decide on the new approval.")
        case ApprovalState.WITHDRAWN:
            raise Conflict("The call was withdrawn; there is nothing to decide any more.")


def moved_on(places: list[tuple[Place, str]]) -> str:
    place, who = places[0]
    others = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return (
        f"{shown(place)}{others} was changed by {who} since this was asked, so the answer would not be about the same "
        "thing. It is asked again with the present content; decide on the new approval."
    )

"""Checks on decisions and answers, and the errors with which paused calls end. Pure, except for JSON Schema."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from toolcrib.core.errors import ApprovalRejected, BadArguments, Conflict, Forbidden, NotDecided
from toolcrib.core.paths import WorkspacePath
from toolcrib.core.paused_calls import (
    ApprovalDecision,
    ApprovalRequest,
    GrantScope,
    PausedCall,
    PauseKind,
    PauseState,
    Question,
)
from toolcrib.core.tool_calls import (
    UNSTORABLE_TEXT,
    arguments_sha256,
    is_storable_text,
    parse_canonical_json,
)
from toolcrib.policy.authorization import ONCE_ONLY
from toolcrib.policy.grants import check_rule
from toolcrib.policy.json_schema import size_error
from toolcrib.storage.database import Tenant
from toolcrib.tools.tool import Tool
from toolcrib.workspace.text.worker_calls import answer_flaw

_LONGEST_REASON = 2_000


def require_person(tenant: Tenant, *, to: str) -> None:
    """Raise Forbidden unless a person decides or answers."""
    if tenant.agent_id is not None or tenant.user_id is None:
        raise Forbidden(f"Only a person can {to}. An agent's API key cannot.")


def require_pending(pause: PausedCall, kind: PauseKind) -> None:
    """Raise Conflict if the call waits for something else, or does not wait any more."""
    if pause.kind is not kind:
        if pause.kind is PauseKind.QUESTION:
            raise Conflict("This call waits for answers. Answer its questions instead.")
        raise Conflict("This call waits for an approval. Approve or reject it instead.")
    match pause.state:
        case PauseState.PENDING if pause.expires_at > datetime.now(UTC):
            return
        case PauseState.PENDING | PauseState.EXPIRED:
            raise Conflict(f"This {kind} expired at {pause.expires_at.isoformat(timespec='seconds')}.")
        case PauseState.APPROVED | PauseState.REJECTED | PauseState.ANSWERED:
            assert pause.resolution is not None and pause.resolution.decided_at is not None
            who, when = pause.resolution.decided_by_name or "someone", pause.resolution.decided_at
            raise Conflict(f"Already {pause.state} by {who} at {when.isoformat(timespec='seconds')}.")
        case PauseState.STALE:
            raise Conflict("The effect changed since the first request. Decide on the new approval.")
        case PauseState.CANCELLED:
            raise Conflict(f"The call was cancelled, so this {kind} is closed.")


def require_storable(decision: ApprovalDecision) -> None:
    """Raise BadArguments for a reason that is too long, and for text that PostgreSQL cannot store."""
    if decision.reason is not None and len(decision.reason) > _LONGEST_REASON:
        raise BadArguments({"reason": f"At most {_LONGEST_REASON:,} characters."})
    rule = decision.rule
    texts: dict[str, tuple[str, ...]] = {"reason": (decision.reason or "",)}
    if rule is not None:
        texts |= {
            "rule.tools": rule.tools,
            "rule.paths": rule.paths or (),
            "rule.commands": rule.commands or (),
            "rule.hosts": rule.hosts or (),
            "rule.arguments": tuple(chain.from_iterable((rule.arguments or {}).items())),
            "rule.access": rule.access or (),
        }
    if flaws := {name: UNSTORABLE_TEXT for name, values in texts.items() if not all(map(is_storable_text, values))}:
        raise BadArguments(flaws)


def check_grant(pause: PausedCall, decision: ApprovalDecision, tool: Tool, arguments: str) -> None:
    """Raise BadArguments unless the decision can store its grant: a call of an agent, and a rule that covers it."""
    if pause.agent_id is None:
        raise BadArguments({"scope": "A grant is only possible for calls of an agent."})
    if decision.scope is GrantScope.SESSION and pause.session_id is None:
        raise BadArguments({"scope": "This call has no session. Use the scope `once` or `always`."})
    if pause.approval.rule in ONCE_ONLY:
        raise BadArguments(
            {"scope": "Calls on protected paths, and links out of the workspace, can only be approved `once`."}
        )
    if decision.rule is None:
        raise BadArguments({"rule": "Give the rule to store: the suggested rule or another one."})
    effects = tool.effects(tool.parse(parse_canonical_json(arguments)))
    # Hosts that the agent's definition grants need no rule. What was added since is asked about when the call resumes.
    shown = pause.approval.suggested_rule
    check_rule(decision.rule, tool, replace(effects, hosts=shown.hosts or (), access=shown.access or ()))


def arguments_unchanged(approval: ApprovalRequest, arguments: str) -> bool:
    """Return whether the arguments are byte for byte those that the person saw."""
    return arguments_sha256(arguments).hex() == approval.arguments_sha256


async def check_answers(asked: Iterable[Question], answers: Mapping[str, Any], buttons: Collection[str]) -> None:
    """Raise BadArguments, which names each question whose answer is missing or does not match it."""
    questions = {one.name: one for one in asked}
    if flaw := size_error(answers):
        raise BadArguments({"answers": flaw})
    flaws = {
        f"answers.{name[:100]}": f"There is no question with this name. Questions: {', '.join(questions)}."
        for name in answers
        if name not in questions
    }
    flaws |= {f"answers.{name}": "This answer is missing." for name in questions if name not in answers}
    for name, question in questions.items():
        # A button's value is always valid, even if the schema does not allow it.
        if name not in answers or not _no_button(question, answers[name]):
            continue
        if flaw := await answer_flaw(question.schema, answers[name]):
            flaws[f"answers.{name}"] = flaw
    for name in buttons:
        if flaw := _no_button(questions.get(name), answers.get(name)):
            flaws[f"answered_with_button.{name[:100]}"] = flaw
    if flaws:
        raise BadArguments(flaws)


def _no_button(question: Question | None, answer: Any) -> str | None:
    """Return why this answer cannot come from a button, or None if it can."""
    if question is None or not question.buttons:
        return "This question has no buttons."
    return None if any(button.value == answer for button in question.buttons) else "No button has this value."


def stale_message(paths: list[tuple[WorkspacePath, str]]) -> str:
    """Return the message that names the changed paths and who changed them."""
    path, who = paths[0]
    others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return (
        f"{path.display}{others} was changed by {who} since the approval was requested. Decide on the new approval, "
        "which shows the current content."
    )


def rejection_error(pause: PausedCall) -> ApprovalRejected:
    """Return the error that the caller receives after a rejection."""
    assert pause.resolution is not None
    who, reason = pause.resolution.decided_by_name or "A person", pause.resolution.rejection_reason
    why = f": {reason.rstrip(' .')}" if reason else ", without giving a reason"
    return ApprovalRejected(f"{who} rejected this call{why}. Nothing was changed. Do not repeat it unchanged.")


def cancellation_error(pause: PausedCall, cause: str) -> NotDecided:
    """Return the error of a call that ended before anyone decided or answered; ``cause`` says what happened."""
    if pause.kind is PauseKind.QUESTION:
        return NotDecided(f"{cause} before the question was answered.")
    missed = "this ran" if pause.state is PauseState.APPROVED else "this was approved"
    return NotDecided(f"{cause} before {missed}. Nothing was changed.")


def expiry_error(pause: PausedCall) -> NotDecided:
    """Return the error of a call that nobody decided or answered in time."""
    if pause.kind is PauseKind.QUESTION:
        return NotDecided("The question expired without an answer. Continue without it, or ask again.")
    asked = pause.created_at.isoformat(timespec="minutes")
    return NotDecided(f"The approval requested at {asked} expired. Nothing was changed. Repeat the call if needed.")

"""Payloads of the durable events about calls, approvals and questions."""

from collections.abc import Mapping, Sequence
from typing import Any

from toolcrib.core.approvals import Approval, ApprovalDecision, ApprovalState, GrantRule
from toolcrib.core.errors import error_text
from toolcrib.core.events import EventType
from toolcrib.core.ids import CallId
from toolcrib.core.json_text import json_text
from toolcrib.core.questions import QuestionRequest
from toolcrib.core.tool_calls import Outcome, text_result
from toolcrib.policy.model_results import model_text
from toolcrib.policy.truncation import truncate

# How much of a call's input and result an event carries; the full ones are fetched by the call's id.
_INPUT_BYTES = 16_000
_RESULT_BYTES = 60_000
# Each new subscriber receives past events again: an approval of a thousand files must not be a megabyte each time.
_CHANGES_BYTES = 60_000

EventPayload = dict[str, Any]


def tool_start_event(call_id: CallId, tool: str, arguments: Mapping[str, Any]) -> EventPayload:
    """Return the event of a call that starts."""
    return _event(EventType.TOOL_START, toolId=call_id, toolName=tool, input=truncated_input(arguments))


def tool_result_event(tool: str, outcome: Outcome, *, duration_us: int, isolation: str | None) -> EventPayload:
    """Return the event of a call that ended, with its result as text. Text results stay as they are."""
    result, error, metadata = outcome.result, outcome.error, _result_metadata(outcome)
    failed = error is not None
    if (text_form := text_result(result)) is not None:
        text, metadata, failed = text_form.text, {**text_form.metadata, **metadata}, text_form.is_error
    elif result is None and error is not None:
        text = error_text(error)
    else:
        text, _ = model_text(result)
    if error is not None:
        metadata = {"code": error.code, **metadata}
    bounded = truncate(text, limit_bytes=_RESULT_BYTES)
    if bounded.was_truncated:
        metadata = {**metadata, "truncated": True, "totalBytes": bounded.total_bytes}
    return _event(
        EventType.TOOL_RESULT,
        toolId=outcome.call_id,
        toolName=tool,
        status="error" if failed else "success",
        result=bounded.value,
        metadata=metadata,
        durationMs=round(duration_us / 1000),
        isolation=isolation,
    )


def _result_metadata(outcome: Outcome) -> dict[str, Any]:
    """The outcome's metadata; how its result was truncated for a model is spelled as in other events."""
    metadata = dict(outcome.metadata)
    if truncated := metadata.pop("truncated", None):
        metadata |= {"truncated": True, "totalBytes": truncated["total_bytes"], "offset": truncated["offset"]}
    return metadata


def tool_confirm_event(approval: Mapping[str, Any]) -> EventPayload:
    """Return the event that requests a decision. ``approval`` comes from ``approval_payload``."""
    return _event(EventType.TOOL_CONFIRM, **approval)


def tool_decided_event(approval: Approval, decision: ApprovalDecision, *, by: str | None) -> EventPayload:
    """Return the event of a person's decision."""
    return _event(
        EventType.TOOL_DECIDED,
        toolId=approval.call_id,
        toolName=approval.tool,
        approvalId=approval.id,
        approved=decision.approved,
        state=ApprovalState.ALLOWED if decision.approved else ApprovalState.DENIED,
        scope=decision.scope if decision.approved else None,
        reason=decision.reason,
        decidedBy=by,
    )


def approval_ended_event(approval: Approval, state: ApprovalState, reason: str) -> EventPayload:
    """Return the event of an approval that expired, was withdrawn or is stale."""
    return _event(
        EventType.TOOL_DECIDED,
        toolId=approval.call_id,
        toolName=approval.tool,
        approvalId=approval.id,
        approved=False,
        state=state,
        scope=None,
        reason=reason,
        decidedBy=None,
    )


def approval_payload(approval: Approval) -> dict[str, Any]:
    """Serialize an approval for subscribers."""
    return {
        "toolId": approval.call_id,
        "toolName": approval.tool,
        "input": approval.shown,
        "approvalId": approval.id,
        "agent": approval.agent_name,
        "argumentsSha256": approval.arguments_sha256,
        "changes": _fit_changes(approval.changes),
        "effects": truncate(dict(approval.effects), limit_bytes=_INPUT_BYTES).value,
        "rule": approval.rule,
        "reason": approval.reason,
        "isolation": approval.isolation,
        "offeredRule": rule_payload(approval.offered),
        "replaces": approval.replaces,
        "expiresAt": approval.expires_at,
    }


def rule_payload(rule: GrantRule) -> dict[str, Any]:
    """Serialize a grant rule."""
    return {"tool": rule.tool, "paths": rule.paths, "commands": rule.commands}


def question_event(question: QuestionRequest) -> EventPayload:
    """Return the event that asks a question."""
    return _event(EventType.QUESTION, **question_payload(question))


def question_payload(question: QuestionRequest) -> dict[str, Any]:
    """Serialize a question for subscribers."""
    return {
        "questionId": question.id,
        "toolId": question.call_id,
        "questions": question_items(question),
        "expiresAt": question.expires_at,
    }


def question_items(question: QuestionRequest) -> list[dict[str, Any]]:
    """Serialize the items in the wire format; ``buttons`` only where an item has some."""
    return [
        {"name": item.name, "question": item.question, "schema": item.schema}
        | ({"buttons": [{"label": b.label, "value": b.value} for b in item.buttons]} if item.buttons else {})
        for item in question.items
    ]


def question_ended_event(
    question: QuestionRequest, state: str, answers: Mapping[str, Any] | None, *, by: str | None
) -> EventPayload:
    """Return the event of a question that was answered, expired or withdrawn."""
    return _event(
        EventType.ANSWER,
        questionId=question.id,
        toolId=question.call_id,
        state=state,
        answers=None if answers is None else truncate(dict(answers), limit_bytes=_INPUT_BYTES).value,
        answeredBy=by,
    )


def truncated_input(arguments: Mapping[str, Any]) -> Any:
    """Return the arguments for display, truncated if they are long."""
    return truncate(dict(arguments), limit_bytes=_INPUT_BYTES).value


def _fit_changes(changes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Fit the changes into the limit: drops diffs first (``diff_omitted``), then files, which are counted.

    The row has all of them.
    """
    shown: list[Mapping[str, Any]] = []
    room = _CHANGES_BYTES
    for number, change in enumerate(changes):
        size = len(json_text(change))
        if size > room and "diff" in change:
            change = {key: value for key, value in change.items() if key != "diff"} | {"diff_omitted": True}
            size = len(json_text(change))
        if size > room:
            missing = sum(int(one.get("count", 1)) for one in changes[number:])
            return [*shown, {"path": None, "change": "omitted", "count": missing}]
        shown.append(change)
        room -= size
    return shown


def _event(type_: EventType, **payload: Any) -> EventPayload:
    return {"type": type_, "payload": payload}

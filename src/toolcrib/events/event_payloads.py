"""Payloads of the durable events about calls and their pauses."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from toolcrib.core.errors import CallDenied, error_text
from toolcrib.core.events import EventType
from toolcrib.core.ids import CallId
from toolcrib.core.json_text import json_text
from toolcrib.core.paused_calls import GrantRule, PausedCall, PauseState, Question, Resolution
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
        denied = {"denied": True} if isinstance(error, CallDenied) else {}
        metadata = {"code": error.code, **denied, **metadata}
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


def tool_confirm_event(pause: PausedCall) -> EventPayload:
    """Return the event that requests a decision."""
    return _event(EventType.TOOL_CONFIRM, **approval_payload(pause))


def question_event(pause: PausedCall) -> EventPayload:
    """Return the event that asks questions."""
    return _event(EventType.QUESTION, **question_payload(pause))


def pause_ended_event(pause: PausedCall, *, reason: str | None = None) -> EventPayload:
    """Return the event of a pause that was decided or answered, expired, was cancelled or is stale."""
    resolution = pause.resolution or Resolution()
    answers = resolution.answers
    return _event(
        EventType.PAUSE_ENDED,
        pauseId=pause.id,
        toolId=pause.call_id,
        toolName=pause.tool,
        kind=pause.kind,
        state=pause.state,
        approved=pause.state is PauseState.APPROVED,
        scope=resolution.grant_scope,
        reason=reason,
        answers=None if answers is None else truncate(dict(answers), limit_bytes=_INPUT_BYTES).value,
        decidedBy=resolution.decided_by_name,
        decidedById=resolution.decided_by,
        decidedAt=resolution.decided_at,
    )


def approval_payload(pause: PausedCall) -> dict[str, Any]:
    """Serialize a call that waits for an approval, for subscribers."""
    approval = pause.approval
    return {
        "toolId": pause.call_id,
        "toolName": pause.tool,
        "input": truncated_input(approval.input),
        "pauseId": pause.id,
        "agent": pause.agent_name,
        "argumentsSha256": approval.arguments_sha256,
        "changes": _fit_changes(approval.changes),
        "effects": truncate(dict(approval.effects), limit_bytes=_INPUT_BYTES).value,
        "rule": approval.rule,
        "reason": approval.reason,
        "isolation": approval.isolation,
        "suggestedRule": rule_payload(approval.suggested_rule),
        "otherRules": [rule_payload(rule) for rule in approval.other_rules],
        "replaces": approval.replaces,
        "expiresAt": pause.expires_at,
    }


def rule_payload(rule: GrantRule) -> dict[str, Any]:
    """Serialize a grant rule."""
    return {field.name: getattr(rule, field.name) for field in fields(rule)}


def question_payload(pause: PausedCall) -> dict[str, Any]:
    """Serialize a call that waits for answers, for subscribers."""
    return {
        "pauseId": pause.id,
        "toolId": pause.call_id,
        "questions": question_items(pause.questions),
        "expiresAt": pause.expires_at,
    }


def question_items(questions: Iterable[Question]) -> list[dict[str, Any]]:
    """Serialize the questions in the wire format; ``buttons`` only where a question has some."""
    return [
        {"name": one.name, "question": one.question, "schema": one.schema}
        | ({"buttons": [{"label": b.label, "value": b.value} for b in one.buttons]} if one.buttons else {})
        for one in questions
    ]


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

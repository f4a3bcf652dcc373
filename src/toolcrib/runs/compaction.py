"""Compacts a conversation: replaces older messages by a summary, written by the model or, if that fails, by rule.

Compaction always succeeds: the request for a summary is itself kept small, and the rule needs no model.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing

from toolcrib.core.ids import CallId, MessageId, new_id
from toolcrib.core.json_text import json_text
from toolcrib.core.messages import SystemMessage, UserMessage
from toolcrib.core.model_stream import FinishReason, MessageBuilder
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.core.runs import ModelUsage, SessionMessage
from toolcrib.policy.model_results import CallProgress
from toolcrib.providers.provider import ModelRequest
from toolcrib.providers.provider_registry import ProviderRegistry
from toolcrib.runs.loaded_run import LoadedRun, compactable, usage_of
from toolcrib.runs.model_slots import ModelSlots

_ASKED = (
    "Summarise this part of a conversation between a person and an assistant with tools, for the assistant to go on "
    "from: what the person wants, what was found and done (name files and decisions), and what is open. Be brief."
)
# The share of the context window for the summary request and for the summary itself. Tokens are estimated.
_REQUEST_SHARE, _SUMMARY_SHARE = 0.5, 0.1
_CHARACTERS_PER_TOKEN = 3
# A person compacts also with a model whose window is unknown. Every model that can use tools has one of this size.
_ASSUMED_WINDOW = 32_000
_LONGEST_LINE = 400
_LONGEST_RESULT = 1_500


async def summarize(
    loaded: LoadedRun, providers: ProviderRegistry, slots: ModelSlots, credentials: ProviderCredentials
) -> tuple[SessionMessage, int, ModelUsage]:
    """Return the summary, the position of the last message that it replaces, and what the model has used for it.

    Raises:
        NoModelSlot: The credential has no room for a request.
    """
    up_to = compactable(loaded.messages)
    assert up_to is not None
    older = [one for one in loaded.messages if one.position <= up_to or one.role == "summary"]
    room = int(_window(loaded) * _SUMMARY_SHARE * _CHARACTERS_PER_TOKEN)
    text, used = await _by_the_model(loaded, older, providers, slots, credentials)
    how = "model"
    if not text.strip():
        text, how = _by_rule(older, loaded.calls), "rule"
    ids = [str(one.id) for one in older]
    summary = SessionMessage(
        id=MessageId(new_id()),
        position=up_to,
        run_id=loaded.run.id,
        role="summary",
        content=_cut(text, room),
        metadata={"summarised_by": how, "messages": ids},
    )
    return summary, up_to, used


async def _by_the_model(
    loaded: LoadedRun,
    older: Sequence[SessionMessage],
    providers: ProviderRegistry,
    slots: ModelSlots,
    credentials: ProviderCredentials,
) -> tuple[str, ModelUsage]:
    rules = loaded.agent.rules
    assert rules.provider and rules.model
    history = _cut(_render_history(older, loaded.calls), int(_window(loaded) * _REQUEST_SHARE * _CHARACTERS_PER_TOKEN))
    request = ModelRequest(
        rules.model,
        (SystemMessage(_ASKED), UserMessage(history)),
        max_output_tokens=max(256, int(_window(loaded) * _SUMMARY_SHARE)),
        wire=rules.wire,
    )
    reception = MessageBuilder()
    async with slots.hold(loaded.run, rules.provider, credentials) as pause:
        events = providers.stream_turn(rules.provider, request, credentials, seconds=rules.turn_timeout, pause=pause)
        async with aclosing(events):
            async for event in events:
                reception.add(event)
    is_summary = reception.finish is not None and reception.finish.reason is not FinishReason.REFUSAL
    # A summary that was cut or refused has its price too.
    return reception.message().text if is_summary else "", usage_of(loaded, reception.usage)


def _window(loaded: LoadedRun) -> int:
    return loaded.window or _ASSUMED_WINDOW


def _by_rule(older: Sequence[SessionMessage], calls: Mapping[CallId, CallProgress]) -> str:
    """Summarize without a model: what the person said, which tools were called and how they ended, one line each."""
    lines: list[str] = []
    for one in older:
        match one.role:
            case "user":
                lines.append(f"The person said: {_cut(one.content, _LONGEST_LINE)}{_attached(one)}")
            case "summary":
                lines.append(one.content)
            case _ if one.content.strip():
                lines.append(f"You said: {_cut(one.content, _LONGEST_LINE)}")
        for call_id, call in one.requested:
            text, failed = calls[call_id].result_text if call_id in calls else ("", True)
            done = f"{call['function']['name']} {_cut(call['function']['arguments'], _LONGEST_LINE)}"
            how = "failed" if failed else "done"
            lines.append(f"You called {done}: {how}, {_cut(text, 120)!r} (call {call_id})")
    return "\n".join(lines)


def _render_history(older: Sequence[SessionMessage], calls: Mapping[CallId, CallProgress]) -> str:
    parts: list[str] = []
    for one in older:
        parts.append(f"[{one.role}] {one.content}{_attached(one)}")
        for call_id, call in one.requested:
            text, _ = calls[call_id].result_text if call_id in calls else ("", True)
            arguments = _cut(json_text(call["function"]["arguments"]), _LONGEST_RESULT)
            parts.append(f"[call {call['function']['name']} {arguments}] {_cut(text, _LONGEST_RESULT)}")
    return "\n".join(parts)


def _attached(one: SessionMessage) -> str:
    """Return the names of the files that a message brings: the model sees them no longer, and may read them again."""
    paths = [str(file.get("path")) for file in (one.metadata or {}).get("attachments") or ()]
    return f" [attached: {', '.join(paths)}]" if paths else ""


def _cut(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    half = max(1, room // 2 - 10)
    return f"{text[:half]} [… {len(text) - 2 * half:,} characters …] {text[-half:]}"

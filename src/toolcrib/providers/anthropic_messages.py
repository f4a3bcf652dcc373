"""The wire format of Anthropic's Messages API: request bodies and stream events. Makes no requests."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolcrib.core.messages import (
    AssistantMessage,
    Attachment,
    Message,
    ModelToolCall,
    ProviderMetadata,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)
from toolcrib.core.model_options import Effort
from toolcrib.core.model_stream import (
    FinishReason,
    StreamEvent,
    StreamFinish,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
)
from toolcrib.providers.model_catalog import ModelFacts, model_facts
from toolcrib.providers.provider import ModelRequest, ToolChoice, response_error, stream_error
from toolcrib.providers.stream_reader import TextJoiner, count_of, parsed, text_of
from toolcrib.providers.tool_call_stream import AnswerReader, PartialToolCall
from toolcrib.providers.wire_history import ToolNameEncoder, arguments_object, messages_to_send, noted, wire_id

# The API requires a limit; every listed model can write this much.
DEFAULT_MAX_TOKENS = 8_192
# Every model with adaptive thinking can write this much.
ADAPTIVE_MAX_TOKENS = 32_000
_LEAST_THINKING = 1_024
# For models that take a budget instead of an effort.
_BUDGETS: Mapping[Effort | None, int] = {Effort.LOW: 4_000, Effort.MEDIUM: 10_000, Effort.HIGH: 24_000}
_CACHED = {"type": "ephemeral"}

_REASONS: Mapping[str, FinishReason] = {
    "tool_use": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.REFUSAL,
}
_CHOICES: Mapping[ToolChoice, str] = {ToolChoice.AUTO: "auto", ToolChoice.REQUIRED: "any", ToolChoice.NONE: "none"}
_STATUS_OF: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def request_body(request: ModelRequest, names: ToolNameEncoder, *, provider: str) -> dict[str, Any]:
    """Return the request body in Anthropic's format."""
    messages = messages_to_send(request)
    # System messages have their own field.
    system = "\n\n".join(message.text for message in messages if isinstance(message, SystemMessage))
    rest = [message for message in messages if not isinstance(message, SystemMessage)]
    turns = _turns(rest, names, provider, request.model)
    facts = model_facts("anthropic", request.model)
    thinking = _thinking(request, facts, turns)
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_output_tokens or _default_max_tokens(facts, thinking),
        "messages": turns,
        "stream": True,
        # Marks the end of the conversation for the cache: the next request repeats it, which then costs less.
        "cache_control": _CACHED,
    }
    if system:
        body["system"] = [{"type": "text", "text": system}]
    if request.tools:
        body["tools"] = [
            {
                "name": names.encode(tool.name),
                "description": tool.description,
                "input_schema": {"type": "object", **tool.input_schema},
            }
            for tool in request.tools
        ]
        # A model that always thinks cannot be forced to call a tool.
        is_forced = request.tool_choice is ToolChoice.REQUIRED and facts.thinking == "always"
        body["tool_choice"] = {"type": _CHOICES[ToolChoice.AUTO if is_forced else request.tool_choice]}
    # Marks the end of what all conversations of this agent share. Tools come before the system prompt.
    if stable := body.get("system") or body.get("tools"):
        stable[-1]["cache_control"] = _CACHED
    if thinking:
        body["thinking"] = thinking
        # The limit includes thinking, so it must be above the thinking budget.
        body["max_tokens"] += thinking.get("budget_tokens", 0)
    if request.effort not in (None, Effort.NONE) and facts.effort_field:
        body["output_config"] = {"effort": request.effort}
    # Rejected together with thinking, and by Claude always. Other servers with this API accept it.
    is_thinking = thinking.get("type", "disabled") != "disabled"
    if request.temperature is not None and facts.temperature and not is_thinking:
        body["temperature"] = request.temperature
    return body


def _thinking(request: ModelRequest, facts: ModelFacts, turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how the model is asked to think; empty to leave it to the model."""
    if facts.thinking == "always":
        # It thinks also if not asked. Without this, what it writes between its calls would be empty.
        return {"type": "adaptive", "display": "summarized"}
    if request.effort is None and not request.thinking_tokens:
        return {}
    if facts.thinking == "adaptive":
        if request.effort is Effort.NONE:
            return {"type": "disabled"}
        # The newest models omit the text of thinking unless asked for it.
        return {"type": "adaptive", "display": "summarized"}
    budget = request.thinking_tokens or _BUDGETS.get(request.effort, 0)
    if not budget or request.effort is Effort.NONE or not _may_think(turns):
        return {}
    return {"type": "enabled", "budget_tokens": max(_LEAST_THINKING, budget)}


def _default_max_tokens(facts: ModelFacts, thinking: Mapping[str, Any]) -> int:
    # Adaptive thinking counts, is as long as the model wants, and newer models do it also if not asked.
    is_adaptive = facts.thinking in ("adaptive", "always") and thinking.get("type") != "disabled"
    return ADAPTIVE_MAX_TOKENS if is_adaptive else DEFAULT_MAX_TOKENS


class AnthropicEventReader(AnswerReader):
    """Parses the events of one answer. Blocks are identified by their index, and may end in any order."""

    def __init__(self, request: ModelRequest, names: ToolNameEncoder, *, provider: str) -> None:
        super().__init__(request, names, provider=provider)
        self._blocks: dict[int, _ContentBlock] = {}
        self._usage: dict[str, Any] = {}

    def read(self, data: bytes) -> Iterator[StreamEvent]:
        event = parsed(data)
        match event.get("type"):
            case "message_start":
                self._usage.update(event["message"].get("usage") or {})
                yield from self._start(event["message"].get("id"), event["message"].get("model"))
            case "content_block_start":
                yield from self._start(None, None)
                yield from self._begin(event["index"], event["content_block"])
            case "content_block_delta":
                yield from self._go_on(event["index"], event["delta"])
            case "content_block_stop":
                block = self._blocks.get(event["index"])
                if block and block.call:
                    yield from self._give_complete(block, block.call)
                    yield from self._calls.end_if_complete(block.call)
            case "message_delta":
                yield from self._start(None, None)
                if stop_reason := event["delta"].get("stop_reason"):
                    self._finish_reason = _REASONS.get(stop_reason, FinishReason.STOP)
                # Null if there is nothing new.
                self._usage.update(
                    {key: value for key, value in (event.get("usage") or {}).items() if value is not None}
                )
                yield _usage(self._usage)
            case "message_stop":
                yield from self._start(None, None)
                self.done = True
            case "error":
                raise _provider_error(event.get("error"))

    def finish(self) -> Iterator[StreamEvent]:
        if not self.done:
            raise stream_error("The response ended before the model had finished.")
        reason = self._calls.reason(self._finish_reason or FinishReason.STOP)
        for block in self._blocks.values():
            if block.call:
                yield from self._give_complete(block, block.call)
        yield from self._calls.end_all(reason)
        yield StreamFinish(reason, self._note())

    def _begin(self, index: int, started: Mapping[str, Any]) -> Iterator[StreamEvent]:
        if index in self._blocks:
            raise stream_error(f"The response starts block {index} twice.")
        block = self._blocks[index] = _ContentBlock(text_of(started.get("type")))
        match block.kind:
            case "text":
                yield from block.text(started.get("text"))
            case "thinking":
                yield from block.thought(started.get("thinking"))
                block.signature = text_of(started.get("signature"))
            case "redacted_thinking":
                block.redacted = text_of(started.get("data"))
            case "tool_use":
                block.call = self._calls.begin(text_of(started.get("id")))
                block.whole_input = started.get("input") or {}
                yield from self._calls.name(block.call, text_of(started.get("name")))

    def _go_on(self, index: int, delta: Mapping[str, Any]) -> Iterator[StreamEvent]:
        block = self._blocks.get(index)
        if block is None:
            raise stream_error(f"The response continues block {index}, which it never started.")
        match delta.get("type"):
            case "text_delta":
                yield from block.text(delta.get("text"))
            case "thinking_delta":
                yield from block.thought(delta.get("thinking"))
            case "signature_delta":
                block.signature += text_of(delta.get("signature"))
            case "input_json_delta" if block.call:
                yield from self._calls.add(block.call, delta.get("partial_json"))

    def _give_complete(self, block: "_ContentBlock", call: PartialToolCall) -> Iterator[StreamEvent]:
        """Emit the whole input of a call: some servers send it at the start of the block, without deltas."""
        if block.whole_input and not call.parts:
            yield from self._calls.add(call, json.dumps(block.whole_input))

    def _note(self) -> ProviderMetadata | None:
        """Return the order of the blocks with the signatures of thinking. The texts themselves are in the message."""
        blocks = [block.noted() for _, block in sorted(self._blocks.items())]
        signed = any("signature" in block or "redacted" in block for block in blocks)
        return self._metadata({"blocks": blocks} if signed else {})


class _ContentBlock:
    """One content block while it is streamed."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.joined = TextJoiner()
        self.length = 0
        self.signature = ""
        self.redacted = ""
        self.call: PartialToolCall | None = None
        self.whole_input: Mapping[str, Any] = {}

    def text(self, piece: object) -> Iterator[StreamEvent]:
        if text := self.joined.take(piece):
            self.length += len(text)
            yield TextDelta(text)

    def thought(self, piece: object) -> Iterator[StreamEvent]:
        if text := self.joined.take(piece):
            self.length += len(text)
            yield ThinkingDelta(text)

    def noted(self) -> dict[str, Any]:
        match self.kind:
            case "thinking":
                return {"thinking": self.length, "signature": self.signature}
            case "redacted_thinking":
                return {"redacted": self.redacted}
            case "tool_use" if self.call:
                return {"call": self.call.index}
        return {"text": self.length}


def _turns(messages: Sequence[Message], names: ToolNameEncoder, provider: str, model: str) -> list[dict[str, Any]]:
    """Return alternating turns that start and end with the user's. Tool results come first in a user turn."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = _blocks(message, names, provider, model)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"].extend(blocks)
        else:
            turns.append({"role": role, "content": blocks})
    if not turns or turns[0]["role"] != "user":
        turns.insert(0, _said_by_user("(The conversation begins here.)"))
    if turns[-1]["role"] != "user":
        turns.append(_said_by_user("Continue."))
    return turns


def _blocks(message: Message, names: ToolNameEncoder, provider: str, model: str) -> list[dict[str, Any]]:
    match message:
        case AssistantMessage():
            return _assistant_blocks(message, names, provider, model)
        case ToolResultMessage():
            return [_result(message)]
        case UserMessage(text, attachments):
            return [*map(_attached, attachments), *([{"type": "text", "text": text}] if text else [])]
        case SystemMessage(text):
            return [{"type": "text", "text": text}]


def _said_by_user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def _result(message: ToolResultMessage) -> dict[str, Any]:
    content: str | list[dict[str, Any]] = message.text
    if message.attachments:
        content = [{"type": "text", "text": message.text}, *map(_attached, message.attachments)]
    block = {"type": "tool_result", "tool_use_id": wire_id(message.call_id), "content": content}
    return block | ({"is_error": True} if message.is_error else {})


def _attached(one: Attachment) -> dict[str, Any]:
    source = {"type": "base64", "media_type": one.media_type, "data": one.base64}
    return {"type": "image", "source": source} if one.is_image else {"type": "document", "source": source}


def _assistant_blocks(
    message: AssistantMessage, names: ToolNameEncoder, provider: str, model: str
) -> list[dict[str, Any]]:
    if stored := noted(message, provider, model).get("blocks"):
        blocks = _as_noted(message, stored, names)
        if blocks is not None:
            return blocks
    text = [{"type": "text", "text": message.text}] if message.text else []
    return [*text, *(_tool_use(call, names) for call in message.tool_calls)]


def _as_noted(
    message: AssistantMessage, stored: Sequence[Mapping[str, Any]], names: ToolNameEncoder
) -> list[dict[str, Any]] | None:
    """Return the blocks as received, including thinking and signatures; None if the message was changed since."""
    calls = [block["call"] for block in stored if "call" in block]
    if (
        sum(block.get("text", 0) for block in stored) != len(message.text)
        or sum(block.get("thinking", 0) for block in stored) != len(message.thinking)
        or sorted(calls) != list(range(len(message.tool_calls)))
    ):
        return None
    blocks: list[dict[str, Any]] = []
    text_at = thinking_at = 0
    for block in stored:
        match block:
            case {"thinking": length, "signature": signature}:
                thought = message.thinking[thinking_at : thinking_at + length]
                blocks.append({"type": "thinking", "thinking": thought, "signature": signature})
                thinking_at += length
            case {"redacted": data}:
                blocks.append({"type": "redacted_thinking", "data": data})
            case {"call": number}:
                blocks.append(_tool_use(message.tool_calls[number], names))
            case {"text": length}:
                text = message.text[text_at : text_at + length]
                # An empty text is rejected.
                blocks.extend([{"type": "text", "text": text}] if text.strip() else [])
                text_at += length
    return blocks


def _tool_use(call: ModelToolCall, names: ToolNameEncoder) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": wire_id(call.id),
        "name": names.encode(call.name),
        "input": arguments_object(call),
    }


def _may_think(turns: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether thinking is possible: while results are sent, the turn of their calls must begin with it."""
    if turns[-1]["content"][0]["type"] != "tool_result":
        return True
    return bool(turns[-2]["content"][0]["type"] in ("thinking", "redacted_thinking"))


def _usage(usage: Mapping[str, Any]) -> TokenUsage:
    cached = count_of(usage.get("cache_read_input_tokens"))
    written = count_of(usage.get("cache_creation_input_tokens"))
    return TokenUsage(
        count_of(usage.get("input_tokens")) + cached + written,
        count_of(usage.get("output_tokens")),
        cached_input_tokens=cached,
        cache_write_tokens=written,
    )


def _provider_error(error: Any) -> Exception:
    if not isinstance(error, Mapping):
        return stream_error("The provider ended the response with an error.")
    return response_error(
        _STATUS_OF.get(str(error.get("type")), 500), text_of(error.get("message")) or json.dumps(error)
    )

"""The wire format of OpenAI's Chat Completions, which many servers imitate in their own ways. Makes no requests."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from toolcrib.core.model_stream import (
    FinishReason,
    StreamEvent,
    StreamFinish,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
)
from toolcrib.providers.provider import ModelRequest, response_error, stream_error
from toolcrib.providers.stream_reader import count_of, parsed, text_of
from toolcrib.providers.tool_call_stream import AnswerReader, PartialToolCall
from toolcrib.providers.wire_history import ToolNameEncoder, messages_to_send, noted, object_text, wire_id

_REASONS: Mapping[str, FinishReason] = {
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.REFUSAL,
}
# Thinking is not part of OpenAI's format. Servers that send it use one of these fields, and some want it back.
_THINKING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
# Must be returned unchanged to the server that sent it: signed thinking of OpenRouter and Copilot.
_OPAQUE_FIELDS = ("reasoning_details", "reasoning_opaque")


def request_body(
    request: ModelRequest, names: ToolNameEncoder, *, provider: str, max_tokens_field: str
) -> dict[str, Any]:
    """Return the request body in OpenAI's format."""
    messages = _after_results(messages_to_send(request))
    asked = max((at for at, message in enumerate(messages) if isinstance(message, UserMessage)), default=-1)
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [
            # Servers that want thinking back want it while calls are being answered; some reject it in older turns.
            _message(message, names, noted(message, provider, request.model), with_thinking=at > asked)
            for at, message in enumerate(messages)
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = names.functions(request.tools)
        body["tool_choice"] = request.tool_choice.value
    if request.max_output_tokens is not None:
        body[max_tokens_field] = request.max_output_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.effort is not None:
        body["reasoning_effort"] = request.effort.value
    return body


class ChatCompletionReader(AnswerReader):
    """Parses the chunks of one answer."""

    def __init__(self, request: ModelRequest, names: ToolNameEncoder, *, provider: str) -> None:
        super().__init__(request, names, provider=provider)
        self._by_index: dict[int, PartialToolCall] = {}
        self._by_id: dict[str, PartialToolCall] = {}
        self._refusal = False
        self._thinking_field = ""
        self._opaque: dict[str, Any] = {}

    def read(self, data: bytes) -> Iterator[StreamEvent]:
        if data.strip() == b"[DONE]":
            self.done = True
            return
        chunk = parsed(data)
        if error := chunk.get("error"):
            raise _provider_error(error)
        if "choices" in chunk:
            yield from self._start(chunk.get("id"), chunk.get("model"))
        for choice in chunk.get("choices") or ():
            if not choice.get("index"):
                yield from self._choice(choice)
        if usage := chunk.get("usage"):
            yield _usage(usage)

    def finish(self) -> Iterator[StreamEvent]:
        if self._finish_reason is None:
            raise stream_error("The response ended before the model had finished.")
        reason = self._calls.reason(FinishReason.REFUSAL if self._refusal else self._finish_reason)
        yield from self._calls.end_all(reason)
        yield StreamFinish(reason, self._note())

    def _choice(self, choice: Mapping[str, Any]) -> Iterator[StreamEvent]:
        delta = choice.get("delta") or {}
        if len(delta) == 1 and not choice.get("finish_reason") and (text := self._text.take(delta.get("content"))):
            # The common case: a chunk with text only.
            yield TextDelta(text)
            return
        for field in _THINKING_FIELDS:
            if text := self._thinking.take(delta.get(field)):
                self._thinking_field = field
                yield ThinkingDelta(text)
                # Some send the same text in two fields.
                break
        yield from self._content(delta.get("content"))
        if text := self._text.take(delta.get("refusal")):
            self._refusal = True
            yield TextDelta(text)
        for field in _OPAQUE_FIELDS:
            if value := delta.get(field):
                self._keep(field, value)
        for piece in delta.get("tool_calls") or ():
            yield from self._call(piece)
        if stop_reason := choice.get("finish_reason"):
            if stop_reason == "error":
                raise stream_error("The provider ended the response with an error.")
            self._finish_reason = _REASONS.get(stop_reason, FinishReason.STOP)

    def _content(self, content: object) -> Iterator[StreamEvent]:
        """Parse the content: text or, from some servers, a list of parts that may contain thinking."""
        if text := self._text.take(content):
            yield TextDelta(text)
        for part in content if isinstance(content, list) else ():
            if text := self._text.take(part.get("text")):
                yield TextDelta(text)
            for thought in part.get("thinking") or ():
                if text := self._thinking.take(thought.get("text")):
                    yield ThinkingDelta(text)

    def _call(self, piece: Mapping[str, Any]) -> Iterator[StreamEvent]:
        function = piece.get("function") or {}
        name, call_id = text_of(function.get("name")), text_of(piece.get("id"))
        call = self._find(piece.get("index"), call_id, name)
        if extra := piece.get("extra_content"):
            call.extra = extra
        yield from self._calls.name(call, name)
        arguments = function.get("arguments")
        # Some servers send an object instead of its JSON text.
        yield from self._calls.add(call, json.dumps(arguments) if isinstance(arguments, dict) else arguments)

    def _find(self, index: object, call_id: str, name: str) -> PartialToolCall:
        """Return the call that a chunk belongs to: by its index, otherwise by its id, otherwise the newest."""
        if isinstance(index, int):
            call = self._by_index.get(index)
            # Some give every call the same index. A new id alone starts no call: some make up another id for every
            # chunk.
            another = call and call.name and name and call_id and call_id != call.wire_id
            if call is None or another:
                call = (self._by_id.get(call_id) if another else None) or self._begin(call_id)
                self._by_index[index] = call
            return call
        if call_id in self._by_id:
            return self._by_id[call_id]
        newest = self._calls.last()
        return self._begin(call_id) if call_id or name or newest is None else newest

    def _begin(self, call_id: str) -> PartialToolCall:
        call = self._calls.begin(call_id)
        if call_id:
            self._by_id[call_id] = call
        return call

    def _keep(self, field: str, value: Any) -> None:
        if isinstance(value, list):
            self._opaque.setdefault(field, []).extend(value)
        else:
            self._opaque[field] = self._opaque.get(field, "") + text_of(value)

    def _note(self) -> ProviderMetadata | None:
        data = dict(self._opaque)
        if self._thinking_field:
            data["thinking_field"] = self._thinking_field
        if extras := {str(at): call.extra for at, call in enumerate(self._calls.ended()) if call.extra}:
            data["call_extras"] = extras
        return self._metadata(data)


def _message(
    message: Message, names: ToolNameEncoder, stored: Mapping[str, Any], *, with_thinking: bool
) -> dict[str, Any]:
    match message:
        case UserMessage(text, attachments) if attachments:
            return {"role": message.role, "content": _parts(text, attachments)}
        case SystemMessage(text) | UserMessage(text):
            return {"role": message.role, "content": text}
        case ToolResultMessage(call_id, text):
            return {"role": "tool", "tool_call_id": wire_id(call_id), "content": text}
        case AssistantMessage(text, thinking, calls):
            wire_message: dict[str, Any] = {"role": "assistant", "content": text or None}
            if with_thinking and thinking and stored.get("thinking_field") in _THINKING_FIELDS:
                wire_message[stored["thinking_field"]] = thinking
            wire_message |= {field: stored[field] for field in _OPAQUE_FIELDS if field in stored}
            if calls:
                wire_message["tool_calls"] = _tool_calls(calls, names, stored.get("call_extras", {}))
            return wire_message


def _after_results(messages: Sequence[Message]) -> list[Message]:
    """Move what results bring to a message of its own after them: a result is only text on this wire."""
    moved: list[Message] = []
    waiting: list[Attachment] = []
    for message in messages:
        if waiting and not isinstance(message, ToolResultMessage):
            moved.append(_shown(waiting))
            waiting = []
        if isinstance(message, ToolResultMessage) and message.attachments:
            waiting.extend(message.attachments)
            message = replace(message, attachments=())
        moved.append(message)
    return [*moved, _shown(waiting)] if waiting else moved


def _shown(attachments: Sequence[Attachment]) -> UserMessage:
    names = ", ".join(one.name for one in attachments)
    return UserMessage(f"[Files of the results above: {names}]", tuple(attachments))


def _parts(text: str, attachments: Sequence[Attachment]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": one.data_url}}
        if one.is_image
        else {"type": "file", "file": {"filename": one.name, "file_data": one.data_url}}
        for one in attachments
    ]
    return [*parts, *([{"type": "text", "text": text}] if text else [])]


def _tool_calls(
    calls: Sequence[ModelToolCall], names: ToolNameEncoder, extras: Mapping[str, Any]
) -> list[dict[str, Any]]:
    return [
        {
            "id": wire_id(call.id),
            "type": "function",
            "function": {"name": names.encode(call.name), "arguments": object_text(call)},
        }
        | ({"extra_content": extras[str(number)]} if str(number) in extras else {})
        for number, call in enumerate(calls)
    ]


def _usage(usage: Mapping[str, Any]) -> TokenUsage:
    details = usage.get("prompt_tokens_details") or {}
    return TokenUsage(
        count_of(usage.get("prompt_tokens")),
        count_of(usage.get("completion_tokens")),
        cached_input_tokens=count_of(details.get("cached_tokens")),
        cache_write_tokens=count_of(details.get("cache_write_tokens")),
    )


def _provider_error(error: Any) -> Exception:
    """Convert an error that arrives within the stream, after a success status."""
    if not isinstance(error, Mapping):
        return response_error(0, str(error))
    code = error.get("code")
    status = code if isinstance(code, int) else _STATUS_OF.get(str(code or error.get("type")), 500)
    return response_error(status, text_of(error.get("message")) or json.dumps(error))


_STATUS_OF: Mapping[str, int] = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 402,
    "invalid_api_key": 401,
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "exceed_context_size_error": 400,
}

"""The wire format of OpenAI's Responses API: request bodies and stream events. Makes no requests.

Nothing is stored at the provider. The model's reasoning comes back encrypted, is stored with its message, and is sent
again with the next request.
"""

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
from toolcrib.core.model_stream import (
    FinishReason,
    StreamEvent,
    StreamFinish,
    TextDelta,
    ThinkingDelta,
    TokenUsage,
)
from toolcrib.providers.provider import ModelRequest, response_error, stream_error
from toolcrib.providers.stream_reader import TextJoiner, count_of, parsed, text_of
from toolcrib.providers.tool_call_stream import AnswerReader, PartialToolCall
from toolcrib.providers.wire_history import ToolNameEncoder, messages_to_send, noted, object_text, wire_id

_INCOMPLETE: Mapping[str, FinishReason] = {
    "max_output_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.REFUSAL,
}
_STATUS_OF: Mapping[str, int] = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 402,
    "invalid_api_key": 401,
    "model_not_found": 404,
    "server_error": 500,
    "server_is_overloaded": 503,
    "slow_down": 503,
}
# What goes back of a reasoning item: the rest describes its state at the provider.
_REASONING_FIELDS = ("type", "id", "summary", "content", "encrypted_content")


def request_body(request: ModelRequest, names: ToolNameEncoder, *, provider: str, reasons: bool) -> dict[str, Any]:
    """Return the request body in the format of the Responses API.

    Args:
        reasons: Whether it is a reasoning model. Others reject fields about reasoning.
    """
    messages = messages_to_send(request)
    instructions = "\n\n".join(message.text for message in messages if isinstance(message, SystemMessage))
    body: dict[str, Any] = {
        "model": request.model,
        "input": [item for message in messages for item in _items(message, names, provider, request.model)],
        "stream": True,
        "store": False,
    }
    if instructions:
        body["instructions"] = instructions
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": names.encode(tool.name),
                "description": tool.description,
                "parameters": dict(tool.input_schema),
                # By default schemas must have the form of structured outputs, which tools' schemas do not have.
                "strict": False,
            }
            for tool in request.tools
        ]
        body["tool_choice"] = request.tool_choice.value
    if request.max_output_tokens is not None:
        body["max_output_tokens"] = request.max_output_tokens
    if reasons:
        body["include"] = ["reasoning.encrypted_content"]
        effort = {"effort": request.effort.value} if request.effort is not None else {}
        body["reasoning"] = {"summary": "auto", **effort}
    if request.temperature is not None:
        body["temperature"] = request.temperature
    return body


class ResponsesEventReader(AnswerReader):
    """Parses the events of one answer.

    Items are identified by their index, since some servers change their ids; or by their id, since llama.cpp sends no
    index.
    """

    def __init__(self, request: ModelRequest, names: ToolNameEncoder, *, provider: str) -> None:
        super().__init__(request, names, provider=provider)
        self._items: dict[int | str, _OutputItem] = {}
        self._refusal = False
        self._has_thought = False

    def read(self, data: bytes) -> Iterator[StreamEvent]:
        if data.strip() == b"[DONE]":
            return
        event = parsed(data)
        match event.get("type"):
            case "response.created" | "response.in_progress" | "response.queued":
                yield from self._start(event["response"].get("id"), event["response"].get("model"))
            case "response.output_item.added":
                yield from self._start(None, None)
                yield from self._begin(_place(event), event["item"])
            case "response.output_text.delta":
                yield from self._text_piece(event)
            case "response.refusal.delta":
                self._refusal = True
                yield from self._text_piece(event)
            case "response.reasoning_summary_part.added":
                yield from self._paragraph(self._item(event))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                yield from self._thought(self._item(event), event.get("delta"))
            case "response.function_call_arguments.delta":
                item = self._item(event)
                if item.call:
                    yield from self._calls.add(item.call, event.get("delta"))
            case "response.output_item.done":
                yield from self._end(self._item(event), event["item"])
            case "response.completed" | "response.incomplete":
                yield from self._complete(event["response"])
            case "response.failed":
                raise _provider_error(event["response"].get("error"))
            case "error":
                raise _provider_error(event.get("error") or event)

    def finish(self) -> Iterator[StreamEvent]:
        if self._finish_reason is None:
            raise stream_error("The response ended before the model had finished.")
        reason = self._calls.reason(FinishReason.REFUSAL if self._refusal else self._finish_reason)
        yield from self._calls.end_all(reason)
        yield StreamFinish(reason, self._note())

    def _item(self, event: Mapping[str, Any]) -> "_OutputItem":
        place = _place(event)
        item = self._items.get(place)
        if item is None:
            raise stream_error(f"The response continues item {place!r}, which it never started.")
        return item

    def _begin(self, place: int | str, started: Mapping[str, Any]) -> Iterator[StreamEvent]:
        if place in self._items:
            raise stream_error(f"The response starts item {place!r} twice.")
        position = place if isinstance(place, int) else len(self._items)
        item = self._items[place] = _OutputItem(text_of(started.get("type")), position)
        if item.kind == "function_call":
            item.call = self._calls.begin(text_of(started.get("call_id")))
            yield from self._calls.name(item.call, text_of(started.get("name")))

    def _text_piece(self, event: Mapping[str, Any]) -> Iterator[StreamEvent]:
        item = self._item(event)
        if text := item.joined.take(event.get("delta")):
            item.length += len(text)
            yield TextDelta(text)

    def _paragraph(self, item: "_OutputItem") -> Iterator[StreamEvent]:
        """Separate the parts of a summary, each of which is a paragraph."""
        if self._has_thought:
            yield from self._thought(item, "\n\n")

    def _thought(self, item: "_OutputItem", piece: object) -> Iterator[StreamEvent]:
        if text := item.joined.take(piece):
            self._has_thought = True
            yield ThinkingDelta(text)

    def _end(self, item: "_OutputItem", ended: Mapping[str, Any]) -> Iterator[StreamEvent]:
        if item.call:
            # Some servers send the arguments only here.
            if not item.call.parts:
                yield from self._calls.add(item.call, ended.get("arguments"))
            yield from self._calls.end_if_complete(item.call)
        elif item.kind == "reasoning":
            item.reasoning = {key: ended[key] for key in _REASONING_FIELDS if ended.get(key) is not None}
        elif item.kind == "message":
            item.phase = text_of(ended.get("phase"))
            if not item.length:
                yield from self._whole_text(item, ended.get("content") or ())

    def _whole_text(self, item: "_OutputItem", content: Sequence[Mapping[str, Any]]) -> Iterator[StreamEvent]:
        """Emit a text that was not streamed."""
        for part in content:
            self._refusal = self._refusal or part.get("type") == "refusal"
            if text := item.joined.take(part.get("text") or part.get("refusal")):
                item.length += len(text)
                yield TextDelta(text)

    def _complete(self, response: Mapping[str, Any]) -> Iterator[StreamEvent]:
        yield from self._start(response.get("id"), response.get("model"))
        reason = (response.get("incomplete_details") or {}).get("reason")
        self._finish_reason = _INCOMPLETE.get(reason, FinishReason.STOP) if reason else FinishReason.STOP
        self.done = True
        if usage := response.get("usage"):
            yield _usage(usage)

    def _note(self) -> ProviderMetadata | None:
        """Return the order of the items with the reasoning. The texts themselves are in the message."""
        items = [item.noted() for item in sorted(self._items.values(), key=lambda item: item.position)]
        items = [item for item in items if item]
        worth = any("reasoning" in item or "phase" in item for item in items)
        return self._metadata({"items": items} if worth else {})


class _OutputItem:
    """One output item while it is streamed."""

    def __init__(self, kind: str, position: int) -> None:
        self.kind = kind
        self.position = position
        self.joined = TextJoiner()
        self.length = 0
        self.phase = ""
        self.reasoning: dict[str, Any] = {}
        self.call: PartialToolCall | None = None

    def noted(self) -> dict[str, Any]:
        if self.call:
            return {"call": self.call.index}
        if self.kind == "message":
            return {"text": self.length} | ({"phase": self.phase} if self.phase else {})
        # Without its content it is only a name of something that the provider has not stored.
        has_content = "encrypted_content" in self.reasoning or "content" in self.reasoning
        return {"reasoning": self.reasoning} if has_content else {}


def _place(event: Mapping[str, Any]) -> int | str:
    """Return what identifies an event's item: its index, or its id."""
    if isinstance(index := event.get("output_index"), int):
        return index
    place = text_of(event.get("item_id")) or text_of((event.get("item") or {}).get("id"))
    if not place:
        raise stream_error("The response has an event without an item.")
    return place


def _items(message: Message, names: ToolNameEncoder, provider: str, model: str) -> list[dict[str, Any]]:
    match message:
        case SystemMessage():
            return []
        case UserMessage(text, attachments):
            return [{"role": "user", "content": _content(text, attachments)}]
        case ToolResultMessage(call_id, text, _, attachments):
            output = _content(text, attachments)
            return [{"type": "function_call_output", "call_id": wire_id(call_id), "output": output}]
        case AssistantMessage():
            stored = noted(message, provider, model).get("items") or ()
            return _as_noted(message, stored, names) or _plain_items(message, names)


def _content(text: str, attachments: Sequence[Attachment]) -> str | list[dict[str, Any]]:
    if not attachments:
        return text
    parts = [
        {"type": "input_image", "image_url": one.data_url, "detail": "auto"}
        if one.is_image
        else {"type": "input_file", "filename": one.name, "file_data": one.data_url}
        for one in attachments
    ]
    return [*parts, *([{"type": "input_text", "text": text}] if text else [])]


def _plain_items(message: AssistantMessage, names: ToolNameEncoder) -> list[dict[str, Any]]:
    text = [{"role": "assistant", "content": message.text}] if message.text else []
    return [*text, *(_function_call(call, names) for call in message.tool_calls)]


def _as_noted(
    message: AssistantMessage, stored: Sequence[Mapping[str, Any]], names: ToolNameEncoder
) -> list[dict[str, Any]]:
    """Return the items as received, including reasoning; none if the message was changed since.

    Reasoning is only accepted together with the items that followed it.
    """
    calls = [item["call"] for item in stored if "call" in item]
    length = sum(item.get("text", 0) for item in stored)
    if length != len(message.text) or sorted(calls) != list(range(len(message.tool_calls))):
        return []
    items: list[dict[str, Any]] = []
    at = 0
    for item in stored:
        match item:
            case {"reasoning": reasoning}:
                items.append({"summary": [], **reasoning})
            case {"call": number}:
                items.append(_function_call(message.tool_calls[number], names))
            case {"text": length}:
                text = message.text[at : at + length]
                at += length
                if text.strip():
                    phase = {"phase": item["phase"]} if "phase" in item else {}
                    items.append({"role": "assistant", "content": text, **phase})
    return items


def _function_call(call: ModelToolCall, names: ToolNameEncoder) -> dict[str, Any]:
    return {
        "type": "function_call",
        "call_id": wire_id(call.id),
        "name": names.encode(call.name),
        "arguments": object_text(call),
    }


def _usage(usage: Mapping[str, Any]) -> TokenUsage:
    details = usage.get("input_tokens_details") or {}
    return TokenUsage(
        count_of(usage.get("input_tokens")),
        count_of(usage.get("output_tokens")),
        cached_input_tokens=count_of(details.get("cached_tokens")),
        cache_write_tokens=count_of(details.get("cache_write_tokens")),
    )


def _provider_error(error: Any) -> Exception:
    if not isinstance(error, Mapping):
        return stream_error("The provider ended the response with an error.")
    status = _STATUS_OF.get(str(error.get("code")), 400)
    # The code says what a text may not.
    message = text_of(error.get("message")) or json.dumps(error)
    return response_error(status, f"{message} ({error['code']})" if error.get("code") else message)

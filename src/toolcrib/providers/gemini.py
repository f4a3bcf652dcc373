"""Google's Gemini, over its own API: ``streamGenerateContent`` as server-sent events."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from toolcrib.core.messages import (
    AssistantMessage,
    Attachment,
    Message,
    ProviderMetadata,
    SystemMessage,
    ToolCallId,
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
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.providers.model_catalog import model_facts
from toolcrib.providers.provider import (
    ModelInfo,
    ModelRequest,
    ToolChoice,
    response_error,
    stream_error,
)
from toolcrib.providers.stream_reader import (
    StreamEventReader,
    count_of,
    parsed,
    text_of,
)
from toolcrib.providers.tool_call_stream import AnswerReader
from toolcrib.providers.wire_history import ToolNameEncoder, arguments_object, messages_to_send, noted, wire_id
from toolcrib.providers.wire_provider import WireProvider

_REFUSALS = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "LANGUAGE",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
    }
)
# The model wrote something that is no answer; another attempt may be one.
_BROKEN = frozenset(
    {"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE", "OTHER"}
)
_MODES: Mapping[ToolChoice, str] = {ToolChoice.AUTO: "AUTO", ToolChoice.REQUIRED: "ANY", ToolChoice.NONE: "NONE"}
# For models that take a budget instead of a level.
_BUDGETS: Mapping[Effort, int] = {Effort.NONE: 0, Effort.LOW: 1_024, Effort.MEDIUM: 8_192, Effort.HIGH: 24_576}
# Google's own value for calls of another model, which have no signature. Newer models reject calls without any.
NO_SIGNATURE = "skip_thought_signature_validator"


class Gemini(WireProvider):
    """Gemini's provider."""

    name: ClassVar[str] = "gemini"
    address: ClassVar[str] = "https://generativelanguage.googleapis.com/v1beta"
    variable: ClassVar[str] = "GEMINI_API_KEY"
    base_url_variable: ClassVar[str] = "GOOGLE_GEMINI_BASE_URL"
    # All of them on one page.
    models_path: ClassVar[str] = "/models?pageSize=1000"
    models_field: ClassVar[str] = "models"
    id_field: ClassVar[str] = "name"

    def path_for(self, request: ModelRequest) -> str:
        return f"/models/{quote(request.model.removeprefix('models/'), safe='')}:streamGenerateContent?alt=sse"

    def auth_headers(self, credentials: ProviderCredentials) -> Mapping[str, str]:
        return {"x-goog-api-key": credentials.secret} if credentials.secret else {}

    def request_body(self, request: ModelRequest, names: ToolNameEncoder) -> dict[str, Any]:
        return request_body(request, names, provider=self.name)

    def reader(self, request: ModelRequest, names: ToolNameEncoder) -> StreamEventReader:
        return GeminiChunkReader(request, names, provider=self.name)

    def model_info(self, entry: Mapping[str, Any]) -> ModelInfo | None:
        methods = entry.get("supportedGenerationMethods")
        if isinstance(methods, list) and "generateContent" not in methods:
            return None
        model = entry["name"].removeprefix("models/")
        return ModelInfo(
            model,
            text_of(entry.get("displayName")) or model,
            count_of(entry.get("inputTokenLimit")) or None,
            # All Gemini models call tools; Gemma and the others on this server do not.
            supports_tools=model.startswith("gemini-"),
            max_output_tokens=count_of(entry.get("outputTokenLimit")) or None,
        )

    async def list_models(self, credentials: ProviderCredentials) -> list[ModelInfo]:
        return sorted(await super().list_models(credentials), key=lambda model: model.id)


def request_body(request: ModelRequest, names: ToolNameEncoder, *, provider: str) -> dict[str, Any]:
    """Return the request body in Gemini's format."""
    messages = messages_to_send(request)
    system = "\n\n".join(message.text for message in messages if isinstance(message, SystemMessage))
    rest = [message for message in messages if not isinstance(message, SystemMessage)]
    body: dict[str, Any] = {"contents": _contents(rest, names, provider, request.model)}
    if system:
        body["systemInstruction"] = {"parts": [{"text": system}]}
    if request.tools:
        declarations = [
            {
                "name": names.encode(tool.name),
                "description": tool.description,
                "parametersJsonSchema": {"type": "object", **tool.input_schema},
            }
            for tool in request.tools
        ]
        body["tools"] = [{"functionDeclarations": declarations}]
        body["toolConfig"] = {"functionCallingConfig": {"mode": _MODES[request.tool_choice]}}
    options = {
        "maxOutputTokens": request.max_output_tokens,
        "temperature": request.temperature,
        "thinkingConfig": _thinking(request),
    }
    if given := {key: value for key, value in options.items() if value is not None}:
        body["generationConfig"] = given
    return body


class GeminiChunkReader(AnswerReader):
    """Parses the chunks of one answer. Calls arrive whole; the chunk with the reason is the last one."""

    def __init__(self, request: ModelRequest, names: ToolNameEncoder, *, provider: str) -> None:
        super().__init__(request, names, provider=provider)
        self._call_signatures: dict[str, str] = {}
        self._text_signature = ""

    def read(self, data: bytes) -> Iterator[StreamEvent]:
        chunk = parsed(data)
        if error := chunk.get("error"):
            raise _provider_error(error)
        yield from self._start(chunk.get("responseId"), chunk.get("modelVersion"))
        if blocked := (chunk.get("promptFeedback") or {}).get("blockReason"):
            self._finish_reason = FinishReason.REFUSAL
            yield TextDelta(f"The provider blocked the request: {text_of(blocked)}.")
        for candidate in chunk.get("candidates") or ():
            if not candidate.get("index"):
                yield from self._candidate(candidate)
        if usage := chunk.get("usageMetadata"):
            yield _usage(usage)
            self.done = self._finish_reason is not None

    def finish(self) -> Iterator[StreamEvent]:
        if self._finish_reason is None:
            raise stream_error("The response ended before the model had finished.")
        reason = self._calls.reason(self._finish_reason)
        yield from self._calls.end_all(reason)
        yield StreamFinish(reason, self._note())

    def _candidate(self, candidate: Mapping[str, Any]) -> Iterator[StreamEvent]:
        for part in (candidate.get("content") or {}).get("parts") or ():
            yield from self._part(part, text_of(part.get("thoughtSignature")))
        reason = candidate.get("finishReason")
        if reason in _BROKEN:
            detail = text_of(candidate.get("finishMessage"))
            raise stream_error(f"The model's answer is invalid: {reason}. {detail}".strip())
        if reason in _REFUSALS:
            self._finish_reason = FinishReason.REFUSAL
        elif reason:
            self._finish_reason = FinishReason.LENGTH if reason == "MAX_TOKENS" else FinishReason.STOP

    def _part(self, part: Mapping[str, Any], signature: str) -> Iterator[StreamEvent]:
        if function := part.get("functionCall"):
            call = self._calls.begin(text_of(function.get("id")))
            yield from self._calls.name(call, text_of(function.get("name")))
            yield from self._calls.add(call, json.dumps(function.get("args") or {}))
            yield from self._calls.end_if_complete(call)
            if signature:
                self._call_signatures[str(call.index)] = signature
        elif part.get("thought"):
            if text := self._thinking.take(part.get("text")):
                yield ThinkingDelta(text)
        else:
            self._text_signature = signature or self._text_signature
            if text := self._text.take(part.get("text")):
                yield TextDelta(text)

    def _note(self) -> ProviderMetadata | None:
        data: dict[str, Any] = {"calls": self._call_signatures} if self._call_signatures else {}
        return self._metadata(data | ({"text": self._text_signature} if self._text_signature else {}))


def _contents(messages: Sequence[Message], names: ToolNameEncoder, provider: str, model: str) -> list[dict[str, Any]]:
    """Return alternating contents that start with the user's. All results of a turn are in one content."""
    contents: list[dict[str, Any]] = []
    called: dict[ToolCallId, str] = {}
    for message in messages:
        role = "user"
        parts: list[dict[str, Any]] = []
        match message:
            case AssistantMessage():
                called |= {call.id: names.encode(call.name) for call in message.tool_calls}
                role, parts = "model", _model_parts(message, names, provider, model)
            case ToolResultMessage():
                parts = [_result(message, called[message.call_id]), *_inline(message.attachments)]
            case UserMessage(text, attachments):
                parts = [*_inline(attachments), *([{"text": text}] if text else [])]
            case SystemMessage(text):
                parts = [{"text": text}]
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"].extend(parts)
        else:
            contents.append({"role": role, "parts": parts})
    if not contents or contents[0]["role"] != "user":
        contents.insert(0, {"role": "user", "parts": [{"text": "(The conversation begins here.)"}]})
    if contents[-1]["role"] != "user":
        contents.append({"role": "user", "parts": [{"text": "Continue."}]})
    return contents


def _model_parts(message: AssistantMessage, names: ToolNameEncoder, provider: str, model: str) -> list[dict[str, Any]]:
    stored = noted(message, provider, model)
    signatures: dict[str, str] = dict(stored.get("calls") or {})
    if message.tool_calls and not signatures and model_facts(provider, model).thinking == "level":
        signatures = {"0": NO_SIGNATURE}
    parts: list[dict[str, Any]] = []
    if message.text:
        signature = {"thoughtSignature": stored["text"]} if "text" in stored else {}
        parts.append({"text": message.text, **signature})
    for number, call in enumerate(message.tool_calls):
        function = {"id": wire_id(call.id), "name": names.encode(call.name), "args": arguments_object(call)}
        signature = {"thoughtSignature": signatures[str(number)]} if str(number) in signatures else {}
        parts.append({"functionCall": function, **signature})
    return parts


def _result(message: ToolResultMessage, name: str) -> dict[str, Any]:
    response = {"error" if message.is_error else "output": message.text}
    return {"functionResponse": {"id": wire_id(message.call_id), "name": name, "response": response}}


def _inline(attachments: Sequence[Attachment]) -> list[dict[str, Any]]:
    return [{"inlineData": {"mimeType": one.media_type, "data": one.base64}} for one in attachments]


def _thinking(request: ModelRequest) -> dict[str, Any] | None:
    """Return how the model is asked to think. Its thoughts come back as summaries."""
    form = model_facts("gemini", request.model).thinking
    if form is None:
        return None
    thinking: dict[str, Any] = {"includeThoughts": True}
    if form == "budget" and (request.thinking_tokens or request.effort is not None):
        by_effort = _BUDGETS.get(request.effort) if request.effort is not None else None
        thinking["thinkingBudget"] = request.thinking_tokens if by_effort is None else by_effort
    elif form == "level" and request.effort is not None:
        thinking["thinkingLevel"] = request.effort.upper()
    return thinking


def _usage(usage: Mapping[str, Any]) -> TokenUsage:
    return TokenUsage(
        count_of(usage.get("promptTokenCount")) + count_of(usage.get("toolUsePromptTokenCount")),
        count_of(usage.get("candidatesTokenCount")) + count_of(usage.get("thoughtsTokenCount")),
        cached_input_tokens=count_of(usage.get("cachedContentTokenCount")),
    )


def _provider_error(error: Any) -> Exception:
    if not isinstance(error, Mapping):
        return stream_error("The provider ended the response with an error.")
    code = error.get("code")
    return response_error(code if isinstance(code, int) else 500, json.dumps(error))

"""Ollama, over its own API: lines of JSON over HTTP."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from toolcrib.core.errors import ProviderError
from toolcrib.core.messages import AssistantMessage, Attachment, Message, SystemMessage, ToolResultMessage, UserMessage
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
from toolcrib.network.network_policy import OutboundError
from toolcrib.providers.provider import (
    ModelInfo,
    ModelRequest,
    Provider,
    ToolChoice,
    response_error,
    stream_error,
)
from toolcrib.providers.stream_reader import (
    JsonLineSplitter,
    count_of,
    encoded,
    interrupted,
    parsed,
    read_answer,
    text_of,
)
from toolcrib.providers.tool_call_stream import AnswerReader
from toolcrib.providers.wire_history import ToolNameEncoder, arguments_object, messages_to_send, wire_id

# Listing models needs one request per model; a server on a laptop must not get all of them at once.
_QUESTIONS_AT_ONCE = 8


class Ollama(Provider):
    """Ollama's provider."""

    name: ClassVar[str] = "ollama"
    address: ClassVar[str] = "http://127.0.0.1:11434"
    needs_credentials: ClassVar[bool] = False
    variable: ClassVar[str] = "OLLAMA_HOST"

    @classmethod
    def from_environment(cls, variables: Mapping[str, str]) -> ProviderCredentials | None:
        host = variables.get(cls.variable)
        return ProviderCredentials(base_url=_host_address(host)) if host else None

    def stream(self, request: ModelRequest, credentials: ProviderCredentials) -> AsyncGenerator[StreamEvent, None]:
        names = ToolNameEncoder.of(request.tools, request.messages)
        body = encoded(request_body(request, names))

        return read_answer(
            lambda: self._reply("POST", "/api/chat", credentials, body=body),
            JsonLineSplitter(),
            OllamaLineReader(request, names, provider=self.name),
        )

    async def list_models(self, credentials: ProviderCredentials) -> list[ModelInfo]:
        found = (await self._ask("GET", "/api/tags", None, credentials)).get("models")
        entries = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
        names = [entry["name"] for entry in entries if isinstance(entry.get("name"), str)]
        limit = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

        async def described(name: str) -> ModelInfo:
            async with limit:
                return await self._describe(name, credentials)

        return sorted(await asyncio.gather(*map(described, names)), key=lambda model: model.id)

    async def validate_credentials(self, credentials: ProviderCredentials) -> None:
        await self._ask("GET", "/api/tags", None, credentials)

    async def _describe(self, name: str, credentials: ProviderCredentials) -> ModelInfo:
        try:
            shown = await self._ask("POST", "/api/show", {"model": name}, credentials)
        except ProviderError as error:
            # Deleted since it was listed, or a server that imitates Ollama without this route.
            if error.status != 404:
                raise
            shown = {}
        facts, capabilities = shown.get("model_info"), shown.get("capabilities")
        wire_messages = facts.items() if isinstance(facts, dict) else ()
        windows = [value for key, value in wire_messages if key.endswith(".context_length")]
        return ModelInfo(
            name,
            name,
            next((count_of(window) for window in windows if count_of(window)), None),
            supports_tools=isinstance(capabilities, list) and "tools" in capabilities,
        )

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None, credentials: ProviderCredentials
    ) -> dict[str, Any]:
        try:
            async with self._reply(method, path, credentials, body=encoded(body) if body else None) as reply:
                return parsed(await reply.read())
        except OutboundError as error:
            raise interrupted(error) from error


def _host_address(host: str) -> str:
    """Return the URL as Ollama reads it: scheme and port are optional, and 0.0.0.0 means this machine."""
    address = host if "://" in host else f"http://{host}"
    address = address.rstrip("/").replace("//0.0.0.0", "//127.0.0.1")
    return address if re.search(r":\d+$", address) else f"{address}:11434"


def request_body(request: ModelRequest, names: ToolNameEncoder) -> dict[str, Any]:
    """Return the request body in Ollama's format."""
    body: dict[str, Any] = {
        "model": request.model,
        "messages": _messages(messages_to_send(request), names),
        "stream": True,
    }
    # Calls can be forbidden only by offering no tools.
    if request.tools and request.tool_choice is not ToolChoice.NONE:
        body["tools"] = names.functions(request.tools)
    if request.effort is not None:
        # A level for models that have levels; others take any as true.
        body["think"] = False if request.effort is Effort.NONE else request.effort.value
    elif request.thinking_tokens:
        body["think"] = True
    options = {
        "num_predict": request.max_output_tokens,
        "temperature": request.temperature,
        # Without it Ollama silently cuts the conversation at a few thousand tokens.
        "num_ctx": request.context_window,
    }
    if given := {key: value for key, value in options.items() if value is not None}:
        body["options"] = given
    return body


class OllamaLineReader(AnswerReader):
    """Parses the lines of one answer. Calls arrive whole."""

    def read(self, data: bytes) -> Iterator[StreamEvent]:
        line = parsed(data)
        if error := line.get("error"):
            raise response_error(500, text_of(error) or json.dumps(error))
        yield from self._start(None, line.get("model"))
        message = line.get("message") or {}
        # The second name is used by servers that imitate Ollama.
        if text := self._thinking.take(message.get("thinking") or message.get("reasoning_content")):
            yield ThinkingDelta(text)
        if text := self._text.take(message.get("content")):
            yield TextDelta(text)
        for whole in message.get("tool_calls") or ():
            yield from self._call(whole)
        if line.get("done") is True:
            self.done = True
            self._finish_reason = FinishReason.LENGTH if line.get("done_reason") == "length" else FinishReason.STOP
            yield TokenUsage(count_of(line.get("prompt_eval_count")), count_of(line.get("eval_count")))

    def finish(self) -> Iterator[StreamEvent]:
        if self._finish_reason is None:
            raise stream_error("The response ended before the model had finished.")
        yield from self._calls.end_all(self._finish_reason)
        yield StreamFinish(self._calls.reason(self._finish_reason))

    def _call(self, whole: Mapping[str, Any]) -> Iterator[StreamEvent]:
        function = whole["function"]
        arguments = function.get("arguments")
        call = self._calls.begin(text_of(whole.get("id")))
        yield from self._calls.name(call, text_of(function.get("name")))
        yield from self._calls.add(
            call, arguments if isinstance(arguments, str) and arguments else json.dumps(arguments or {})
        )
        yield from self._calls.end_if_complete(call)


def _messages(messages: Sequence[Message], names: ToolNameEncoder) -> list[dict[str, Any]]:
    wire_messages: list[dict[str, Any]] = []
    called: dict[str, str] = {}
    for message in messages:
        match message:
            case UserMessage(text, attachments):
                wire_messages.append({"role": message.role, "content": text, **_images(attachments)})
            case SystemMessage(text):
                wire_messages.append({"role": message.role, "content": text})
            case ToolResultMessage(call_id, text, _, attachments):
                # Older versions identify the call by the tool's name, newer ones by its id.
                name = called[call_id]
                result = {"role": "tool", "content": text, "tool_name": name, "tool_call_id": wire_id(call_id)}
                wire_messages.append(result | _images(attachments))
            case AssistantMessage(text, thinking, calls):
                called |= {call.id: names.encode(call.name) for call in calls}
                wire_message: dict[str, Any] = {"role": "assistant", "content": text}
                if thinking and calls:
                    wire_message["thinking"] = thinking
                if calls:
                    wire_message["tool_calls"] = [
                        {
                            "id": wire_id(call.id),
                            "function": {
                                "name": names.encode(call.name),
                                "arguments": arguments_object(call),
                            },
                        }
                        for call in calls
                    ]
                wire_messages.append(wire_message)
    return wire_messages


def _images(attachments: Sequence[Attachment]) -> dict[str, Any]:
    images = [one.base64 for one in attachments if one.is_image]
    return {"images": images} if images else {}

"""Responses from memory: how a provider's reader parses any bytes, split anywhere."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from tests.fakes import wires
from tests.fakes.grammar import taken
from tests.fakes.scripted_turns import Scene
from tests.fakes.tools import TOOLS
from toolcrib.core.messages import Message, UserMessage
from toolcrib.core.model_stream import StreamEvent
from toolcrib.network.network_policy import OutboundError, OutboundFailure
from toolcrib.providers import anthropic_messages, chat_completions, gemini, ollama, openai_responses
from toolcrib.providers.provider import ModelRequest
from toolcrib.providers.stream_reader import (
    JsonLineSplitter,
    SseSplitter,
    StreamEventReader,
    StreamSplitter,
    read_answer,
)
from toolcrib.providers.wire_history import ToolNameEncoder

WIRES: dict[str, Callable[[Scene], list[bytes]]] = {
    "anthropic": wires.anthropic,
    "openai": wires.chat_completions,
    "responses": wires.responses,
    "gemini": wires.gemini,
    "ollama": wires.ollama,
}


def understanding(wire: str, request: ModelRequest) -> tuple[StreamSplitter, StreamEventReader]:
    names = ToolNameEncoder.of(request.tools, request.messages)
    match wire:
        case "anthropic":
            return SseSplitter(), anthropic_messages.AnthropicEventReader(request, names, provider="anthropic")
        case "openai":
            return SseSplitter(), chat_completions.ChatCompletionReader(request, names, provider="openai-compatible")
        case "responses":
            return SseSplitter(), openai_responses.ResponsesEventReader(request, names, provider="openai")
        case "gemini":
            return SseSplitter(), gemini.GeminiChunkReader(request, names, provider="gemini")
    return JsonLineSplitter(), ollama.OllamaLineReader(request, names, provider="ollama")


async def read_bytes(
    wire: str,
    pieces: Iterable[bytes],
    *,
    cut: bool = False,
    messages: Sequence[Message] = (UserMessage("Go."),),
    model: str = "m",
) -> list[StreamEvent]:
    """The events of a response with these bytes; ``cut``: the connection drops after them."""
    splitter, reader = understanding(wire, ModelRequest(model, tuple(messages), tools=TOOLS))
    return await taken(read_answer(lambda: _from_memory(pieces, cut=cut), splitter, reader))


def _from_memory(pieces: Iterable[bytes], *, cut: bool) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        if cut:
            raise OutboundError(OutboundFailure.BROKEN, "The server closed the connection")

    @asynccontextmanager
    async def opening() -> AsyncIterator[AsyncIterator[bytes]]:
        yield body()

    return opening()

"""Answers that come from memory: what a provider's reader makes of any bytes, cut anywhere."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx2

from tests.fakes import wires
from tests.fakes.grammar import taken
from tests.fakes.scenes import Scene
from tests.fakes.tools import TOOLS
from toolcrib.domain.messages import Message, UserMessage
from toolcrib.domain.streams import StreamEvent
from toolcrib.providers import anthropic_wire, chat_completions, ollama
from toolcrib.providers.lines import JsonLines, ServerSentEvents
from toolcrib.providers.names import WireNames
from toolcrib.providers.provider import ModelRequest
from toolcrib.providers.reading import Reader, Splitter, read_answer

WIRES: dict[str, Callable[[Scene], list[bytes]]] = {
    "anthropic": wires.anthropic,
    "openai": wires.chat_completions,
    "ollama": wires.ollama,
}


def understanding(wire: str, request: ModelRequest) -> tuple[Splitter, Reader]:
    names = WireNames.of(request.tools, request.messages)
    match wire:
        case "anthropic":
            return ServerSentEvents(), anthropic_wire.EventReader(request, names, provider="anthropic")
        case "openai":
            return ServerSentEvents(), chat_completions.ChunkReader(request, names, provider="openai-compatible")
    return JsonLines(), ollama.LineReader(request, names)


async def read_bytes(
    wire: str,
    pieces: Iterable[bytes],
    *,
    cut: bool = False,
    messages: Sequence[Message] = (UserMessage("Go."),),
    model: str = "m",
) -> list[StreamEvent]:
    """The events of an answer of these bytes; ``cut``: the connection breaks after them."""
    splitter, reader = understanding(wire, ModelRequest(model, tuple(messages), tools=TOOLS))
    return await taken(read_answer(lambda: _from_memory(pieces, cut=cut), splitter, reader))


def _from_memory(pieces: Iterable[bytes], *, cut: bool) -> AbstractAsyncContextManager[httpx2.Response]:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece
        if cut:
            raise httpx2.RemoteProtocolError("peer closed connection without sending complete message body")

    @asynccontextmanager
    async def opening() -> AsyncIterator[httpx2.Response]:
        yield httpx2.Response(200, content=body())

    return opening()

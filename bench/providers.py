"""CPU time of one model turn: our stream, the vendor's typed events, and bare HTTP with JSON, interleaved.

usage: python -m bench providers [--reps 5] [--turns 200] [--deltas 200]

A turn is one streamed answer with the given number of text deltas, or one tool call. The model runs in its own process
and answers at once, so the result is the client's CPU time.
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection

import anthropic
import httpx2
import openai
import uvloop

from tests.fakes import wires
from tests.fakes.scripted_turns import Scene, SceneCall
from tests.fakes.tools import TOOLS
from toolcrib.core.messages import UserMessage
from toolcrib.core.model_stream import FinishReason, MessageBuilder, StreamFinish
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.providers.provider import ModelRequest
from toolcrib.providers.provider_registry import ProviderRegistry, open_providers

Turn = Callable[[], Awaitable[int]]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench providers")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--deltas", type=int, default=200)
    options = parser.parse_args(arguments)
    for kind in ("text", "call"):
        port, process = _start_model(_scene(kind, options.deltas))
        try:
            uvloop.run(_compare(kind, port, options.reps, options.turns))
        finally:
            process.terminate()
            process.join()


def _scene(kind: str, deltas: int) -> Scene:
    if kind == "text":
        return Scene(text="".join(f"w{number:04d} " for number in range(deltas)))
    call = SceneCall("call_1", "list_directory", json.dumps({"path": "sample-0001.txt"}))
    return Scene(calls=(call,), reason=FinishReason.TOOL_CALLS)


async def _compare(kind: str, port: int, reps: int, turns: int) -> None:
    async with open_providers(private_hosts=["*"]) as providers, httpx2.AsyncClient() as http:
        rows = {
            "chat completions": {
                "httpx2 and json alone": _bare(http, port),
                "toolcrib": _ours(providers, "openai-compatible", f"http://127.0.0.1:{port}/v1"),
                "openai SDK, typed events": _openai_sdk(http, port),
            },
            "Anthropic": {
                "toolcrib": _ours(providers, "anthropic", f"http://127.0.0.1:{port}"),
                "anthropic SDK, typed events": _anthropic_sdk(http, port),
            },
            "Ollama": {"toolcrib": _ours(providers, "ollama", f"http://127.0.0.1:{port}")},
        }
        print(f"\n{kind}: milliseconds of CPU a turn (median of {reps} repetitions of {turns} turns)\n")
        print("| wire | client | ms | ratio to toolcrib |\n|---|---|---|---|")
        for wire, clients in rows.items():
            found: dict[str, list[float]] = {}
            for turn in clients.values():
                await turn()
            for _ in range(reps):
                for name, turn in clients.items():
                    found.setdefault(name, []).append(await _milliseconds(turn, turns))
            ours = found["toolcrib"]
            for name, times in found.items():
                ratio = statistics.median(t / o for t, o in zip(times, ours, strict=True))
                print(f"| {wire} | {name} | {statistics.median(times):.2f} | {ratio:.2f} |")


async def _milliseconds(turn: Turn, turns: int) -> float:
    before = time.process_time()
    for _ in range(turns):
        assert await turn()
    return (time.process_time() - before) / turns * 1000


def _ours(providers: ProviderRegistry, name: str, address: str) -> Turn:
    request = ModelRequest("m", (UserMessage("Go."),), tools=TOOLS)
    credentials = ProviderCredentials("key", base_url=address)

    async def turn() -> int:
        reception = MessageBuilder()
        async for event in providers.stream_turn(name, request, credentials):
            reception.add(event)
        assert isinstance(reception.finish, StreamFinish), reception.error
        message = reception.message()
        return len(message.text) + len(message.tool_calls)

    return turn


def _bare(http: httpx2.AsyncClient, port: int) -> Turn:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Go."}]}

    async def turn() -> int:
        size = 0
        async with http.stream("POST", f"http://127.0.0.1:{port}/v1/chat/completions", json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        size += len(choice["delta"].get("content") or choice["delta"].get("tool_calls") or "")
        return size

    return turn


def _openai_sdk(http: httpx2.AsyncClient, port: int) -> Turn:
    client = openai.AsyncOpenAI(api_key="x", base_url=f"http://127.0.0.1:{port}/v1", http_client=http, max_retries=0)

    async def turn() -> int:
        size = 0
        stream = await client.chat.completions.create(
            model="m", stream=True, messages=[{"role": "user", "content": "Go."}]
        )
        async for chunk in stream:
            for choice in chunk.choices:
                size += len(choice.delta.content or choice.delta.tool_calls or "")
        return size

    return turn


def _anthropic_sdk(http: httpx2.AsyncClient, port: int) -> Turn:
    client = anthropic.AsyncAnthropic(api_key="x", base_url=f"http://127.0.0.1:{port}", http_client=http, max_retries=0)

    async def turn() -> int:
        size = 0
        stream = await client.messages.create(
            model="m", max_tokens=100, stream=True, messages=[{"role": "user", "content": "Go."}]
        )
        async for event in stream:
            size += event.type == "content_block_delta"
        return size

    return turn


def _start_model(scene: Scene) -> tuple[int, multiprocessing.Process]:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs, scene), daemon=True)
    process.start()
    return ours.recv(), process  # type: ignore[return-value]


def _serve(report: Connection, scene: Scene) -> None:
    answers = {
        b"/v1/messages": (b"text/event-stream", b"".join(_chunked(wires.anthropic(scene)))),
        b"/v1/chat/completions": (b"text/event-stream", b"".join(_chunked(wires.chat_completions(scene)))),
        b"/api/chat": (b"application/x-ndjson", b"".join(_chunked(wires.ollama(scene)))),
    }

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            kind, body = answers[head.split(b" ")[1]]
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n%s0\r\n\r\n" % (kind, body)
            )

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        report.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(run())


def _chunked(pieces: list[bytes]) -> list[bytes]:
    return [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]

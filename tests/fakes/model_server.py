"""A model server on loopback with the wire formats of all providers, as strict as the real services.

The last user message selects the scene; after tool results it responds that it has them. ``say`` queues a custom
response before that: any bytes, in any pieces, cut anywhere, or held open.
"""

import asyncio
import contextlib
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.fakes import strictness, wires
from tests.fakes.scripted_turns import AFTER_RESULTS, SCENES, Scene

KEY = "sk-the-right-key-for-the-fake"
SSE = "text/event-stream"
NDJSON = "application/x-ndjson"


@dataclass(frozen=True)
class Answer:
    """``cut``: the connection drops after the pieces, before the announced end of the body; ``hang``: it stays open;
    ``held``: the last piece is sent only after this event is set."""

    pieces: tuple[bytes, ...]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = SSE
    cut: bool = False
    hang: bool = False
    held: asyncio.Event | None = None
    # Ends the body by closing the connection, as HTTP/1.0 does: a client cannot distinguish a cut from the end.
    until_closed: bool = False


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


@dataclass
class ModelServer:
    url: str = ""
    address: str = "127.0.0.1"
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    # Set when a client closes the connection of a response that is held open.
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    # Responds instead of the scenes.
    responder: Callable[[Received], Answer] | None = None
    _answers: deque[Answer] = field(default_factory=deque)

    def say(self, *answers: Answer) -> None:
        self._answers.extend(answers)

    def unsay(self) -> None:
        """Drop the queued responses."""
        self._answers.clear()

    @property
    def last(self) -> Received:
        return self.received[-1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (request := await _read(reader)) is not None:
                self.received.append(request)
                answer = self._answers.popleft() if self._answers else self._scripted(request)
                if not await self._write(answer, reader, writer):
                    return
        except ConnectionError:
            self.hung_up.set()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _write(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection can be reused."""
        length = "connection: close" if answer.until_closed else "transfer-encoding: chunked"
        headers = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
        head = f"HTTP/1.1 {answer.status} Said\r\ncontent-type: {answer.content_type}\r\n{length}\r\n{headers}\r\n"
        writer.write(head.encode())
        for number, piece in enumerate(answer.pieces, start=1):
            if answer.held is not None and number == len(answer.pieces):
                await answer.held.wait()
            writer.write(piece if answer.until_closed else b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        if answer.hang:
            await reader.read()
            self.hung_up.set()
            return False
        if answer.cut or answer.until_closed:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _scripted(self, request: Received) -> Answer:
        if self.responder is not None:
            return self.responder(request)
        path = request.path.split("?")[0]
        if "x-goog-api-key" in request.headers or ":streamGenerateContent" in path:
            return self._as_gemini(path, request)
        if path.startswith("/api/"):
            return self._as_ollama(path, request)
        if path.endswith("/v1/messages") or request.headers.get("anthropic-version"):
            return self._as_anthropic(path, request)
        return self._as_openai(path, request)

    def _as_anthropic(self, path: str, request: Received) -> Answer:
        def refuse(status: int, kind: str, message: str) -> Answer:
            return plain(status, {"type": "error", "error": {"type": kind, "message": message}})

        if KEY not in (request.headers.get("x-api-key"), request.headers.get("authorization", "")[len("Bearer ") :]):
            return refuse(401, "authentication_error", "invalid x-api-key")
        if path.endswith("/v1/models"):
            model = {"type": "model", "id": "claude-fake", "display_name": "Claude Fake", "max_input_tokens": 200_000}
            return plain(200, {"data": [model | {"max_tokens": 64_000, "lifecycle": "active"}], "has_more": False})
        if reason := strictness.anthropic_refusal(request.body, wires.SIGNATURE):
            return refuse(400, "invalid_request_error", reason)
        last = request.body["messages"][-1]["content"][-1]
        scene = _scene("" if last["type"] == "tool_result" else last["text"])
        if scene is None:
            return refuse(404, "not_found_error", "model: no such scene")
        return Answer(tuple(wires.anthropic(scene, request.body["model"])))

    def _as_openai(self, path: str, request: Received) -> Answer:
        def refuse(status: int, code: str, message: str) -> Answer:
            error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
            return plain(status, {"error": error})

        if request.headers.get("authorization") != f"Bearer {KEY}":
            return refuse(401, "invalid_api_key", "Incorrect API key provided")
        if path.endswith("/models"):
            return plain(200, {"object": "list", "data": MODELS})
        if path.endswith("/responses"):
            return self._as_responses(request, refuse)
        copilot = "openai-intent" in request.headers
        own = not copilot and "max_tokens" not in request.body and request.body["model"].startswith("gpt")
        if reason := strictness.openai_refusal(request.body, fields=strictness.OPENAI_FIELDS if own else None):
            return refuse(400, "invalid_value", reason)
        last = request.body["messages"][-1]
        content = last["content"] if isinstance(last["content"], str) else last["content"][-1]["text"]
        scene = _scene("" if last["role"] == "tool" else content)
        if scene is None:
            return refuse(404, "model_not_found", "no such scene")
        return Answer(tuple(wires.chat_completions(scene, request.body["model"])))

    def _as_responses(self, request: Received, refuse: Callable[[int, str, str], Answer]) -> Answer:
        if reason := strictness.responses_refusal(request.body, wires.ENCRYPTED):
            return refuse(400, "invalid_value", reason)
        last = request.body["input"][-1]
        content = last.get("content", "")
        text = content if isinstance(content, str) else content[-1].get("text", "")
        scene = _scene("" if last.get("type") == "function_call_output" else text)
        if scene is None:
            return refuse(404, "model_not_found", "no such scene")
        return Answer(tuple(wires.responses(scene, request.body["model"])))

    def _as_gemini(self, path: str, request: Received) -> Answer:
        def refuse(status: int, kind: str, message: str) -> Answer:
            return plain(status, {"error": {"code": status, "message": message, "status": kind}})

        if request.headers.get("x-goog-api-key") != KEY:
            return refuse(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.")
        if path.endswith("/models"):
            fake = {"name": "models/gemini-fake", "displayName": "Gemini Fake", "inputTokenLimit": 1_048_576}
            methods = {"outputTokenLimit": 65_536, "supportedGenerationMethods": ["generateContent", "countTokens"]}
            other = {"name": "models/embedding-fake", "supportedGenerationMethods": ["embedContent"]}
            return plain(200, {"models": [fake | methods, other]})
        model = path.split("/")[-1].split(":")[0]
        if reason := strictness.gemini_refusal(request.body, model, wires.SIGNATURE):
            return refuse(400, "INVALID_ARGUMENT", reason)
        last = request.body["contents"][-1]["parts"][-1]
        scene = _scene(last.get("text", ""))
        if scene is None:
            return refuse(404, "NOT_FOUND", "no such scene: models/x is not found for API version v1beta")
        return Answer(tuple(wires.gemini(scene, model)))

    def _as_ollama(self, path: str, request: Received) -> Answer:
        if path == "/api/tags":
            return plain(200, {"models": [{"name": "llama-fake"}, {"name": "toolless"}]})
        if path == "/api/show":
            toolless = request.body["model"] == "toolless"
            capabilities = ["completion"] if toolless else ["completion", "tools"]
            return plain(200, {"capabilities": capabilities, "model_info": {"llama.context_length": 131_072}})
        if reason := strictness.ollama_refusal(request.body):
            return plain(400, {"error": reason})
        last = request.body["messages"][-1]
        scene = _scene("" if last["role"] == "tool" else last["content"])
        if scene is None:
            return plain(404, {"error": "model 'none' not found, try pulling it first"})
        return Answer(tuple(wires.ollama(scene, request.body["model"])), content_type=NDJSON)


MODELS = [
    # In the format of OpenAI, OpenRouter and Copilot.
    {"id": "gpt-4o", "object": "model"},
    {"id": "whisper-1", "object": "model"},
    {"id": "gpt-fake", "object": "model", "context_length": 32_000, "supported_parameters": ["tools"]},
    {
        "id": "toolless",
        "name": "No Tools",
        "context_length": 4_096,
        "supported_parameters": ["temperature"],
        "capabilities": {
            "type": "chat",
            "limits": {"max_context_window_tokens": 4_096},
            "supports": {"tool_calls": False, "streaming": True},
        },
    },
]


def plain(status: int, body: object, **headers: str) -> Answer:
    """A response without streaming."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer((json.dumps(body).encode(),), status=status, content_type="application/json", headers=named)


@asynccontextmanager
async def model_server(fake: ModelServer | None = None) -> AsyncIterator[ModelServer]:
    fake = fake or ModelServer()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        try:
            await fake.serve(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(serve, fake.address, 0)
    host, port = server.sockets[0].getsockname()[:2]
    fake.url = f"http://{host}:{port}"
    try:
        yield fake
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def model_server_beside(fake: ModelServer | None = None) -> Iterator[ModelServer]:
    """The same on its own event loop, for tests that block on a server which calls it."""
    fake, ready, stop = fake or ModelServer(), threading.Event(), threading.Event()

    async def serve() -> None:
        async with model_server(fake):
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(10)
    try:
        yield fake
    finally:
        stop.set()
        thread.join(10)


def _scene(question: str) -> Scene | None:
    return SCENES.get(question) if question else AFTER_RESULTS


async def _read(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method, path, headers, json.loads(body) if body else {})

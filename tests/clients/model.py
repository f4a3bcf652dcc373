"""A scripted model with the wire formats of OpenAI, Anthropic and Ollama, and two search engines, on one port."""

import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

KEY = "sk-key-of-the-person-at-the-client"


@dataclass(frozen=True)
class Reply:
    """One response of the model. ``calls`` are pairs of a tool and its arguments, as an object or as raw text.

    ``held``: the response stops after the text until this event is set. ``cut``: the connection drops after the text.
    """

    text: str = ""
    calls: tuple[tuple[str, Any], ...] = ()
    thinking: str = ""
    status: int = 200
    error: str = ""
    held: threading.Event | None = None
    cut: bool = False
    input_tokens: int = 11


@dataclass(frozen=True)
class Asked:
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    query: Mapping[str, list[str]]

    @property
    def may_call(self) -> bool:
        """Whether the model may call tools. Some wire formats require tool definitions even when it may not."""
        return bool(self.body.get("tools")) and self.body.get("tool_choice") != "none"


@dataclass
class ScriptedModel:
    """Responds by script, in order. Without a script it responds that it has none."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    searched: list[Asked] = field(default_factory=list)
    searxng: Any = field(default_factory=lambda: {"results": []})
    brave: Any = field(default_factory=lambda: {"web": {"results": []}})
    _script: deque[Reply] = field(default_factory=deque)
    _calls: int = 0

    def script(self, *replies: Reply) -> None:
        """Clears the script and the recorded requests."""
        self._script = deque(replies)
        self.asked.clear()

    @property
    def last(self) -> Asked:
        return self.asked[-1]

    def next(self) -> Reply:
        return self._script.popleft() if self._script else Reply("I have nothing to say.")

    def call_ids(self, reply: Reply) -> list[str]:
        first = self._calls
        self._calls += len(reply.calls)
        return [f"call_{first + number}" for number in range(len(reply.calls))]


@contextmanager
def scripted_model() -> Iterator[ScriptedModel]:
    model = ScriptedModel()

    class Handler(_Handler):
        script = model

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    model.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: ScriptedModel

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/search":
            self._search(self.script.searxng)
        elif path == "/res/v1/web/search":
            self._search(self.script.brave)
        elif path == "/api/tags":
            self._json({"models": [{"name": "llama-scripted"}]})
        else:
            self._json({"object": "list", "data": _MODELS, "has_more": False})

    def do_POST(self) -> None:
        asked = self._asked()
        path = asked.path
        if path == "/api/show":
            self._json({"capabilities": ["completion", "tools"], "model_info": {"llama.context_length": 131_072}})
            return
        self.script.asked.append(asked)
        reply = self.script.next()
        if reply.status != 200:
            self._json(reply.error, status=reply.status)
        elif path == "/api/chat":
            self._stream(reply, _ollama(reply), "application/x-ndjson")
        elif path.endswith("/messages"):
            self._stream(reply, _anthropic(reply, self.script.call_ids(reply)), "text/event-stream")
        else:
            self._stream(reply, _chat_completions(reply, self.script.call_ids(reply)), "text/event-stream")

    def _asked(self) -> Asked:
        length = int(self.headers.get("content-length", 0))
        body = json.loads(self.rfile.read(length)) if length else {}
        address = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        return Asked(address.path, headers, body, parse_qs(address.query))

    def _search(self, answer: Any) -> None:
        self.script.searched.append(self._asked())
        if answer is None:
            self._json({"error": "down"}, status=503)
        else:
            self._json(answer)

    def _json(self, value: Any, *, status: int = 200) -> None:
        body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, reply: Reply, pieces: tuple[list[bytes], list[bytes]], content_type: str) -> None:
        words, rest = pieces
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for piece in words:
                self._piece(piece)
            if reply.held is not None:
                reply.held.wait(120)
            if reply.cut:
                self.close_connection = True
                return
            for piece in rest:
                self._piece(piece)
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True

    def _piece(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.flush()


_MODELS = [
    {
        "type": "model",
        "id": "gpt-scripted",
        "object": "model",
        "context_length": 32_000,
        "supported_parameters": ["tools"],
        "display_name": "Scripted",
        "max_input_tokens": 200_000,
    },
    {"id": "gpt-other", "object": "model", "context_length": 32_000, "supported_parameters": ["tools"]},
    {"id": "toolless", "object": "model", "context_length": 4_096, "supported_parameters": ["temperature"]},
]


def _arguments(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _split(text: str) -> list[str]:
    return [text[start : start + 5] for start in range(0, len(text), 5)]


def _chat_completions(reply: Reply, ids: list[str]) -> tuple[list[bytes], list[bytes]]:
    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        said = {"id": "c", "object": "chat.completion.chunk", "choices": choices} | more
        return f"data: {json.dumps(said)}\n\n".encode()

    words = [chunk({"role": "assistant", "content": ""})]
    words += [chunk({"reasoning_content": piece}) for piece in _split(reply.thinking)]
    words += [chunk({"content": piece}) for piece in _split(reply.text)]
    rest = []
    for number, (name, arguments) in enumerate(reply.calls):
        function: dict[str, Any] = {"name": name, "arguments": ""}
        start = {"index": number, "id": ids[number], "type": "function", "function": function}
        rest.append(chunk({"tool_calls": [start]}))
        rest += [
            chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]})
            for piece in _split(_arguments(arguments))
        ]
    rest.append(chunk({}, "tool_calls" if reply.calls else "stop"))
    usage = {"prompt_tokens": reply.input_tokens, "completion_tokens": 7, "total_tokens": reply.input_tokens + 7}
    rest.append(f"data: {json.dumps({'id': 'c', 'choices': [], 'usage': usage})}\n\n".encode())
    return words, [*rest, b"data: [DONE]\n\n"]


def _anthropic(reply: Reply, ids: list[str]) -> tuple[list[bytes], list[bytes]]:
    def event(kind: str, **fields: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind} | fields)}\n\n".encode()

    usage = {"input_tokens": reply.input_tokens, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "scripted", "content": [], "usage": usage}
    words, rest = [event("message_start", message=message)], []
    index = 0
    if reply.thinking:
        block = {"type": "thinking", "thinking": "", "signature": ""}
        words.append(event("content_block_start", index=index, content_block=block))
        for piece in _split(reply.thinking):
            words.append(event("content_block_delta", index=index, delta={"type": "thinking_delta", "thinking": piece}))
        words.append(event("content_block_delta", index=index, delta={"type": "signature_delta", "signature": "c2ln"}))
        words.append(event("content_block_stop", index=index))
        index += 1
    if reply.text:
        words.append(event("content_block_start", index=index, content_block={"type": "text", "text": ""}))
        for piece in _split(reply.text):
            words.append(event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece}))
        words.append(event("content_block_stop", index=index))
        index += 1
    for number, (name, arguments) in enumerate(reply.calls):
        use: dict[str, Any] = {"type": "tool_use", "id": ids[number], "name": name, "input": {}}
        rest.append(event("content_block_start", index=index, content_block=use))
        for piece in _split(_arguments(arguments)):
            delta = {"type": "input_json_delta", "partial_json": piece}
            rest.append(event("content_block_delta", index=index, delta=delta))
        rest.append(event("content_block_stop", index=index))
        index += 1
    stop = {"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None}
    rest.append(event("message_delta", delta=stop, usage={"output_tokens": 7}))
    return words, [*rest, event("message_stop")]


def _ollama(reply: Reply) -> tuple[list[bytes], list[bytes]]:
    def line(message: dict[str, Any], **more: Any) -> bytes:
        said = {"model": "scripted", "created_at": "2026-01-01T00:00:00Z", "done": False}
        return json.dumps(said | {"message": {"role": "assistant", "content": ""} | message} | more).encode() + b"\n"

    words = [line({"content": piece}) for piece in _split(reply.text)]
    rest = [
        line({"tool_calls": [{"function": {"name": name, "arguments": arguments}}]}) for name, arguments in reply.calls
    ]
    counts = {"prompt_eval_count": reply.input_tokens, "eval_count": 7}
    return words, [*rest, line({}, done=True, done_reason="stop", **counts)]

"""The client waits for an overloaded server as it is told, within a limit, and repeats nothing that may have begun."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from toolcrib.api.session_stream import encoded
from toolcrib.client import StreamMessage
from toolcrib.client.http_client import HttpClient, ServerUnavailable, StreamHandle

Answer = tuple[int, dict[str, str], dict[str, Any]]
DONE: Answer = (200, {}, {"done": True})


def refused(code: str, *, after: str = "0") -> Answer:
    return 503, {"Retry-After": after}, {"success": False, "error": "Try again.", "code": code}


@contextmanager
def answering(*answers: Answer) -> Iterator[tuple[HttpClient, list[str]]]:
    """Serve the answers in order, on a real socket. Yields a client, and the methods of the requests so far."""
    left, received = list(answers), list[str]()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            received.append(self.command)
            status, headers, body = left.pop(0)
            self.send_response(status)
            for name, value in {**headers, "Content-Type": "application/json"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        do_GET = do_POST = _answer

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    client = HttpClient(f"http://127.0.0.1:{server.server_port}", "token")
    try:
        yield client, received
    finally:
        client.close()
        server.shutdown()
        serving.join()
        server.server_close()


@pytest.mark.parametrize("code", ["OVERLOADED", "QUARANTINED"])
def test_request_that_was_not_begun_is_repeated(code: str) -> None:
    with answering(refused(code), refused(code), DONE) as (client, received):
        assert client.send("POST", "/things", {"a": 1}) == {"done": True}

    assert received == ["POST"] * 3


def test_streamed_call_that_was_not_begun_is_repeated() -> None:
    with answering(refused("OVERLOADED"), DONE) as (client, received):
        assert client.send_streamed("/things", {"a": 1}, lambda _: None) == {"done": True}

    assert received == ["POST"] * 2


def test_reading_is_repeated_whatever_is_unavailable() -> None:
    with answering(refused("UNAVAILABLE"), DONE) as (client, received):
        assert client.send("GET", "/things") == {"done": True}

    assert received == ["GET"] * 2


def test_request_that_may_have_begun_is_not_repeated() -> None:
    with answering(refused("UNAVAILABLE"), DONE) as (client, received), pytest.raises(ServerUnavailable):
        client.send("POST", "/things", {"a": 1})

    assert received == ["POST"]


def test_streamed_call_that_is_ended_while_it_waits_is_never_begun() -> None:
    handle = StreamHandle()
    with answering(refused("OVERLOADED", after="20"), DONE) as (client, received):
        ending = threading.Timer(0.2, handle.close)
        ending.start()
        began = time.monotonic()
        with pytest.raises(ServerUnavailable):
            client.send_streamed("/things", {"a": 1}, lambda _: None, handle)

    assert received == ["POST"]
    assert time.monotonic() - began < 10


def test_client_does_not_wait_for_longer_than_its_limit() -> None:
    began = time.monotonic()
    with answering(refused("OVERLOADED", after="3600"), DONE) as (client, received), pytest.raises(ServerUnavailable):
        client.send("POST", "/things", {"a": 1})

    assert received == ["POST"]
    assert time.monotonic() - began < 30


SEPARATORS = "one\u2028two\u2029three\x85four\x0bfive\x1csix"


@contextmanager
def streaming(*chunks: bytes) -> Iterator[HttpClient]:
    """Serve a stream of events on a real socket, in these chunks."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for chunk in chunks:
                self.wfile.write(chunk)
                self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    client = HttpClient(f"http://127.0.0.1:{server.server_port}", "token")
    try:
        yield client
    finally:
        client.close()
        server.shutdown()
        serving.join()
        server.server_close()


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_event_is_one_message_whatever_its_text_and_wherever_it_is_cut(size: int) -> None:
    message = StreamMessage(type="chat:text-delta", payload={"content": SEPARATORS}, seq=7)
    body = b": still here\n\n" + encoded(message.model_dump()) * 2
    with streaming(*(body[at : at + size] for at in range(0, len(body), size))) as client:
        assert list(client.stream(StreamMessage, "/events")) == [message, message]

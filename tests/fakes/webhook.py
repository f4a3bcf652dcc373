"""A webhook receiver that keeps what is posted to it as JSON."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Webhook:
    """A server on loopback; ``received`` lists the payloads in order."""

    def __init__(self, url: str, received: list[Any]) -> None:
        self.url = url
        self.received = received

    @classmethod
    @contextmanager
    def open(cls) -> Iterator[Self]:
        received: list[Any] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                received.append(json.loads(body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                """Logs nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                yield cls(f"http://127.0.0.1:{server.server_port}/", received)
            finally:
                server.shutdown()

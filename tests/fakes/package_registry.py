"""A package registry on loopback. It is as strict as a real one: other hosts and unknown paths are refused."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOST = "registry.example.com"


@dataclass
class PackageRegistry(ABC):
    """``requests`` are the methods and paths that were served or refused."""

    port: int = 0
    requests: list[str] = field(default_factory=list)

    @property
    def authority(self) -> str:
        """The host and port by which it is named."""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.authority}"

    @abstractmethod
    def answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        """Return the status, the content type and the body."""


@contextmanager
def serving(registry: PackageRegistry) -> Iterator[None]:
    """Serves a registry on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            registry.requests.append(f"{self.command} {self.path}")
            if self.headers.get("host") == registry.authority:
                status, content_type, body = registry.answer(self.command, self.path)
            else:
                status, content_type, body = 421, "text/plain", b"Another host"
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_POST = do_GET
        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()

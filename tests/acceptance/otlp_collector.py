"""A collector of traces that keeps what it receives: OTLP over HTTP, in protobuf, as OpenTelemetry's own collector."""

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.wait_until import PATIENCE

_LOOK_EVERY_SECONDS = 0.1


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it was exported, with ids in hex."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    is_error: bool


@dataclass
class Collector:
    """What was received so far."""

    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def take(self, body: bytes) -> None:
        self.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans.extend(_received(span) for span in scope.spans)

    def find(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def wait_for(self, is_there: Callable[[], bool]) -> None:
        """Wait until an export has brought something."""
        tick = threading.Event()
        for _ in range(int(PATIENCE / _LOOK_EVERY_SECONDS)):
            if is_there():
                return
            tick.wait(_LOOK_EVERY_SECONDS)
        raise AssertionError(f"After {PATIENCE} s there are: {sorted({span.name for span in self.spans})}")


@contextmanager
def otlp_collector() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}"
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        try:
            yield collector
        finally:
            server.shutdown()
            serving.join()


def _received(span: Any) -> ReceivedSpan:
    return ReceivedSpan(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes},
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        # STATUS_CODE_ERROR
        span.status.code == 2,
    )

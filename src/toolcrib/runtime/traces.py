"""Traces of a server, for OpenTelemetry. Off until ``open_tracing``; then a span costs what it must, before nothing.

Names and attributes are OpenTelemetry's conventions for HTTP, databases and generative AI. No span has contents: no
text of a message, argument, result or error.
"""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final
from uuid import UUID

from toolcrib.core.errors import Misconfigured

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

Attributes = Mapping[str, str | int | float | bool]

_tracer: "Tracer | None" = None
# The ids of the next span, if it does not get random ones.
_ids: ContextVar[tuple[int, int] | None] = ContextVar("span_ids", default=None)
# Whether the current work belongs to a request that was not sampled.
_is_left_out: ContextVar[bool] = ContextVar("is_left_out", default=False)
# Of frequent requests, this share has a trace: that of every read would cost about half of the read.
SAMPLED_SHARE: Final = 0.02
_CALLS: Final = ("/tools", "/mcp")
_LOW_64: Final = (1 << 64) - 1
_TIMEOUT_MILLISECONDS: Final = 5_000


class SpanNotes:
    """Where the code within a span notes what it learns. Without tracing, nowhere."""

    __slots__ = ("_span",)

    def __init__(self, span: "Span | None" = None) -> None:
        self._span = span

    def note(self, **attributes: str | float | bool | None) -> None:
        """Add attributes. A double underscore stands for a dot; those that are None are left out."""
        if self._span is not None:
            for name, value in attributes.items():
                if value is not None:
                    self._span.set_attribute(name.replace("__", "."), value)

    def rename(self, name: str) -> None:
        """Give the span its final name."""
        if self._span is not None:
            self._span.update_name(name)

    def fail(self, kind: str) -> None:
        """Mark the span as failed."""
        if self._span is not None:
            from opentelemetry.trace import StatusCode

            self._span.set_attribute("error.type", kind)
            self._span.set_status(StatusCode.ERROR)


_NOWHERE: Final = SpanNotes()
_OFF: Final = nullcontext(_NOWHERE)


@asynccontextmanager
async def open_tracing(endpoint: str | None, *, node: str, version: str) -> AsyncIterator[None]:
    """Send spans to the OTLP collector at this URL while the context lasts; without a URL, do nothing.

    The environment variables of OpenTelemetry, such as ``OTEL_TRACES_SAMPLER``, apply.

    Raises:
        Misconfigured: The libraries are not installed.
    """
    global _tracer
    if endpoint is None:
        yield
        return
    provider = await asyncio.to_thread(_provider, endpoint, node, version)
    _tracer = provider.get_tracer("toolcrib", version)
    try:
        yield
    finally:
        _tracer = None
        await asyncio.to_thread(provider.shutdown)


def _provider(endpoint: str, node: str, version: str) -> "TracerProvider":
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
    except ModuleNotFoundError:
        raise Misconfigured(
            "TOOLCRIB_OTLP_ENDPOINT is set, but traces need packages: pip install 'toolcrib[otel]'"
        ) from None

    class ChosenIds(RandomIdGenerator):
        def generate_trace_id(self) -> int:
            chosen = _ids.get()
            return chosen[0] if chosen else super().generate_trace_id()

        def generate_span_id(self) -> int:
            chosen = _ids.get()
            return chosen[1] if chosen else super().generate_span_id()

    about = {"service.name": "toolcrib", "service.version": version, "service.instance.id": node}
    provider = TracerProvider(resource=Resource.create(about), id_generator=ChosenIds(), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter, export_timeout_millis=_TIMEOUT_MILLISECONDS))
    return provider


def is_tracing() -> bool:
    """Return whether spans are sent anywhere."""
    return _tracer is not None


def span(name: str, attributes: Attributes) -> AbstractContextManager[SpanNotes]:
    """Open a span around a part of the work, below the current one."""
    if _tracer is None or _is_left_out.get():
        return _OFF
    return _within(_tracer.start_span(name, attributes=dict(attributes)))


def request_span(method: str, path: str, headers: Sequence[tuple[bytes, bytes]]) -> AbstractContextManager[SpanNotes]:
    """Open the span of a request, below the one that its ``traceparent`` header names.

    Without that, only a share of the frequent requests has one: those that read, and tool calls of clients.
    ``OTEL_TRACES_SAMPLER`` replaces this rule.
    """
    if _tracer is None:
        return _OFF
    if _may_be_left_out(method, path, headers) and random.random() >= SAMPLED_SHARE:  # noqa: S311 - no secret
        return _left_out()
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanKind
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    parent = TraceContextTextMapPropagator().extract(texts, Context())
    return _within(
        _tracer.start_span(method, context=parent, kind=SpanKind.SERVER, attributes={"http.request.method": method})
    )


def run_span(run_id: UUID, epoch: int, attributes: Attributes) -> AbstractContextManager[SpanNotes]:
    """Open the span of a process's work on a run.

    A run has a trace of its own, whose id is the run's: it outlives the request that submitted it, waits for people,
    and another process may continue it.
    """
    if _tracer is None:
        return _OFF
    from opentelemetry.context import Context

    # A task inherits this from the request that started it.
    _is_left_out.set(False)
    # Only this span: those below it get random ids.
    token = _ids.set(_ids_of_run(run_id, epoch))
    try:
        started = _tracer.start_span("invoke_agent", context=Context(), attributes=dict(attributes))
    finally:
        _ids.reset(token)
    return _within(started)


def link_to_run(run_id: UUID) -> None:
    """Link the current span, of the request that submits a run, to the run's first one."""
    if _tracer is None or _is_left_out.get():
        return
    from opentelemetry.trace import SpanContext, TraceFlags, get_current_span

    current = get_current_span()
    trace_id, span_id = _ids_of_run(run_id, 1)
    current.add_link(SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)))
    current.set_attribute("toolcrib.run.id", str(run_id))


def record_span(name: str, seconds: float, attributes: Attributes, *, error: str | None = None) -> None:
    """Record a request to another server that has just ended, below the current span."""
    if _tracer is None or _is_left_out.get():
        return
    from opentelemetry.trace import SpanKind

    now = time.time_ns()
    ended = _tracer.start_span(
        name, kind=SpanKind.CLIENT, attributes=dict(attributes), start_time=now - round(seconds * 1e9)
    )
    if error is not None:
        SpanNotes(ended).fail(error)
    ended.end(now)


def is_within_span() -> bool:
    """Return whether the current work has a span that is exported."""
    if _tracer is None or _is_left_out.get():
        return False
    from opentelemetry.trace import get_current_span

    return get_current_span().is_recording()


def _may_be_left_out(method: str, path: str, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    is_frequent = method == "GET" or path.endswith(_CALLS) or path.startswith("/mcp/")
    is_alone = all(name != b"traceparent" for name, _ in headers)
    return is_frequent and is_alone and "OTEL_TRACES_SAMPLER" not in os.environ


@contextmanager
def _left_out() -> Iterator[SpanNotes]:
    token = _is_left_out.set(True)
    try:
        yield _NOWHERE
    finally:
        _is_left_out.reset(token)


@contextmanager
def _within(started: "Span") -> Iterator[SpanNotes]:
    """Make a span the current one, and end it at the end."""
    from opentelemetry.trace import use_span

    notes = SpanNotes(started)
    # Not the library's record of an exception: its text may contain what a user wrote.
    with use_span(started, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield notes
        except BaseException as error:
            notes.fail(type(error).__name__)
            raise


def _ids_of_run(run_id: UUID, epoch: int) -> tuple[int, int]:
    return run_id.int, (run_id.int ^ epoch) & _LOW_64 or 1

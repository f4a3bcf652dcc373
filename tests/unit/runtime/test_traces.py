"""Which requests have a trace: every caller's own, all that may start a run, and a share of the frequent ones."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolcrib.core.ids import new_id
from toolcrib.runtime import traces
from toolcrib.runtime.traces import SAMPLED_SHARE, is_within_span, request_span, run_span, span

CALLS = [("GET", "/api/v1/status"), ("POST", "/api/v1/workspaces/w/tools"), ("POST", "/mcp"), ("POST", "/mcp/w")]
MANY = 400


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(traces, "_tracer", provider.get_tracer("test"))
    monkeypatch.delenv("OTEL_TRACES_SAMPLER", raising=False)
    return exporter


def requests(method: str, path: str, *headers: tuple[bytes, bytes]) -> None:
    for _ in range(MANY):
        with request_span(method, path, headers), span("inner", {}):
            assert traces.is_tracing()


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_share_of_the_frequent_requests_has_a_trace_with_all_that_is_below(
    spans: InMemorySpanExporter, method: str, path: str
) -> None:
    requests(method, path)

    found = spans.get_finished_spans()
    outer = [one for one in found if one.parent is None]
    assert 0 < len(outer) < MANY * SAMPLED_SHARE * 3
    assert len(found) == 2 * len(outer)


def test_every_other_request_and_every_callers_own_has_one(spans: InMemorySpanExporter) -> None:
    requests("POST", "/api/v1/workspaces/w/sessions/s/messages")
    requests(*CALLS[0], (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))

    assert len(spans.get_finished_spans()) == 4 * MANY


def test_operators_sampler_replaces_the_share(spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_on")
    requests(*CALLS[0])

    assert len(spans.get_finished_spans()) == 2 * MANY


def test_run_that_a_request_without_a_trace_has_started_has_one(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 1.0)
    with request_span(*CALLS[0], ()):
        with span("left out", {}):
            assert not is_within_span()
        with run_span(new_id(), 1, {}), span("inner", {}):
            assert is_within_span()

    assert [one.name for one in spans.get_finished_spans()] == ["inner", "invoke_agent"]

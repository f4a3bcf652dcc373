"""The metrics of a server process, for Prometheus. All are defined here; other modules only report what happened.

No label has a value that users choose, so that their number stays bounded and none says anything about contents.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, Info, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

import toolcrib
from toolcrib.core.runs import Run, RunEnding
from toolcrib.core.tool_calls import Outcome, OutcomeState, ToolCategory
from toolcrib.gate.call_stages import CallRequest
from toolcrib.providers.model_catalog import catalog_name, price
from toolcrib.providers.provider_registry import StreamedTurn
from toolcrib.sandbox.contained_process import SandboxStarts, starts
from toolcrib.storage.database import Database, OperationalError, PoolUse
from toolcrib.storage.server_state import ServerState, ServerStateStore
from toolcrib.tools.tool import Tool

log = structlog.get_logger(__name__)

# How long the database's answer is used again, however often the metrics are read.
_STATE_SECONDS: Final = 5.0
_STATE_TIMEOUT_SECONDS: Final = 2.0
_LAG_EVERY_SECONDS: Final = 0.5
_METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "WEBSOCKET"})

_HTTP_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
_CALL_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0, 600.0)
_MODEL_SECONDS: Final = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
_RUN_SECONDS: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
_LAG_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class ServerMetrics:
    """Counts what this process does, and renders it with the state of the database and of the process."""

    def __init__(self, database: Database) -> None:
        self._registry = CollectorRegistry()
        self._state = _StateCollector(ServerStateStore(database), lambda: database.pools)
        self._registry.register(self._state)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        Info("toolcrib_build", "The version of the server.", registry=self._registry).info(
            {"version": toolcrib.__version__}
        )
        self._requests = self._counter(
            "toolcrib_http_requests", "HTTP requests and WebSocket connections.", "route", "method", "status"
        )
        self._request_seconds = self._histogram(
            "toolcrib_http_request_duration_seconds",
            "Time until a response begins.",
            "route",
            "method",
            buckets=_HTTP_SECONDS,
        )
        self._calls = self._counter("toolcrib_calls", "Tool calls that ended or paused.", "tool", "outcome")
        self._call_seconds = self._histogram(
            "toolcrib_call_duration_seconds", "Time from a call to its outcome.", "tool", buckets=_CALL_SECONDS
        )
        self._runs = self._counter("toolcrib_runs_ended", "Runs that this process ended.", "ending")
        self._run_seconds = self._histogram(
            "toolcrib_run_duration_seconds", "Time from a message to the end of its run.", buckets=_RUN_SECONDS
        )
        model = ("provider", "model")
        self._turns = self._counter("toolcrib_model_requests", "Requests to models.", *model, "outcome")
        self._turn_seconds = self._histogram(
            "toolcrib_model_request_duration_seconds", "Time to a whole answer.", *model, buckets=_MODEL_SECONDS
        )
        self._first_token_seconds = self._histogram(
            "toolcrib_model_first_token_seconds",
            "Time to the first token of an answer.",
            *model,
            buckets=_MODEL_SECONDS,
        )
        self._tokens = self._counter("toolcrib_model_tokens", "Tokens that models used.", *model, "direction")
        self._cost = self._counter("toolcrib_model_cost_dollars", "Cost of models with known prices.", *model)
        self._lag = self._histogram(
            "toolcrib_event_loop_lag_seconds", "How late the event loop runs a timer.", buckets=_LAG_SECONDS
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self._registry)

    def request_ended(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            route: The template of its path.
            seconds: Until its response began.
        """
        method = method if method in _METHODS else "other"
        self._requests.labels(route, method, str(status)).inc()
        self._request_seconds.labels(route, method).observe(seconds)

    def call_ended(self, request: CallRequest, ended: Outcome | BaseException) -> None:
        """Count a call."""
        tool = _tool_label(request.tool)
        self._calls.labels(tool, _outcome_label(ended)).inc()
        self._call_seconds.labels(tool).observe((time.perf_counter_ns() - request.received_ns) / 1e9)

    def run_ended(self, run: Run, ending: RunEnding) -> None:
        """Count a run."""
        self._runs.labels(ending.value).inc()
        self._run_seconds.observe(max(0.0, time.time() - run.created_at.timestamp()))

    def turn_ended(self, turn: StreamedTurn) -> None:
        """Count a request to a model, with its tokens and its cost."""
        labels = (turn.provider, catalog_name(turn.provider, turn.model) or "other")
        outcome = turn.error.kind.value if turn.error else "done" if turn.finished else "cancelled"
        self._turns.labels(*labels, outcome).inc()
        self._turn_seconds.labels(*labels).observe(time.monotonic() - turn.started)
        if turn.first_token is not None:
            self._first_token_seconds.labels(*labels).observe(turn.first_token - turn.started)
        self._tokens.labels(*labels, "input").inc(turn.usage.input_tokens)
        self._tokens.labels(*labels, "output").inc(turn.usage.output_tokens)
        if (cost := price(turn.provider, turn.model, turn.usage)) is not None:
            self._cost.labels(*labels).inc(float(cost.total))

    def watch_queues(self, waiting: Callable[[], Mapping[str, int]]) -> None:
        """Include the length of the queues of this process."""
        self._state.waiting = waiting

    async def measure_loop_lag(self) -> None:
        """Measure how late timers run, until cancelled."""
        while True:
            due = time.monotonic() + _LAG_EVERY_SECONDS
            await asyncio.sleep(_LAG_EVERY_SECONDS)
            self._lag.observe(max(0.0, time.monotonic() - due))

    async def render(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics in the text format that the reader accepts, and its content type."""
        await self._state.refresh()
        encode, content_type = choose_encoder(accept)
        # In a thread: thousands of lines take milliseconds.
        return await asyncio.to_thread(encode, self._registry), content_type

    def names(self) -> frozenset[str]:
        """Return the names of our metrics as they are exposed: those of counters with ``_total``."""
        suffix = {"counter": "_total", "info": "_info"}
        return frozenset(
            metric.name + suffix.get(metric.type, "")
            for metric in self._registry.collect()
            if metric.name.startswith("toolcrib_")
        )


def _tool_label(tool: Tool | None) -> str:
    if tool is None:
        return "unknown"
    return "mcp" if tool.category is ToolCategory.MCP else tool.name


def _outcome_label(ended: Outcome | BaseException) -> str:
    if isinstance(ended, asyncio.CancelledError):
        return "cancelled"
    if isinstance(ended, BaseException):
        return "error"
    if ended.state is OutcomeState.DONE:
        return "done" if ended.error is None else "failed"
    return ended.state.value


_NOTHING: Final = ServerState(0, 0, 0.0, 0.0, 0, 0, 0, 0, 0, 0.0, 0, 0, 0, 0)


class _StateCollector(Collector):
    """What is measured when it is read: the queues, the pools, and what waits in the database."""

    def __init__(self, store: ServerStateStore, pools: Callable[[], Mapping[str, PoolUse]]) -> None:
        self._store = store
        self._pools = pools
        self.waiting: Callable[[], Mapping[str, int]] = dict
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()
        # None if the database does not answer: old numbers would look like good ones.
        self._state: ServerState | None = _NOTHING

    async def refresh(self) -> None:
        """Read the database, unless that was done a moment ago."""
        async with self._reading:
            if time.monotonic() < self._read_at + _STATE_SECONDS:
                return
            try:
                async with asyncio.timeout(_STATE_TIMEOUT_SECONDS):
                    self._state = await self._store.read()
            except (OperationalError, TimeoutError) as error:
                log.warning("metrics.state_not_read", error=str(error))
                self._state = None
            self._read_at = time.monotonic()

    def collect(self) -> Iterator[Metric]:
        """Yield what was read last, and what the process has now."""
        yield GaugeMetricFamily(
            "toolcrib_database_up", "Whether the database answered.", value=float(self._state is not None)
        )
        yield from _pool_metrics(self._pools())
        yield _sandbox_metric(starts)
        queues = dict(self.waiting())
        if self._state is not None:
            queues |= {"runs": self._state.ready_runs, "approved_calls": self._state.due_calls}
            yield from _state_metrics(self._state)
        yield _gauge("toolcrib_queue_depth", "What waits for its turn.", "queue", queues)


def _state_metrics(state: ServerState) -> Iterator[Metric]:
    yield _gauge(
        "toolcrib_approvals_pending",
        "Calls that wait for a person, in the whole installation.",
        "kind",
        {"approval": state.pending_approvals, "question": state.pending_questions},
    )
    yield _gauge(
        "toolcrib_approval_oldest_age_seconds",
        "For how long the oldest of them has waited.",
        "kind",
        {"approval": state.oldest_approval_seconds, "question": state.oldest_question_seconds},
    )
    yield _gauge(
        "toolcrib_runs",
        "Unfinished runs of the whole installation.",
        "state",
        {
            "queued": state.queued_runs,
            "ready": state.ready_runs,
            "running": state.running_runs,
            "waiting": state.waiting_runs,
        },
    )
    yield _gauge(
        "toolcrib_unattended",
        "What no process attends to, in the whole installation. There should be none.",
        "kind",
        {
            "run": state.unattended_runs,
            "approved_call": state.unattended_approved_calls,
            "call": state.unattended_calls,
            "schedule": state.unattended_schedules,
        },
    )
    yield GaugeMetricFamily(
        "toolcrib_audit_seal_lag_seconds", "Age of the oldest audit record without a seal.", state.unsealed_seconds
    )


def _pool_metrics(pools: Mapping[str, PoolUse]) -> Iterator[Metric]:
    connections = GaugeMetricFamily(
        "toolcrib_database_pool_connections", "Open database connections.", labels=("pool", "state")
    )
    for name, pool in pools.items():
        connections.add_metric((name, "idle"), pool.idle)
        connections.add_metric((name, "used"), pool.open - pool.idle)
    yield connections
    prefix = "toolcrib_database_pool"
    yield _gauge(f"{prefix}_max_connections", "Their limit.", "pool", {n: p.maximum for n, p in pools.items()})
    yield _gauge(f"{prefix}_waiting", "Statements that wait for one.", "pool", {n: p.waiting for n, p in pools.items()})
    counted: tuple[tuple[str, str, Callable[[PoolUse], float]], ...] = (
        ("requests", "How often a connection was requested.", lambda pool: pool.requests),
        ("errors", "How often none was free in time.", lambda pool: pool.errors),
        ("wait_seconds", "Time that statements waited for a connection.", lambda pool: pool.waited_seconds),
    )
    for what, text, value in counted:
        family = CounterMetricFamily(f"{prefix}_{what}", text, labels=("pool",))
        for name, pool in pools.items():
            family.add_metric((name,), value(pool))
        yield family


def _sandbox_metric(counted: SandboxStarts) -> Metric:
    family = CounterMetricFamily(
        "toolcrib_sandbox_starts", "Programs that were started in a sandbox.", labels=("outcome",)
    )
    family.add_metric(("started",), counted.succeeded)
    family.add_metric(("failed",), counted.failed)
    return family


def _gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for value, number in values.items():
        family.add_metric((value,), number)
    return family

"""Submits, finds and cancels runs. The entry point for the API, the SDK and the CLI."""

from collections.abc import Iterator, Mapping, Sequence

from toolcrib.core.ids import CallId, MessageId, RunId, SessionId
from toolcrib.core.runs import RequestedCallState, Run, SessionMessage
from toolcrib.events.event_bus import EventPublisher, WakeSignal
from toolcrib.runs.loaded_run import CallProgress
from toolcrib.runs.run_worker import RunWorker
from toolcrib.storage.database import Tenant
from toolcrib.storage.runs import RunStore


class RunService:
    """Submits runs. Without a worker in this process, another process executes them."""

    def __init__(
        self, runs: RunStore, wake_signal: WakeSignal, live: EventPublisher, *, runner: RunWorker | None = None
    ) -> None:
        self._runs = runs
        self._wake_signal = wake_signal
        self._live = live
        self._runner = runner

    async def submit(
        self,
        tenant: Tenant,
        session_id: SessionId,
        text: str,
        *,
        via: str,
        history: Sequence[tuple[str, str]] = (),
    ) -> Run:
        """Submit a person's message. Its run starts now, or after the session's current run.

        Args:
            history: The earlier conversation, if the client keeps it itself. Only a session's first message may bring
                it.
        """
        run = await self._runs.submit(tenant, session_id, text, via=via, history=history)
        self._live.notify(run.workspace_id, run.session_id)
        self._wake_signal.notify()
        return run

    async def cancel(self, tenant: Tenant, run_id: RunId) -> Run:
        """Cancel a run within a second, on whatever node it is. What it has changed stays and can be undone."""
        run = await self._runs.cancel(tenant, run_id)
        if self._runner is not None:
            self._runner.cancel(run_id)
        self._live.notify(run.workspace_id, run.session_id)
        self._wake_signal.notify()
        return run

    async def current(self, tenant: Tenant, session_id: SessionId) -> Run | None:
        """Return the session's run that has not ended, if there is one."""
        return await self._runs.unfinished(tenant, session_id)

    async def get(self, tenant: Tenant, run_id: RunId) -> Run:
        """Return one run."""
        return await self._runs.get(tenant, run_id)

    async def page(self, tenant: Tenant, session_id: SessionId, *, before: RunId | None, limit: int) -> list[Run]:
        """Return one page of a session's runs."""
        return await self._runs.page(tenant, session_id, before=before, limit=limit)

    async def messages(
        self, tenant: Tenant, session_id: SessionId, *, after: int, limit: int, results: bool = False
    ) -> list[SessionMessage]:
        """Return the messages in order; with ``results``, each call's result follows the message that requested it."""
        found = await self._runs.messages(tenant, session_id, after=after, limit=limit)
        if not results:
            return found
        ids = [call_id for one in found for call_id in one.call_ids]
        rows = await self._runs.calls_in(tenant.workspace_id, ids)
        calls = {call_id: CallProgress.of(row) for call_id, row in rows.items()}
        return [each for one in found for each in (one, *_results(one, calls))]


def _results(one: SessionMessage, calls: Mapping[CallId, CallProgress]) -> Iterator[SessionMessage]:
    """Yield the results that the model received for the calls of a message, as tool messages."""
    for call_id, call in zip(one.call_ids, (one.metadata or {}).get("tool_calls", ()), strict=True):
        view = calls.get(call_id)
        if view is not None and view.state is RequestedCallState.ENDED:
            text, failed = view.result_text
            metadata = {"tool_call_id": call["id"], "call_id": str(call_id)} | ({"is_error": True} if failed else {})
            yield SessionMessage(MessageId(call_id), one.position, one.run_id, "tool", text, metadata, one.created_at)

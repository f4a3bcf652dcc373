"""Submits and cancels runs, and shows their messages. The entry point for the API, the SDK and the CLI."""

from collections.abc import Iterator, Mapping, Sequence

from toolcrib.core.ids import CallId, MessageId, RunId, SessionId
from toolcrib.core.runs import DEFAULT_PRIORITY, RequestedCallState, Run, SessionMessage
from toolcrib.events.event_bus import EventPublisher, WakeSignal
from toolcrib.policy.model_results import CallProgress
from toolcrib.runs.run_worker import RunWorker
from toolcrib.runtime.traces import link_to_run
from toolcrib.storage.database import Tenant
from toolcrib.storage.run_steps import RunStepStore


class RunService:
    """Submits runs. Without a worker in this process, another process executes them. ``runs`` finds them."""

    def __init__(
        self, runs: RunStepStore, wake_signal: WakeSignal, live: EventPublisher, *, runner: RunWorker | None = None
    ) -> None:
        self.runs = runs
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
        priority: int = DEFAULT_PRIORITY,
        attachments: Sequence[Mapping[str, str]] = (),
    ) -> Run:
        """Submit a person's message. Its run starts now, or after the session's current run.

        Args:
            history: The earlier conversation, if the client keeps it itself. Only a session's first message may bring
                it.
            attachments: The path and the call of each file that the message brings.
            priority: From 0 to 1000. Lower ones start first among the workspace's runs; below 100 for owners only.
        """
        run = await self.runs.submit(
            tenant, session_id, text, via=via, history=history, priority=priority, attachments=attachments
        )
        self.announce(run)
        return run

    async def compact(self, tenant: Tenant, session_id: SessionId, *, via: str) -> Run:
        """Submit a run that replaces the session's older messages by a summary, now or after its current run."""
        run = await self.runs.submit(tenant, session_id, "/compact", via=via, compacts=True)
        self.announce(run)
        return run

    async def retry(self, tenant: Tenant, run_id: RunId, *, via: str) -> Run:
        """Submit the message of a run that failed, was cancelled or used up a budget again, as a new run.

        Raises:
            Conflict: The run has not ended, or ended otherwise.
        """
        run = await self.runs.retry(tenant, run_id, via=via)
        self.announce(run)
        return run

    async def cancel(self, tenant: Tenant, run_id: RunId) -> Run:
        """Cancel a run and its child runs, within a second on whatever node. What they changed stays and can be undone.

        The session's queued messages are held.
        """
        run = await self.runs.cancel(tenant, run_id)
        cancelled = [run_id, *await self.runs.children(tenant, run_id)]
        if self._runner is not None:
            for one in cancelled:
                self._runner.cancel(one)
        self._live.notify(run.workspace_id, run.session_id)
        self._wake_signal.notify(run.workspace_id, cancelled)
        return run

    async def release(self, tenant: Tenant, run_id: RunId) -> Run:
        """Release a message that a stop held."""
        run = await self.runs.release_held(tenant, run_id)
        self.announce(run)
        return run

    def announce(self, run: Run) -> None:
        """Tell subscribers and workers of a run that was submitted."""
        link_to_run(run.id)
        self._live.notify(run.workspace_id, run.session_id)
        self._wake_signal.notify(run.workspace_id, [run.id])

    async def messages(
        self,
        tenant: Tenant,
        session_id: SessionId,
        *,
        run_id: RunId | None = None,
        after: int,
        limit: int,
        results: bool = False,
    ) -> list[SessionMessage]:
        """Return the messages in order, all or those of a run.

        With ``results``, each call's result follows the message that requested it.
        """
        found = await self.runs.messages(tenant, session_id, run_id=run_id, after=after, limit=limit)
        if not results:
            return found
        ids = [call_id for one in found for call_id in one.call_ids]
        calls = await self.runs.calls(tenant.workspace_id, ids)
        return [each for one in found for each in (one, *_results(one, calls))]


def _results(one: SessionMessage, calls: Mapping[CallId, CallProgress]) -> Iterator[SessionMessage]:
    """Yield the results that the model received for the calls of a message, as tool messages."""
    for call_id, call in one.requested:
        view = calls.get(call_id)
        if view is not None and view.state is RequestedCallState.ENDED:
            text, failed = view.result_text
            metadata = {"tool_call_id": call["id"], "call_id": str(call_id)} | ({"is_error": True} if failed else {})
            yield SessionMessage(MessageId(call_id), one.position, one.run_id, "tool", text, metadata, one.created_at)

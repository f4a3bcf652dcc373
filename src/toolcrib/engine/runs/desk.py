"""Where runs are handed in, looked up and stopped. What every face of the program speaks to."""

from collections.abc import Sequence

from toolcrib.domain.ids import RunId, SessionId
from toolcrib.domain.runs import Run, Said
from toolcrib.engine.bell import Bell
from toolcrib.engine.runs.runner import Runner
from toolcrib.engine.watchers import Watchers
from toolcrib.storage.database import Tenant
from toolcrib.storage.runs import Runs


class Desk:
    """Hands runs in. Without a runner of its own, another process takes them."""

    def __init__(self, runs: Runs, bell: Bell, live: Watchers, *, runner: Runner | None = None) -> None:
        self._runs = runs
        self._bell = bell
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
        """A message of a person; its run begins now, or after the one that the session has.

        ``history`` is what a client that keeps the conversation itself says came before; only a session's first
        message brings it along.
        """
        run = await self._runs.submit(tenant, session_id, text, via=via, history=history)
        self._live.wake(run.workspace_id, run.session_id)
        self._bell.ring()
        return run

    async def cancel(self, tenant: Tenant, run_id: RunId) -> Run:
        """Stops a run within a second, wherever it is carried on. What it has done stays, and can be undone."""
        run = await self._runs.cancel(tenant, run_id)
        if self._runner is not None:
            self._runner.cancel(run_id)
        self._live.wake(run.workspace_id, run.session_id)
        self._bell.ring()
        return run

    async def unfinished(self, tenant: Tenant, session_id: SessionId) -> Run | None:
        """The run that a session has, if it has one that has not ended."""
        return await self._runs.unfinished(tenant, session_id)

    async def get(self, tenant: Tenant, run_id: RunId) -> Run:
        return await self._runs.get(tenant, run_id)

    async def page(self, tenant: Tenant, session_id: SessionId, *, before: RunId | None, limit: int) -> list[Run]:
        return await self._runs.page(tenant, session_id, before=before, limit=limit)

    async def messages(self, tenant: Tenant, session_id: SessionId, *, after: int, limit: int) -> list[Said]:
        return await self._runs.messages(tenant, session_id, after=after, limit=limit)

"""Run agents in this process, on a fresh database, with the model in another process, to separate their CPU time."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.engines import bench_settings, new_caller
from bench.servers import free_port
from toolcrib.core.ids import AgentId, RunId, SessionId, new_id
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.core.runs import Run
from toolcrib.providers.provider_registry import open_providers
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.runs.run_service import RunService
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.users import ActingUser
from toolcrib.wiring.runs import run_executor, run_service
from toolcrib.wiring.tool_runtime import Stores, assemble

FILES, BYTES = 20, 2_048
_RULES = """
provider: openai-compatible
model: {model}
trust: autonomous
toolsets: [project]
context_window: 10000000
tool_permissions: {{read_file: {{allowed: true}}}}
"""


@dataclass(frozen=True)
class ModelProcess:
    """A model in its own process."""

    url: str
    pid: int


@contextmanager
def model_server() -> Iterator[ModelProcess]:
    port = free_port()
    with subprocess.Popen([sys.executable, "-m", "bench.model", str(port)]) as process:
        try:
            yield ModelProcess(f"http://127.0.0.1:{port}/v1", process.pid)
        finally:
            process.terminate()


@dataclass(frozen=True)
class Cluster:
    """A person who sends messages, and the run worker that answers them."""

    stores: Stores
    runs: RunService
    tenant: Tenant
    _over: dict[RunId, asyncio.Event] = field(default_factory=dict)

    async def agent(self, model: str) -> AgentId:
        made = await self.stores.agents.create(
            self.tenant, name=f"{model} {new_id()}", definition=_RULES.format(model=model)
        )
        return made.id

    async def session(self, agent: AgentId) -> SessionId:
        return (await self.stores.sessions.create(self.tenant, agent_id=agent)).id

    async def answer(self, session: SessionId, text: str = "Read the sample files one by one and report.") -> str:
        """Send a message and return the model's final text."""
        run = await self.runs.submit(self.tenant, session, text, via="bench")
        ended = await self.ended(run)
        if ended.end_reason != "done":
            raise SystemExit(f"The run ended as {ended.end_reason}: {ended.error}")
        said = await self.runs.messages(self.tenant, session, after=0, limit=500)
        return said[-1].content

    async def ended(self, run: Run) -> Run:
        """Wait for the end of a run without polling, which would cost more than the work."""
        await self._over.setdefault(run.id, asyncio.Event()).wait()
        del self._over[run.id]
        return await self.runs.runs.get(self.tenant, run.id)

    def note_end(self, run: Run) -> None:
        """Note a run that the worker has finished with."""
        self._over.setdefault(run.id, asyncio.Event()).set()


@asynccontextmanager
async def cluster(database_name: str, scratch: Path, model_url: str) -> AsyncIterator[Cluster]:
    settings = bench_settings(database_name, scratch / "data")
    async with AsyncExitStack() as opened:
        database = await opened.enter_async_context(Database.open(settings.database_url, settings.system_url))
        providers = await opened.enter_async_context(open_providers(private_hosts=["*"]))
        heartbeat = opened.enter_context(
            ProcessHeartbeat.start(settings.system_url, node=settings.node_name, lease=settings.heartbeat_lease_seconds)
        )
        engine = assemble(settings, database, process_id=heartbeat.id)
        execute = run_executor(engine, providers)

        async def execute_and_note(run: Run) -> None:
            await execute(run)
            made.note_end(run)

        front = await opened.enter_async_context(run_service(engine, execute_and_note, heartbeat))
        caller = await new_caller(engine.stores)
        tenant, owner = Tenant.of(caller), ActingUser(caller.user_id)
        await engine.stores.access.store(owner, "openai-compatible", ProviderCredentials("x", model_url))
        project = settings.data_dir / "workspaces" / str(tenant.workspace_id) / "project"
        project.mkdir(parents=True, exist_ok=True)
        for number in range(FILES):
            (project / f"sample-{number:04d}.txt").write_text(f"line of sample {number}\n" * (BYTES // 20))
        made = Cluster(engine.stores, front, tenant)
        yield made

"""Run agents in this process, on a fresh database, with the model in another process, to separate their CPU time."""

import asyncio
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from bench.servers import free_port, url_of
from toolcrib.core.ids import AgentId, RunId, SessionId, UserId, new_id
from toolcrib.core.runs import Run
from toolcrib.providers.provider_registry import open_providers
from toolcrib.runs.process_heartbeat import ProcessHeartbeat
from toolcrib.runs.run_service import RunService
from toolcrib.settings import Settings
from toolcrib.storage import migrate
from toolcrib.storage.agents import AgentStore
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.provider_credentials import ProviderCredentialStore, StoredProviderCredentials
from toolcrib.storage.sessions import SessionStore
from toolcrib.storage.users import ActingUser, UserStore
from toolcrib.storage.workspaces import WorkspaceStore
from toolcrib.wiring import assemble, credentials_lock, run_service

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

    database: Database
    runs: RunService
    tenant: Tenant
    _over: dict[RunId, asyncio.Event] = field(default_factory=dict)

    async def agent(self, model: str) -> AgentId:
        made = await AgentStore(self.database).create(
            self.tenant, name=f"{model} {new_id()}", definition=_RULES.format(model=model)
        )
        return made.id

    async def session(self, agent: AgentId) -> SessionId:
        return (await SessionStore(self.database).create(self.tenant, agent_id=agent)).id

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
        return await self.runs.get(self.tenant, run.id)

    def listen(self) -> None:
        """Note a run that the worker has finished with."""
        runner = self.runs._runner
        assert runner is not None
        advance = runner._advance

        async def advance_and_signal(run: Run) -> None:
            await advance(run)
            self._over.setdefault(run.id, asyncio.Event()).set()

        runner._advance = advance_and_signal


@asynccontextmanager
async def cluster(database_name: str, scratch: Path, model_url: str) -> AsyncIterator[Cluster]:
    settings = Settings(
        database_url=url_of(database_name, migrate.APP_ROLE),
        system_database_url=url_of(database_name, migrate.SYSTEM_ROLE),
        jwt_secret=SecretStr(secrets.token_urlsafe(48)),
        audit_seal_key=SecretStr(secrets.token_urlsafe(48)),
        data_dir=scratch / "data",
        node_name="bench",
    )
    async with AsyncExitStack() as opened:
        database = await opened.enter_async_context(Database.open(settings.database_url, settings.system_url))
        providers = await opened.enter_async_context(open_providers(private_hosts=["*"]))
        heartbeat = opened.enter_context(
            ProcessHeartbeat.start(settings.system_url, node=settings.node_name, lease=settings.heartbeat_lease_seconds)
        )
        engine = assemble(settings, database, process_id=heartbeat.id)
        front = await opened.enter_async_context(run_service(settings, database, engine, providers, heartbeat))
        tenant = await _tenant(database, settings.node_name)
        access = ProviderCredentialStore(database, credentials_lock(settings))
        await access.store(ActingUser(_user(tenant)), "openai-compatible", StoredProviderCredentials("x", model_url))
        project = settings.data_dir / "workspaces" / str(tenant.workspace_id) / "project"
        project.mkdir(parents=True, exist_ok=True)
        for number in range(FILES):
            (project / f"sample-{number:04d}.txt").write_text(f"line of sample {number}\n" * (BYTES // 20))
        made = Cluster(database, front, tenant)
        made.listen()
        yield made


async def _tenant(database: Database, node: str) -> Tenant:
    profile = await UserStore(database).create_user(email=f"{new_id()}@example.org", full_name=None, password_hash="x")
    workspace = await WorkspaceStore(database).create(ActingUser(profile.user_id), name="bench", node=node)
    return Tenant(workspace.id, profile.user_id)


def _user(tenant: Tenant) -> UserId:
    assert tenant.user_id is not None
    return tenant.user_id

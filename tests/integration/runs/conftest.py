"""A workspace with an agent, a scripted model, and the loop that executes runs."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.fakes import wires
from tests.fakes.model_server import KEY, Answer, ModelServer, model_server
from tests.fakes.scripted_turns import Scene, SceneCall
from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import hired
from toolcrib.core.approvals import ApprovalDecision
from toolcrib.core.callers import Agent, SessionMode
from toolcrib.core.ids import ProcessId, RunId, SessionId, new_id
from toolcrib.core.model_stream import FinishReason
from toolcrib.core.runs import Run, RunState, SessionMessage
from toolcrib.providers.provider_registry import ProviderRegistry, open_providers
from toolcrib.runs.run_executor import RunExecutor
from toolcrib.storage.database import Tenant
from toolcrib.storage.provider_credentials import ProviderCredentialStore, StoredProviderCredentials
from toolcrib.storage.runs import RunStore
from toolcrib.storage.sessions import SessionStore
from toolcrib.storage.users import ActingUser
from toolcrib.wiring import advancing, credentials_lock

MODEL = "gpt-fake"


def says(text: str = "", *calls: tuple[str, dict[str, Any]], **more: Any) -> Answer:
    """A response of the model: text, calls, or both."""
    scene = Scene(
        text=text,
        calls=tuple(SceneCall(f"call_{new_id()}", name, json.dumps(args)) for name, args in calls),
        reason=FinishReason.TOOL_CALLS if calls else FinishReason.STOP,
        **more,
    )
    return Answer(tuple(wires.chat_completions(scene, MODEL)))


@dataclass
class RunFixture:
    """A session with a scripted model, whose runs are executed by hand as a server would."""

    workspace: WorkspaceFixture
    model: ModelServer
    providers: ProviderRegistry
    agent: Agent
    session_id: SessionId

    @property
    def tenant(self) -> Tenant:
        return Tenant.of(self.workspace.caller)

    @property
    def runs(self) -> RunStore:
        return RunStore(self.workspace.database)

    @property
    def advance(self) -> RunExecutor:
        return advancing(self.workspace.settings, self.workspace.database, self.workspace.engine, self.providers)

    async def send(self, text: str, *answers: Answer) -> Run:
        """Send a message and execute its run until it ends or waits."""
        self.model.say(*answers)
        run = await self.runs.submit(self.tenant, self.session_id, text, via="test")
        await self.carry_on()
        return await self.run(run.id)

    async def carry_on(self, *, process: ProcessId | None = None) -> None:
        """Claim and execute ready runs of this workspace, as a server would, until none is left."""
        while taken := await self.take(process or ProcessId(new_id())):
            for run in taken:
                await self.advance(run)

    async def take(self, process: ProcessId) -> list[Run]:
        claimed = await self.runs.claim(process, node=self.workspace.settings.node_name, lease=0.0, limit=50)
        return [run for run in claimed if run.workspace_id == self.workspace.caller.workspace_id]

    async def run(self, run_id: RunId) -> Run:
        return await self.runs.get(self.tenant, run_id)

    async def messages(self) -> list[SessionMessage]:
        return await self.runs.messages(self.tenant, self.session_id)

    async def events(self) -> list[tuple[str, dict[str, Any]]]:
        found = await SessionStore(self.workspace.database).events_after(self.tenant, self.session_id, 0, limit=500)
        return [(event.type, dict(event.payload)) for event in found]

    async def decide(self, decision: ApprovalDecision) -> None:
        for approval in await self.workspace.engine.approvals.open(self.tenant, session_id=self.session_id):
            await self.workspace.engine.approvals.decide(self.tenant, approval.id, decision, via="test")

    def model_input(self, request: int = -1) -> list[dict[str, Any]]:
        """Return the messages of a request to the model."""
        return list(self.model.received[request].body["messages"])

    async def is_complete(self) -> bool:
        """Return whether every run and every call of the session has ended."""
        page = await self.runs.page(self.tenant, self.session_id)
        ids = [call_id for one in await self.messages() for call_id in one.call_ids]
        calls = await self.runs.calls(page[0], ids)
        return all(run.state is RunState.ENDED for run in page) and all(
            call_id in calls and calls[call_id].state == "ended" for call_id in ids
        )


@pytest.fixture
async def providers() -> AsyncIterator[ProviderRegistry]:
    async with open_providers(private_hosts=["*"]) as opened:
        yield opened


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with model_server() as server:
        yield server


@pytest.fixture
async def run_fixture(workspace: WorkspaceFixture, model: ModelServer, providers: ProviderRegistry) -> RunFixture:
    return await opened_office(workspace, model, providers)


async def opened_office(
    workspace: WorkspaceFixture,
    server: ModelServer,
    providers: ProviderRegistry,
    /,
    *,
    mode: SessionMode = SessionMode.BUILD,
    **rules: Any,
) -> RunFixture:
    given: dict[str, Any] = {
        "provider": "openai-compatible",
        "model": MODEL,
        "trust": "autonomous",
        "toolsets": ["workspace", "mounts", "studio"],
        "context_window": 100_000,
        "tool_permissions": {
            name: {"allowed": True}
            for name in ("read", "write", "edit", "ls", "rm", "fs.read", "ask_user", "file_write", "plan_write",
                         "exit_plan_mode")
        },
    }  # fmt: skip
    agent = (await hired(workspace, **{**given, **rules})).agent
    assert agent is not None
    access = ProviderCredentialStore(workspace.database, credentials_lock(workspace.settings))
    await access.store(
        ActingUser(workspace.caller.user_id), "openai-compatible", StoredProviderCredentials(KEY, f"{server.url}/v1")
    )
    session = await SessionStore(workspace.database).create(Tenant.of(workspace.caller), agent_id=agent.id, mode=mode)
    return RunFixture(workspace, server, providers, agent, session.id)


def yes() -> ApprovalDecision:
    return ApprovalDecision(approved=True)


def no(reason: str = "No.") -> ApprovalDecision:
    return replace(yes(), approved=False, reason=reason)

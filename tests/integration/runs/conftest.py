"""A workspace with an agent, a scripted model, and the loop that executes runs."""

import json
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from tests.fakes import wires
from tests.fakes.model_server import KEY, Answer, ModelServer
from tests.fakes.scripted_turns import Scene, SceneCall
from tests.integration.conftest import WorkspaceFixture
from toolcrib.core.callers import Agent, SessionMode
from toolcrib.core.ids import ProcessId, RunId, SessionId, new_id
from toolcrib.core.model_stream import FinishReason
from toolcrib.core.paused_calls import ApprovalDecision
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.core.runs import Run, RunState, SessionMessage
from toolcrib.gate.call_pipeline import Gate
from toolcrib.providers.provider_registry import ProviderRegistry
from toolcrib.runs.run_executor import RunExecutor
from toolcrib.storage.database import Tenant
from toolcrib.storage.run_steps import RunStepStore
from toolcrib.storage.users import ActingUser
from toolcrib.wiring.runs import run_executor

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
        return self.workspace.tenant

    @property
    def runs(self) -> RunStepStore:
        return self.workspace.stores.runs

    @property
    def advance(self) -> RunExecutor:
        return run_executor(self.workspace.engine, self.providers)

    def advance_with(self, **gate: Any) -> RunExecutor:
        """Return an executor of runs whose gate has other methods."""
        engine = replace(
            self.workspace.engine, executor=cast("Gate", _ChangedGate(self.workspace.engine.executor, gate))
        )
        return run_executor(engine, self.providers)

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
        """Take the runs of this workspace that are ready, or that another process has taken."""
        node, taken = self.workspace.settings.node_name, []
        for workspace_id, run_id in await self.runs.due(node=node, lease=0.0, limit=1_000):
            if workspace_id == self.workspace.caller.workspace_id:
                taken.append(await self.runs.take(process, workspace_id, run_id, node=node, lease=0.0))
        return [run for run in taken if run is not None]

    async def run(self, run_id: RunId) -> Run:
        return await self.runs.get(self.tenant, run_id)

    async def messages(self) -> list[SessionMessage]:
        return await self.runs.messages(self.tenant, self.session_id)

    async def events(self) -> list[tuple[str, dict[str, Any]]]:
        found = await self.workspace.stores.sessions.events_after(self.tenant, self.session_id, 0, limit=500)
        return [(event.type, dict(event.payload)) for event in found]

    async def decide(self, decision: ApprovalDecision) -> None:
        for approval in await self.workspace.engine.paused_calls.list(self.tenant, session_id=self.session_id):
            await self.workspace.engine.paused_calls.decide(self.tenant, approval.id, decision, via="test")

    def model_input(self, request: int = -1) -> list[dict[str, Any]]:
        """Return the messages of a request to the model."""
        return list(self.model.received[request].body["messages"])

    async def is_complete(self) -> bool:
        """Return whether every run and every call of the session has ended."""
        page = await self.runs.page(self.tenant, self.session_id)
        ids = [call_id for one in await self.messages() for call_id in one.call_ids]
        calls = await self.runs.calls(page[0].workspace_id, ids)
        return all(run.state is RunState.ENDED for run in page) and all(
            call_id in calls and calls[call_id].state == "ended" for call_id in ids
        )


class _ChangedGate:
    def __init__(self, gate: Gate, methods: dict[str, Any]) -> None:
        self._gate = gate
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gate, name)


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
    agent = (await workspace.agent(**{**given, **rules})).agent
    assert agent is not None
    access = workspace.stores.access
    await access.store(
        ActingUser(workspace.caller.user_id), "openai-compatible", ProviderCredentials(KEY, f"{server.url}/v1")
    )
    session = await workspace.stores.sessions.create(workspace.tenant, agent_id=agent.id, mode=mode)
    return RunFixture(workspace, server, providers, agent, session.id)


def yes() -> ApprovalDecision:
    return ApprovalDecision(approved=True)


def no(reason: str = "No.") -> ApprovalDecision:
    return replace(yes(), approved=False, reason=reason)

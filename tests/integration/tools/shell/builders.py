"""A workspace behind a gate with a real sandbox, probed once per process, and callers that run commands in it."""

from typing import Any

from tests.integration.conftest import WorkspaceFixture, new_workspace
from tests.integration.sandbox.sandbox_fixture import SANDBOX
from toolcrib.core.callers import Caller
from toolcrib.settings import Settings
from toolcrib.storage.database import Database


async def new_workspace_fixture(database: Database, settings: Settings) -> WorkspaceFixture:
    return await new_workspace(database, settings, sandbox=SANDBOX)


def another_engine(workspace: WorkspaceFixture, **changed: Any) -> WorkspaceFixture:
    """The same workspace behind its own gate, as in another process."""
    return workspace.with_engine(workspace.settings.model_copy(update=changed), sandbox=SANDBOX)


async def hand(
    workspace: WorkspaceFixture, *, trust: str = "autonomous", unprotected_paths: tuple[str, ...] = (), **bash: Any
) -> Caller:
    """An agent that may run commands."""
    permissions = {"bash": {"allowed": True, **bash}}
    return await workspace.agent(
        trust=trust, toolsets=("studio",), tool_permissions=permissions, unprotected_paths=unprotected_paths
    )


async def ran(
    workspace: WorkspaceFixture, command: str, caller: Caller | None = None, **arguments: Any
) -> dict[str, Any]:
    """Run a command that ends by itself and return its result."""
    outcome = await workspace.call("bash", caller or workspace.caller, command=command, **arguments)
    assert outcome.succeeded, outcome.error
    return dict(outcome.result)

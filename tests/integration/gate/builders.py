"""Callers and tools for the tests of the gate, and helpers that read the audit log."""

import asyncio
from dataclasses import replace
from typing import Any

from tests.integration.conftest import WorkspaceFixture, new_person
from tests.integration.storage.accounts import joined as new_member
from tests.integration.storage.accounts import user_of
from toolcrib import ToolContext, tool
from toolcrib.core.callers import Caller, WorkspaceRole
from toolcrib.core.errors import ToolFailed
from toolcrib.core.files import ContentKind
from toolcrib.core.ids import CallId
from toolcrib.core.paths import MountPath
from toolcrib.core.tool_calls import Danger
from toolcrib.storage.audit import AuditFilter, StoredAuditRecord
from toolcrib.tools.tool import Tool
from toolcrib.workspace.text.content import decode_content

READING = ["ls", "read", "cat", "file_info", "read_multiple_files"]
PLANS = ["plan_write", "plan_read", "plan_edit", "plan_list"]
WRITING = ["write", "edit", "rm", "mv", "touch", "mkdir"]
HISTORY = ["file_versions", "file_version", "file_compare", "file_restore", "deleted_files"]


def allowed(*names: str, **more: Any) -> dict[str, Any]:
    """Permissions for these tools."""
    return {name: {"allowed": True, **more} for name in names}


EVERYTHING = allowed(*READING, *WRITING, *HISTORY, *PLANS)


async def trusted(workspace: WorkspaceFixture, **rules: Any) -> Caller:
    """An agent that may use every tool without approval, except as ``rules`` define."""
    given: dict[str, Any] = {"trust": "autonomous", "toolsets": ["workspace", "history"]}
    return await workspace.agent(**{**given, "tool_permissions": EVERYTHING, **rules})


async def joined(workspace: WorkspaceFixture, role: WorkspaceRole) -> Caller:
    """Another person, who is a member of the workspace with that role."""
    return replace(workspace.caller, user_id=user_of(await new_member(workspace.stores, workspace.tenant, role)))


async def stranger(workspace: WorkspaceFixture) -> Caller:
    """A person who has an account and is not a member of the workspace."""
    return replace(workspace.caller, user_id=await new_person(workspace.stores))


def with_tools(workspace: WorkspaceFixture, *tools: Tool) -> WorkspaceFixture:
    """The same workspace behind a gate with more tools."""
    return workspace.with_engine(tools=tools)


async def audit_records(workspace: WorkspaceFixture) -> list[StoredAuditRecord]:
    """Return the workspace's records of calls, in the order in which they were written."""
    page = await workspace.stores.audit.page(workspace.tenant, before=None, limit=500, wanted=AuditFilter(kind="call"))
    return page.records[::-1]


async def audit_records_of(workspace: WorkspaceFixture, call_id: CallId) -> list[StoredAuditRecord]:
    return [record for record in await audit_records(workspace) if record.call_id == call_id]


async def rows(workspace: WorkspaceFixture, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Query the database as the system role. The workspace's id is the last parameter."""
    async with workspace.database.as_system() as connection:
        cursor = await connection.execute(statement.encode(), (*parameters, workspace.caller.workspace_id))
        return await cursor.fetchall() if cursor.description else []


# Tools that a user might add.


@tool()
async def put(path: MountPath, text: str, context: ToolContext) -> dict[str, Any]:
    """Put a text at a path of any mount."""
    path_state = await context.draft.lookup(path)
    change = await context.draft.write(path_state, text.encode(), content=ContentKind.TEXT)
    return {"path": str(path), "version_id": str(change.version_id)}


@tool()
async def shift(source: MountPath, destination: MountPath, context: ToolContext) -> None:
    """Move something within or between mounts."""
    await context.draft.move(await context.tree.lookup(source), await context.draft.lookup(destination))


@tool(danger=Danger.SAFE)
async def get(path: MountPath, context: ToolContext) -> Any:
    """Get the text at a path of any mount."""
    return decode_content((await context.tree.read(path)).body)


@tool()
async def chatter(path: MountPath, context: ToolContext) -> str:
    """Write a file and talk about it at length."""
    await context.draft.write(await context.draft.lookup(path), b"a", content=ContentKind.TEXT)
    return "x" * 200_000


@tool(danger=Danger.SAFE)
async def fail() -> None:
    """Fail as tools may."""
    raise ToolFailed("The paper jammed. Open the lid.")


@tool(danger=Danger.SAFE)
def crash() -> None:
    """Have a bug."""
    raise ZeroDivisionError("our own fault")


@tool(danger=Danger.SAFE)
async def wait_forever() -> None:
    """Wait for what never comes."""
    await asyncio.Event().wait()


@tool()
async def launch() -> str:
    """Do something dangerous outside the workspace."""
    return "launched"


@tool(danger=Danger.SAFE)
def forecast() -> str:
    """Tell the weather."""
    return "rain"

"""Ends plan mode if a person has accepted the plan. The server checks that, not the model."""

from typing import Any
from uuid import UUID

from pydantic import Field

from toolcrib.core.errors import BadArguments, NotFound, PermissionDenied
from toolcrib.core.files import FileType
from toolcrib.core.ids import SessionId
from toolcrib.core.paths import AbsolutePath, shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.policy.authorization import PLAN_SUFFIX
from toolcrib.storage.database import Tenant
from toolcrib.storage.sessions import PlanModeStore
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.text.plans import parsed


class ExitPlanModeArguments(ToolArguments):
    plan_file_path: AbsolutePath = Field(description="Path to the plan file (.plan extension).")
    session_id: UUID | None = Field(
        default=None, description="The session that leaves plan mode. Only needed if the call is not part of a session."
    )


def exit_plan_mode_with(modes: PlanModeStore) -> Tool:
    """Build the tool with the store that records what people have accepted."""

    async def exit_plan_mode(arguments: ExitPlanModeArguments, context: ToolContext) -> dict[str, Any]:
        path = arguments.plan_file_path
        path_state = await context.tree.lookup(path)
        if path_state.file is None:
            raise NotFound(f"File not found: {shown(path)}")
        if path_state.type is not FileType.PLAN or not path.name.endswith(PLAN_SUFFIX):
            raise BadArguments({"plan_file_path": f"File is not a plan file: {shown(path)}"})
        if not parsed((await context.tree.read(path)).body).body.strip():
            raise BadArguments({"plan_file_path": f"The plan is empty: {shown(path)}. Write it first."})
        session_id = context.caller.session_id or (SessionId(arguments.session_id) if arguments.session_id else None)
        if session_id is None:
            raise BadArguments({"session_id": "Give the session that leaves plan mode."})
        tenant = Tenant.of(context.caller)
        if denial := await modes.leave(tenant, session_id, path_state.file.id, path.name):
            raise PermissionDenied(denial)
        return {"mode": "build", "plan_file": shown(path)}

    return Tool(
        name="exit_plan_mode",
        toolset="workspace",
        description="Leave plan mode and start build mode. The user must first accept the plan: ask with `ask_user` "
        "and the buttons Accept and Reject.",
        category=ToolCategory.PLAN,
        danger=Danger.SAFE,
        arguments=ExitPlanModeArguments,
        effects=lambda arguments: Effects(reads=(arguments.plan_file_path,)),
        function=exit_plan_mode,
    )

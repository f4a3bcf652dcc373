"""Ends plan mode, if a person has accepted the plan. The check list is the server's to enforce, not the model's."""

from typing import Any
from uuid import UUID

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.errors import BadArguments, NotFound, NotPermitted
from toolcrib.domain.files import FileType
from toolcrib.domain.ids import SessionId
from toolcrib.policy.modes import PLAN_SUFFIX
from toolcrib.storage.database import Tenant
from toolcrib.storage.plan_mode import PlanMode
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.paths import AbsolutePath, shown


class Arguments(ToolArguments):
    plan_file_path: AbsolutePath = Field(description="Path to the plan file (.plan extension).")
    session_id: UUID | None = Field(default=None, description="The session, where the call does not belong to one.")


def exit_plan_mode_with(modes: PlanMode) -> Tool:
    """The tool on the server's own record of what people have accepted."""

    async def exit_plan_mode(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        place = arguments.plan_file_path
        standing = await context.tree.find(place)
        if standing.file is None:
            raise NotFound(f"File not found: {shown(place)}")
        if standing.type is not FileType.PLAN or not place.name.endswith(PLAN_SUFFIX):
            raise BadArguments({"plan_file_path": f"File is not a plan file: {shown(place)}"})
        session_id = context.caller.session_id or (SessionId(arguments.session_id) if arguments.session_id else None)
        if session_id is None:
            raise BadArguments({"session_id": "Say which session leaves plan mode."})
        tenant = Tenant.of(context.caller)
        if refusal := await modes.leave(tenant, session_id, standing.file.id, place.name):
            raise NotPermitted(refusal)
        return {"mode": "build", "plan_file": shown(place)}

    return Tool(
        name="exit_plan_mode",
        toolset="workspace",
        description="Leave plan mode and begin to build, once the person has accepted the plan by button.",
        category=Category.PLAN,
        danger=Danger.SAFE,
        arguments=Arguments,
        effects=lambda arguments: Effects(reads=(arguments.plan_file_path,)),
        function=exit_plan_mode,
    )

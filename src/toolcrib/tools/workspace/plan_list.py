"""Lists plans, the newest first."""

from datetime import datetime
from typing import Any

from pydantic import Field

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.errors import BadArguments, LinkInTheWay, NotFound, Refused, ToolFailed, described
from toolcrib.domain.files import NodeKind
from toolcrib.domain.places import Mount, Place, root_of
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.paths import shown
from toolcrib.workspace.plans import FOLDER, PlanStatus, is_plan_name, name_of, parsed


class Arguments(ToolArguments):
    status: PlanStatus | None = Field(default=None, description="Only plans of this status.")
    limit: int = Field(default=50, ge=0, description="Maximum number of plans to return; 0 for all.")


async def plan_list(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    dated = [entry for place in await _places(context) if (entry := await _entry(place, context)) is not None]
    dated.sort(key=lambda entry: (entry[0], entry[1]["path"]), reverse=True)
    plans = [plan for *_, plan in dated if arguments.status is None or _status(plan) == arguments.status]
    return {"plans": plans[: arguments.limit or None], "total": len(plans)}


async def _places(context: ToolContext) -> list[Place]:
    """Every plan: what is of that type anywhere in the project, and what looks like one in /plans."""
    known = [file.state.place for file in await context.tree.plans()]
    try:
        listed = await context.tree.listing(FOLDER, recursive=True, limit=None)
    except (NotFound, BadArguments, Refused):
        listed = []
    found = [standing.place for standing in listed if standing.kind is NodeKind.FILE]
    return [place for place in dict.fromkeys([*known, *found]) if is_plan_name(place)]


async def _entry(place: Place, context: ToolContext) -> tuple[tuple[datetime, datetime], dict[str, Any]] | None:
    """A plan and when it was made; nothing if it is gone or not for this caller's eyes."""
    entry = {"path": shown(place), "name": name_of(place)}
    try:
        reading = await context.tree.read(place)
    except (NotFound, LinkInTheWay, Refused):
        return None
    since = reading.standing.file.created_at if reading.standing.file else reading.standing.updated_at
    try:
        plan = parsed(reading.body)
    except ToolFailed as error:
        return (since, since), {**entry, "metadata": None, "error": described(error)}
    return (plan.created_at or since, since), {**entry, "metadata": plan.metadata}


def _status(plan: dict[str, Any]) -> str | None:
    return (plan["metadata"] or {}).get("status")


tool = Tool(
    name="plan_list",
    toolset="workspace",
    description="List plans with their title, status and time, the newest first. `total` counts all that match.",
    category=Category.PLAN,
    danger=Danger.SAFE,
    arguments=Arguments,
    effects=lambda _: Effects(reads_each=(root_of(Mount.PROJECT),)),
    function=plan_list,
)

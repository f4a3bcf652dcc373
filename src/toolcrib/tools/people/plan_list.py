"""Lists plans, newest first."""

from datetime import datetime
from typing import Any

from pydantic import Field

from toolcrib.core.errors import BadArguments, CallDenied, NotFound, SymlinkNotFollowed, ToolFailed, error_text
from toolcrib.core.files import EntryKind
from toolcrib.core.paths import Mount, WorkspacePath, mount_root, shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.text.plans import FOLDER, PlanStatus, is_plan_name, name_of
from toolcrib.workspace.text.worker_calls import plan_in


class PlanListArguments(ToolArguments):
    status: PlanStatus | None = Field(default=None, description="Only plans with this status.")
    limit: int = Field(default=50, ge=0, description="Maximum number of plans to return; 0 for all.")


async def plan_list(arguments: PlanListArguments, context: ToolContext) -> dict[str, Any]:
    dated = [entry for path in await _paths(context) if (entry := await _entry(path, context)) is not None]
    dated.sort(key=lambda entry: (entry[0], entry[1]["path"]), reverse=True)
    plans = [plan for *_, plan in dated if arguments.status is None or _status(plan) == arguments.status]
    return {"plans": plans[: arguments.limit or None], "total": len(plans)}


async def _paths(context: ToolContext) -> list[WorkspacePath]:
    """Return every plan: files of that type anywhere in the project, and files with a plan name in /plans."""
    known = [file.state.path for file in await context.tree.plans()]
    try:
        listed = await context.tree.list_directory(FOLDER, recursive=True, limit=None)
    except (NotFound, BadArguments, CallDenied):
        listed = []
    found = [path_state.path for path_state in listed if path_state.kind is EntryKind.FILE]
    return [path for path in dict.fromkeys([*known, *found]) if is_plan_name(path)]


async def _entry(path: WorkspacePath, context: ToolContext) -> tuple[tuple[datetime, datetime], dict[str, Any]] | None:
    """Return a plan with its times; ``None`` if it is gone or the caller may not read it."""
    entry = {"path": shown(path), "name": name_of(path)}
    try:
        reading = await context.tree.read(path)
    except (NotFound, SymlinkNotFollowed, CallDenied):
        return None
    since = reading.path_state.file.created_at if reading.path_state.file else reading.path_state.updated_at
    try:
        plan = await plan_in(reading.body)
    except ToolFailed as error:
        return (since.replace(microsecond=0), since), {**entry, "metadata": None, "error": error_text(error)}
    # Frontmatter has a resolution of seconds: within one of them, the files' own times decide.
    return (plan.created_at or since.replace(microsecond=0), since), {**entry, "metadata": plan.metadata}


def _status(plan: dict[str, Any]) -> str | None:
    return (plan["metadata"] or {}).get("status")


tool = Tool(
    name="plan_list",
    toolset="workspace",
    description="List plans with their title, status and time, newest first. `total` is the number of all "
    "matching plans.",
    category=ToolCategory.PLAN,
    danger=Danger.SAFE,
    arguments=PlanListArguments,
    effects=lambda _: Effects(reads_batch=(mount_root(Mount.PROJECT),)),
    function=plan_list,
)

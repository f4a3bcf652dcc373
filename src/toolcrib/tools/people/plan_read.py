"""Reads a plan: its frontmatter, and some of its lines."""

from typing import Any, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from toolcrib.core.paths import WorkspacePath, shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.people.plan_paths import PlanName, PlanPath
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.text.content import line_window
from toolcrib.workspace.text.worker_calls import plan_in


class PlanReadArguments(ToolArguments):
    path: PlanPath | None = Field(default=None, description="Full path to the plan file.")
    name: PlanName | None = Field(default=None, description="Name of the plan in /plans, without `.plan`.")
    offset: int | None = Field(
        default=None,
        description="First line below the frontmatter, 0-based. A negative value counts from the end.",
    )
    limit: int = Field(default=500, ge=1, description="Maximum number of lines.")
    cursor: int | None = Field(default=None, ge=0, description="First line, if `offset` is not given.")

    @model_validator(mode="after")
    def _one_is_named(self) -> Self:
        if (self.path is None) == (self.name is None):
            raise PydanticCustomError("plan_named", "Give either path or name")
        return self

    @property
    def plan_path(self) -> WorkspacePath:
        plan_path = self.path or self.name
        assert plan_path is not None
        return plan_path

    @property
    def first_line(self) -> int:
        return self.offset if self.offset is not None else self.cursor or 0


async def plan_read(arguments: PlanReadArguments, context: ToolContext) -> dict[str, Any]:
    reading = await context.tree.read(arguments.plan_path)
    plan = await plan_in(reading.body)
    part = line_window(plan.body.decode("utf-8", "replace"), offset=arguments.first_line, limit=arguments.limit)
    return {
        "path": shown(arguments.plan_path),
        "metadata": plan.metadata,
        "content": part.text,
        "hash": reading.sha256.hex(),
        "total_lines": part.total_lines,
    }


tool = Tool(
    name="plan_read",
    toolset="workspace",
    description=(
        "Read a plan by `path` or by `name`. Returns the frontmatter as `metadata` and the text below it, "
        "by default the first 500 lines. Pass `hash` to `plan_edit` as `last_read_hash`."
    ),
    category=ToolCategory.PLAN,
    danger=Danger.SAFE,
    arguments=PlanReadArguments,
    effects=lambda arguments: Effects(reads=(arguments.plan_path,)),
    function=plan_read,
)

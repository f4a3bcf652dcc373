"""Changes part of a plan's text. Its frontmatter stays unchanged."""

from functools import partial
from typing import Any, Self

from pydantic import Field, model_validator

from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.files.edit_requests import InsertContent, InsertLine, NewString, OldString, change_file, edit_in
from toolcrib.tools.people.plan_paths import PlanPath
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.text.edits import Edit, EditedText
from toolcrib.workspace.text.worker_calls import edit_made, plan_in


class PlanEditArguments(ToolArguments):
    path: PlanPath = Field(description="Path to the plan file. It must end with `.plan`.")
    old_string: OldString = None
    new_string: NewString = None
    insert_line: InsertLine = None
    insert_content: InsertContent = None
    last_read_hash: str | None = Field(
        default=None, description="The `hash` from your last read. The call fails if the file has changed since."
    )

    @model_validator(mode="after")
    def _in_one_form(self) -> Self:
        edit_in(self)
        return self


async def plan_edit(arguments: PlanEditArguments, context: ToolContext) -> dict[str, Any]:
    make = partial(_edited, edit=edit_in(arguments))
    return await change_file(arguments.path, make, context, last_read_hash=arguments.last_read_hash)


async def _edited(content: bytes, edit: Edit) -> EditedText:
    plan = await plan_in(content)
    result = await edit_made(plan.body, edit)
    return EditedText(plan.with_body(result.body), result.note)


tool = Tool(
    name="plan_edit",
    toolset="workspace",
    description=(
        "Edit the text of a plan below its frontmatter: replace `old_string`, which must occur exactly "
        "once, with `new_string`; or insert `insert_content` before line `insert_line` (0-based, as in "
        "`plan_read`). To change the title or status, use `plan_write`."
    ),
    category=ToolCategory.PLAN,
    danger=Danger.SAFE,
    arguments=PlanEditArguments,
    effects=lambda arguments: Effects(reads=(arguments.path,), writes=(arguments.path,)),
    function=plan_edit,
)

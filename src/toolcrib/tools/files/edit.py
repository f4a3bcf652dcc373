"""Changes parts of a file: replaces passages that occur once, or inserts lines."""

from functools import partial
from typing import Any, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from toolcrib.core.paths import AbsolutePath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.files.edit_requests import (
    InsertContent,
    InsertLine,
    NewString,
    OldString,
    asks_nothing,
    change_file,
    edit_in,
)
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.text.worker_calls import all_edits_made, edit_made


class OneEdit(ToolArguments):
    old_string: OldString = None
    new_string: NewString = None
    insert_line: InsertLine = None
    insert_content: InsertContent = None

    @model_validator(mode="after")
    def _in_one_form(self) -> Self:
        edit_in(self)
        return self


class EditArguments(ToolArguments):
    path: AbsolutePath = Field(description="Full path to the file.")
    old_string: OldString = None
    new_string: NewString = None
    insert_line: InsertLine = None
    insert_content: InsertContent = None
    edits: list[OneEdit] | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="Several edits instead of one. They are applied in order, each to the result of the one before: "
        "all or none.",
    )
    last_read_hash: str | None = Field(
        default=None, description="The `hash` from your last read. The call fails if the file has changed since."
    )

    @model_validator(mode="after")
    def _in_one_form(self) -> Self:
        if self.edits is None:
            edit_in(self)
        elif not asks_nothing(self):
            raise PydanticCustomError("edit_form", "Give either edits, or one edit without them")
        return self


async def edit(arguments: EditArguments, context: ToolContext) -> dict[str, Any]:
    if arguments.edits is None:
        make = partial(edit_made, edit=edit_in(arguments))
    else:
        make = partial(all_edits_made, edits=[edit_in(one) for one in arguments.edits])
    return await change_file(arguments.path, make, context, last_read_hash=arguments.last_read_hash)


tool = Tool(
    name="edit",
    toolset="workspace",
    description=(
        "Replace `old_string`, which must occur exactly once in the file, with `new_string`; or insert "
        "`insert_content` before line `insert_line` (0-based). Use `edits` for several edits: all are "
        "applied, or none. Pass `last_read_hash` from `read` to avoid overwriting newer changes."
    ),
    category=ToolCategory.FILE,
    danger=Danger.DANGEROUS,
    arguments=EditArguments,
    effects=lambda arguments: Effects(reads=(arguments.path,), writes=(arguments.path,)),
    function=edit,
)

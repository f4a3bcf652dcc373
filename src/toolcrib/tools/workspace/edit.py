"""Changes part of a file: replaces a passage that stands in it once, or inserts lines."""

from typing import Any, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.errors import BadArguments
from toolcrib.domain.files import ContentKind
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.editing import inserted, replaced
from toolcrib.workspace.paths import AbsolutePath, shown


class Arguments(ToolArguments):
    path: AbsolutePath = Field(description="Full path to the file.")
    old_string: str | None = Field(default=None, description="The passage to replace. It must stand in the file once.")
    new_string: str | None = Field(default=None, description="What to put in its place.")
    insert_line: int | None = Field(default=None, ge=0, description="Insert before this line, counted from 0.")
    insert_content: str | None = Field(default=None, description="The lines to insert.")
    last_read_hash: str | None = Field(default=None, description="The `hash` you last read; refused if it is outdated.")

    @model_validator(mode="after")
    def _one_way_only(self) -> Self:
        replacing = self.old_string is not None and self.new_string is not None
        inserting = self.insert_line is not None and self.insert_content is not None
        if replacing == inserting:
            raise PydanticCustomError(
                "edit_form", "Give either old_string and new_string, or insert_line and insert_content"
            )
        return self


async def edit(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    reading = await context.tree.read(arguments.path)
    if reading.standing.is_virtual:
        raise BadArguments({"path": f"{shown(arguments.path)} is kept by the system. Use its own API to change it."})
    await context.tree.require_unchanged(reading, arguments.last_read_hash)
    body = _edited(reading.body, arguments)
    standing = await context.draft.known(reading.standing)
    kind = standing.file.state.content if standing.file else ContentKind.TEXT
    change = await context.draft.put(standing, body, content=kind)
    assert change.after is not None and change.after.sha256 is not None
    return {
        "path": shown(arguments.path),
        "file_id": str(change.file_id),
        "version_id": str(change.version_id),
        "hash": change.after.sha256.hex(),
    }


def _edited(body: bytes, arguments: Arguments) -> bytes:
    if arguments.old_string is not None and arguments.new_string is not None:
        return replaced(body, arguments.old_string, arguments.new_string)
    assert arguments.insert_line is not None and arguments.insert_content is not None
    return inserted(body, arguments.insert_line, arguments.insert_content)


tool = Tool(
    name="edit",
    toolset="workspace",
    description=(
        "Replace `old_string`, which must stand in the file exactly once, by `new_string`; or insert `insert_content` "
        "before line `insert_line` (from 0). Give `last_read_hash` from `read` so that nobody's change is lost."
    ),
    category=Category.FILE,
    danger=Danger.DANGEROUS,
    arguments=Arguments,
    effects=lambda arguments: Effects(reads=(arguments.path,), writes=(arguments.path,)),
    function=edit,
)

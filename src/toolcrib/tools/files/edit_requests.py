"""What `edit` and `plan_edit` share: the arguments of an edit, and how it changes a file."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Protocol

from pydantic import Field
from pydantic_core import PydanticCustomError

from toolcrib.core.errors import BadArguments
from toolcrib.core.files import ContentKind
from toolcrib.core.paths import WorkspacePath, shown
from toolcrib.tools.context import ToolContext
from toolcrib.workspace.text.edits import Edit, EditedText, InsertEdit, ReplaceEdit

OldString = Annotated[str | None, Field(description="The text to replace. It must occur exactly once.")]
NewString = Annotated[str | None, Field(description="The replacement text.")]
InsertLine = Annotated[int | None, Field(ge=0, description="Insert before this line, 0-based.")]
InsertContent = Annotated[str | None, Field(description="The text to insert.")]


class EditRequest(Protocol):
    """The arguments of an edit."""

    @property
    def old_string(self) -> str | None: ...
    @property
    def new_string(self) -> str | None: ...
    @property
    def insert_line(self) -> int | None: ...
    @property
    def insert_content(self) -> str | None: ...


def edit_in(asked: EditRequest) -> Edit:
    """Return the requested edit. Raises a pydantic error if there is none, or more than one."""
    replacing = asked.old_string is not None and asked.new_string is not None
    inserting = asked.insert_line is not None and asked.insert_content is not None
    if replacing == inserting:
        raise PydanticCustomError(
            "edit_form", "Give either old_string and new_string, or insert_line and insert_content"
        )
    if asked.old_string is not None and asked.new_string is not None:
        return ReplaceEdit(asked.old_string, asked.new_string)
    assert asked.insert_line is not None and asked.insert_content is not None
    return InsertEdit(asked.insert_line, asked.insert_content)


def asks_nothing(asked: EditRequest) -> bool:
    """Whether none of the arguments of an edit is given."""
    return (asked.old_string, asked.new_string, asked.insert_line, asked.insert_content) == (None,) * 4


async def change_file(
    path: WorkspacePath,
    make: Callable[[bytes], Awaitable[EditedText]],
    context: ToolContext,
    *,
    last_read_hash: str | None,
) -> dict[str, Any]:
    """Replace a file's content by the result of ``make``, unless it changed since the caller read it."""
    reading = await context.tree.read(path)
    if reading.path_state.is_virtual:
        raise BadArguments({"path": f"{shown(path)} is managed by the system. Use its own API to change it."})
    await context.tree.require_unchanged(reading, last_read_hash)
    edited = await make(reading.body)
    most = context.tree.max_file_bytes
    if len(edited.body) > most:
        raise BadArguments({"path": f"{shown(path)} would have {len(edited.body):,} bytes; the limit is {most:,}."})
    path_state = await context.draft.ensure_tracked(reading.path_state)
    kind = path_state.file.state.content_kind if path_state.file else ContentKind.TEXT
    change = await context.draft.write(path_state, edited.body, content=kind)
    assert change.after is not None and change.after.sha256 is not None
    result = {
        "path": shown(path),
        "file_id": str(change.file_id),
        "version_id": str(change.version_id),
        "hash": change.after.sha256.hex(),
    }
    return {**result, "note": edited.note} if edited.note else result

"""Change parts of a file: replace passages that occur once, or insert lines. ``plan_edit`` uses the same steps."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, NotRequired, Protocol, Self, cast

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from toolcrib.core.errors import BadArguments
from toolcrib.core.files import ContentKind
from toolcrib.core.paths import AbsolutePath, WorkspacePath
from toolcrib.core.tool_calls import Danger, Effects
from toolcrib.tools.context import ToolContext
from toolcrib.tools.files.write import FileChanged, write_file
from toolcrib.tools.tool import ToolArguments, built_in
from toolcrib.workspace.text.edits import Edit, EditedText, InsertEdit, ReplaceEdit
from toolcrib.workspace.text.worker_calls import all_edits_made, edit_made

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
        elif (self.old_string, self.new_string, self.insert_line, self.insert_content) != (None,) * 4:
            raise PydanticCustomError("edit_form", "Give either edits, or one edit without them")
        return self


class EditResult(FileChanged):
    note: NotRequired[
        Annotated[
            str | None,
            Field(default=None, description="Present if the edit was adapted to the file's CRLF line endings."),
        ]
    ]


@built_in(
    "workspace",
    description="Replace `old_string`, which must occur exactly once in the file, with `new_string`; or insert "
    "`insert_content` before line `insert_line` (0-based). Use `edits` for several edits: all are "
    "applied, or none. Pass `last_read_hash` from `read` to avoid overwriting newer changes.",
    danger=Danger.DANGEROUS,
    effects=lambda arguments: Effects(reads=(arguments.path,), writes=(arguments.path,)),
)
async def edit(arguments: EditArguments, context: ToolContext) -> EditResult:
    if arguments.edits is None:
        make = partial(edit_made, edit=edit_in(arguments))
    else:
        make = partial(all_edits_made, edits=[edit_in(one) for one in arguments.edits])
    return await change_file(arguments.path, make, context, last_read_hash=arguments.last_read_hash)


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


async def change_file(
    path: WorkspacePath,
    make: Callable[[bytes], Awaitable[EditedText]],
    context: ToolContext,
    *,
    last_read_hash: str | None,
) -> EditResult:
    """Replace a file's content by the result of ``make``, unless it changed since the caller read it."""
    reading = await context.tree.read(path)
    if reading.path_state.is_virtual:
        raise BadArguments({"path": f"{path.display} is managed by the system. Use its own API to change it."})
    await context.tree.require_unchanged(reading, last_read_hash)
    edited = await make(reading.body)
    most = context.tree.max_file_bytes
    if len(edited.body) > most:
        raise BadArguments({"path": f"{path.display} would have {len(edited.body):,} bytes; the limit is {most:,}."})
    path_state = await context.draft.ensure_tracked(reading.path_state)
    kind = path_state.file.state.content_kind if path_state.file else ContentKind.TEXT
    # The result of a write is one of an edit without a note.
    changed = cast("EditResult", await write_file(path_state, edited.body, context, content=kind))
    if edited.note:
        changed["note"] = edited.note
    return changed

"""Plans: write, read, edit and list them, and leave plan mode once a person has accepted one."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, Self
from uuid import UUID

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from toolcrib.core.callers import SessionMode
from toolcrib.core.errors import (
    BadArguments,
    CallDenied,
    NotFound,
    PermissionDenied,
    SymlinkNotFollowed,
    ToolFailed,
    error_text,
)
from toolcrib.core.files import ContentKind, EntryKind, FileType, PathState
from toolcrib.core.ids import SessionId
from toolcrib.core.paths import AbsolutePath, Mount, WorkspacePath, mount_root, parse_absolute
from toolcrib.core.tool_calls import Effects, ToolCategory
from toolcrib.policy.authorization import PLAN_SUFFIX
from toolcrib.storage.database import Tenant
from toolcrib.storage.sessions import PlanModeStore
from toolcrib.tools.context import ToolContext
from toolcrib.tools.files.edit import (
    EditResult,
    InsertContent,
    InsertLine,
    NewString,
    OldString,
    change_file,
    edit_in,
)
from toolcrib.tools.files.write import FileChanged, write_file
from toolcrib.tools.tool import ToolArguments, built_in
from toolcrib.tools.tool_results import ToolResult
from toolcrib.workspace.text.content import line_window
from toolcrib.workspace.text.edits import Edit, EditedText
from toolcrib.workspace.text.plans import (
    FOLDER,
    PlanStatus,
    drawn,
    is_plan_name,
    name_of,
    parsed,
    path_of,
    require_plan_name,
)
from toolcrib.workspace.text.worker_calls import edit_made, plan_composed, plan_in


def _plan_path(path: WorkspacePath) -> WorkspacePath:
    try:
        return require_plan_name(path)
    except BadArguments as error:
        raise PydanticCustomError("plan_path", "{flaw}", {"flaw": error.fields["path"]}) from None


def _named_plan(name: object) -> WorkspacePath:
    if isinstance(name, WorkspacePath):
        return name
    if not isinstance(name, str):
        raise PydanticCustomError("string_type", "Input should be a valid string")
    if "/" in name or name.strip() in ("", ".", ".."):
        raise PydanticCustomError("plan_name", "A plan name is a file name in /plans; use `path` for other files")
    try:
        path = parse_absolute(path_of(name.strip()).path)
    except BadArguments as error:
        raise PydanticCustomError("plan_name", "{flaw}", {"flaw": error.fields["path"]}) from None
    assert path.parent == FOLDER
    return path


PlanPath = Annotated[AbsolutePath, AfterValidator(_plan_path)]
PlanName = Annotated[
    WorkspacePath,
    PlainValidator(_named_plan),
    PlainSerializer(name_of, return_type=str),
    WithJsonSchema({"type": "string", "description": "The name of a plan, such as gleeful-tangerine-expedition."}),
]


class PlanWriteArguments(ToolArguments):
    title: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1_000)] = Field(
        description="Title of the plan."
    )
    content: str = Field(description="The plan in Markdown, without frontmatter.")
    path: PlanPath | None = Field(default=None, description="Path to the plan file. By default, a new name in /plans.")
    status: PlanStatus = Field(default=PlanStatus.DRAFT, description="Status of the plan.")


class PlanWriteResult(FileChanged):
    metadata: Mapping[str, Any] | None


def _effects_of_write(arguments: PlanWriteArguments) -> Effects:
    # The new name is chosen when the tool runs, among those that are free.
    return Effects(reads=(arguments.path,), writes=(arguments.path,)) if arguments.path else Effects(writes=(FOLDER,))


@built_in("workspace", category=ToolCategory.PLAN, effects=_effects_of_write, idempotent=False, read_only=False)
async def plan_write(arguments: PlanWriteArguments, context: ToolContext) -> PlanWriteResult:
    """Write a plan, by default to a new file in /plans with a generated name.

    The title, status and time are stored in the frontmatter. An existing plan at `path` is replaced; other fields of
    its frontmatter are kept.
    """
    path_state = await context.draft.lookup(arguments.path) if arguments.path else await _new_plan(context)
    earlier = await plan_in((await context.tree.read(path_state.path)).body) if path_state.exists else None
    plan = await plan_composed(
        earlier,
        title=_encodable("title", arguments.title).decode(),
        status=arguments.status,
        body=_encodable("content", arguments.content),
        now=datetime.now(UTC),
    )
    content = plan.with_body(plan.body)
    if len(content) > context.tree.max_file_bytes:
        raise BadArguments(
            {"content": f"The plan would have {len(content):,} bytes; the limit is {context.tree.max_file_bytes:,}."}
        )
    changed = await write_file(path_state, content, context, content=ContentKind.TEXT, type=FileType.PLAN, retype=True)
    return {**changed, "metadata": plan.metadata}


async def _new_plan(context: ToolContext) -> PathState:
    while (path_state := await context.draft.lookup(path_of(drawn()))).exists:
        pass
    return path_state


def _encodable(field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadArguments({field: f"Not valid Unicode at character {error.start}: a lone surrogate."}) from None


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


class PlanReadResult(ToolResult):
    path: str
    metadata: Annotated[Mapping[str, Any] | None, Field(description="Null for a plan without frontmatter.")]
    content: str
    hash: str
    total_lines: int


@built_in("workspace", category=ToolCategory.PLAN, effects=lambda arguments: Effects(reads=(arguments.plan_path,)))
async def plan_read(arguments: PlanReadArguments, context: ToolContext) -> PlanReadResult:
    """Read a plan by `path` or by `name`.

    Returns the frontmatter as `metadata` and the text below it, by default the first 500 lines. Pass `hash` to
    `plan_edit` as `last_read_hash`.
    """
    reading = await context.tree.read(arguments.plan_path)
    plan = await plan_in(reading.body)
    first = arguments.offset if arguments.offset is not None else arguments.cursor or 0
    part = line_window(plan.body.decode("utf-8", "replace"), offset=first, limit=arguments.limit)
    return {
        "path": arguments.plan_path.display,
        "metadata": plan.metadata,
        "content": part.text,
        "hash": reading.sha256.hex(),
        "total_lines": part.total_lines,
    }


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


@built_in(
    "workspace",
    description="Edit the text of a plan below its frontmatter: replace `old_string`, which must occur exactly "
    "once, with `new_string`; or insert `insert_content` before line `insert_line` (0-based, as in "
    "`plan_read`). To change the title or status, use `plan_write`.",
    category=ToolCategory.PLAN,
    effects=lambda arguments: Effects(reads=(arguments.path,), writes=(arguments.path,)),
    read_only=False,
)
async def plan_edit(arguments: PlanEditArguments, context: ToolContext) -> EditResult:
    make = partial(_edited_plan, edit=edit_in(arguments))
    return await change_file(arguments.path, make, context, last_read_hash=arguments.last_read_hash)


async def _edited_plan(content: bytes, edit: Edit) -> EditedText:
    """Edit the text of a plan. Its frontmatter stays unchanged."""
    plan = await plan_in(content)
    result = await edit_made(plan.body, edit)
    return EditedText(plan.with_body(result.body), result.note)


class PlanListArguments(ToolArguments):
    status: PlanStatus | None = Field(default=None, description="Only plans with this status.")
    limit: int = Field(default=50, ge=0, description="Maximum number of plans to return; 0 for all.")


class PlanEntry(ToolResult):
    path: str
    name: str
    metadata: Mapping[str, Any] | None
    error: NotRequired[Annotated[str | None, Field(default=None)]]


class PlanListResult(ToolResult):
    plans: list[PlanEntry]
    total: int


@built_in("workspace", category=ToolCategory.PLAN, effects=lambda _: Effects(reads_batch=(mount_root(Mount.PROJECT),)))
async def plan_list(arguments: PlanListArguments, context: ToolContext) -> PlanListResult:
    """List plans with their title, status and time, newest first. `total` is the number of all matching plans."""
    dated = [entry for path in await _plan_paths(context) if (entry := await _plan_entry(path, context)) is not None]
    dated.sort(key=lambda entry: (entry[0], entry[1]["path"]), reverse=True)
    plans = [
        plan
        for _, plan in dated
        if arguments.status is None or (plan["metadata"] or {}).get("status") == arguments.status
    ]
    return {"plans": plans[: arguments.limit or None], "total": len(plans)}


async def _plan_paths(context: ToolContext) -> list[WorkspacePath]:
    """Return every plan: files of that type anywhere in the project, and files with a plan name in /plans."""
    known = [file.state.path for file in await context.tree.plans()]
    try:
        listed = await context.tree.list_directory(FOLDER, recursive=True, limit=None)
    except (NotFound, BadArguments, CallDenied):
        listed = []
    found = [path_state.path for path_state in listed if path_state.kind is EntryKind.FILE]
    return [path for path in dict.fromkeys([*known, *found]) if is_plan_name(path)]


async def _plan_entry(path: WorkspacePath, context: ToolContext) -> tuple[tuple[datetime, datetime], PlanEntry] | None:
    """Return a plan with its times; ``None`` if it is gone or the caller may not read it."""
    try:
        reading = await context.tree.read(path)
    except (NotFound, SymlinkNotFollowed, CallDenied):
        return None
    entry: PlanEntry = {"path": path.display, "name": name_of(path), "metadata": None}
    since = reading.path_state.file.created_at if reading.path_state.file else reading.path_state.updated_at
    # Frontmatter has a resolution of seconds: within one of them, the files' own times decide.
    second = since.replace(microsecond=0)
    try:
        plan = await plan_in(reading.body)
    except ToolFailed as error:
        return (second, since), {**entry, "error": error_text(error)}
    return (plan.created_at or second, since), {**entry, "metadata": plan.metadata}


class ExitPlanModeArguments(ToolArguments):
    plan_file_path: AbsolutePath = Field(description="Path to the plan file (.plan extension).")
    session_id: UUID | None = Field(
        default=None, description="The session that leaves plan mode. Only needed if the call is not part of a session."
    )


class ExitPlanModeResult(ToolResult):
    mode: Literal["build"]
    plan_file: str


@built_in(
    "workspace",
    category=ToolCategory.PLAN,
    effects=lambda arguments: Effects(reads=(arguments.plan_file_path,)),
    requires=PlanModeStore,
    read_only=False,
    modes=frozenset({SessionMode.PLAN}),
)
async def exit_plan_mode(arguments: ExitPlanModeArguments, context: ToolContext) -> ExitPlanModeResult:
    """Leave plan mode and start build mode.

    The user must first accept the plan: ask with `ask_user` and the buttons Accept and Reject.
    """
    path = arguments.plan_file_path
    path_state = await context.tree.lookup(path)
    if path_state.file is None:
        raise NotFound(f"File not found: {path.display}")
    if path_state.type is not FileType.PLAN or not path.name.endswith(PLAN_SUFFIX):
        raise BadArguments({"plan_file_path": f"File is not a plan file: {path.display}"})
    if not parsed((await context.tree.read(path)).body).body.strip():
        raise BadArguments({"plan_file_path": f"The plan is empty: {path.display}. Write it first."})
    session_id = context.caller.session_id or (SessionId(arguments.session_id) if arguments.session_id else None)
    if session_id is None:
        raise BadArguments({"session_id": "Give the session that leaves plan mode."})
    # The server checks what the person answered; the model's word does not count.
    modes = context.resource(PlanModeStore)
    if denial := await modes.leave(Tenant.of(context.caller), session_id, path_state.file.id, path.name):
        raise PermissionDenied(denial)
    return {"mode": "build", "plan_file": path.display}

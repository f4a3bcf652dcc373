"""The ``mounts`` toolset: files by mounted path (``@project/a.md``), results as a union on ``ok``.

Its search is in ``mounts_search``.
"""

from typing import Annotated, Any, ClassVar, Literal, NotRequired, Self

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import Caller
from toolcrib.core.errors import (
    InvalidFrontmatter,
    InvalidTransition,
    NotFound,
    PathOutsideMount,
    PreconditionFailed,
    ProtectedPath,
    ReadOnlyMount,
    SandboxViolation,
    SchemaMismatch,
    TooLarge,
    ToolcribError,
    WriteLimitExceeded,
    error_text,
)
from toolcrib.core.files import ContentKind, EntryKind
from toolcrib.core.paths import Mount, MountPath
from toolcrib.core.tool_calls import Danger, Effects
from toolcrib.runtime.worker_pool import in_worker
from toolcrib.tools.context import ToolContext
from toolcrib.tools.files.write import write_file
from toolcrib.tools.tool import ToolArguments, built_in
from toolcrib.tools.tool_results import ToolResult
from toolcrib.workspace.text.content import HeadTailReader, encode_content
from toolcrib.workspace.text.frontmatter_patch import patched

_MOST_ENTRIES = 200
# The first match counts.
_CODES: tuple[tuple[type[ToolcribError], str], ...] = (
    (NotFound, "ENOENT"),
    (SandboxViolation, "E_SANDBOX_VIOLATION"),
    (WriteLimitExceeded, "E_WRITE_LIMIT"),
    (TooLarge, "E_READ_LIMIT"),
    (InvalidFrontmatter, "E_INVALID_FRONTMATTER"),
    (SchemaMismatch, "E_SCHEMA_VALIDATION"),
    (InvalidTransition, "E_INVALID_TRANSITION"),
    (PreconditionFailed, "E_PRECONDITION_FAILED"),
)
_OTHERWISE = "E_INTERNAL"
# Part of the wire format, so they stay whatever the classes are called.
_VIOLATIONS: dict[type[ToolcribError], str] = {
    PathOutsideMount: "outside_mount",
    ProtectedPath: "protected_name",
    ReadOnlyMount: "read_only_mount",
}


class FsSuccess(ToolResult):
    ok: Literal[True]
    path: str


class FsError(ToolResult):
    code: str
    message: str
    details: NotRequired[dict[str, Any]]


class FsFailure(ToolResult):
    ok: Literal[False]
    error: FsError


def failed(error: ToolcribError) -> FsFailure:
    """Encode any failure or denial in this dialect."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), _OTHERWISE)
    encoded: FsError = {"code": code, "message": error_text(error)}
    if isinstance(error, SandboxViolation):
        encoded["details"] = {"violation": _VIOLATIONS.get(type(error), "violation")}
    elif isinstance(error, InvalidTransition):
        encoded["details"] = {"allowedNext": list(error.allowed)}
    elif error.fields:
        encoded["details"] = {"fields": error.fields}
    return {"ok": False, "error": encoded}


def rules_of(caller: Caller) -> AgentRules:
    """Return the caller's limits: an agent's own; people have the defaults."""
    return caller.agent.rules if caller.agent else AgentRules()


def is_hidden(name: str) -> bool:
    return name.startswith(".")


def _require_within_limit(body: bytes, context: ToolContext) -> None:
    """Raise ``WriteLimitExceeded`` if the content exceeds the limit of the caller or the server."""
    limit = min(rules_of(context.caller).max_write_bytes, context.tree.max_file_bytes)
    if len(body) > limit:
        raise WriteLimitExceeded(f"The content has {len(body):,} bytes; the limit is {limit:,}. Split it.")


class FsReadArguments(ToolArguments):
    path: MountPath = Field(description="Path of the file, such as @project/src/main.py.")
    startLine: int | None = Field(default=None, ge=1, description="First line, 1-based.")
    endLine: int | None = Field(default=None, ge=1, description="Last line, inclusive.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.endLine is not None and self.endLine < (self.startLine or 1):
            raise PydanticCustomError("window", "endLine must not be smaller than startLine")
        return self


class FsReadResult(FsSuccess):
    """A file, or the first part of it as a preview if it is too long."""

    bytes: int
    sha256: str
    truncated: bool
    content: NotRequired[str]
    contentPreview: NotRequired[str]
    hint: NotRequired[str]


@built_in(
    "mounts",
    name="fs.read",
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    encode_error=failed,
    in_execution_log=True,
)
async def fs_read(arguments: FsReadArguments, context: ToolContext) -> FsReadResult:
    """Read a text file, or its lines from `startLine` to `endLine` (1-based, inclusive).

    `sha256` is the hash of the whole file. Pass it to fs.write as `ifMatchSha256`.
    """
    limit = rules_of(context.caller).max_read_bytes
    reader = HeadTailReader(limit=limit, first=arguments.startLine or 1, last=arguments.endLine)
    await context.tree.stream(arguments.path, reader.feed)
    result: FsReadResult = {
        "ok": True,
        "path": str(arguments.path),
        "bytes": reader.size,
        "sha256": reader.sha256,
        "truncated": reader.cut,
    }
    if not reader.cut:
        return {**result, "content": reader.text}
    hint = f"Only the first {limit:,} bytes. Read fewer lines with startLine and endLine, or find them by fs.search."
    return {**result, "contentPreview": reader.text, "hint": hint}


class FsWriteArguments(ToolArguments):
    path: MountPath = Field(description="Path of the file, such as @project/notes.md. @pkg is read-only.")
    content: str = Field(description="The full content.")
    ifMatchSha256: str | None = Field(
        default=None, description="The `sha256` from your last read. The call fails if the file has changed since."
    )


class FsWriteResult(FsSuccess):
    bytesWritten: int
    sha256After: str


@built_in(
    "mounts",
    name="fs.write",
    danger=Danger.DANGEROUS,
    effects=lambda arguments: Effects(writes=(arguments.path,)),
    encode_error=failed,
    in_execution_log=True,
)
async def fs_write(arguments: FsWriteArguments, context: ToolContext) -> FsWriteResult:
    """Create a text file or replace its whole content.

    Missing folders are created. Pass `ifMatchSha256` from fs.read to avoid overwriting newer changes.
    """
    path = arguments.path
    # Not through ``context.files``, which keeps the kind of a file that was written as JSON: this one becomes text.
    path_state = await context.draft.lookup(path)
    await context.tree.reject_symlink(path_state)
    body, kind = encode_content(arguments.content)
    _require_within_limit(body, context)
    if arguments.ifMatchSha256 is not None:
        try:
            reading = await context.tree.read(path)
        except NotFound:
            raise PreconditionFailed(f"{path} does not exist. Write it without ifMatchSha256 to create it.") from None
        await context.tree.require_unchanged(reading, arguments.ifMatchSha256)
    changed = await write_file(path_state, body, context, content=kind)
    return {"ok": True, "path": str(path), "bytesWritten": len(body), "sha256After": changed["hash"]}


class FsListArguments(ToolArguments):
    path: MountPath = Field(description="Path of the folder, such as @project/src. @project is the root.")


class FsListResult(FsSuccess):
    """The names in a folder, or the first of them as a preview if there are too many."""

    truncated: bool
    entries: NotRequired[list[str]]
    entriesPreview: NotRequired[list[str]]
    hint: NotRequired[str]


@built_in(
    "mounts",
    name="fs.list",
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    encode_error=failed,
    in_execution_log=True,
)
async def fs_list(arguments: FsListArguments, context: ToolContext) -> FsListResult:
    """List the entries of a folder, not of its subfolders.

    Folders come first and end with `/`. Hidden entries and symbolic links are omitted.
    """
    await context.tree.reject_symlink(await context.tree.lookup(arguments.path))
    entries = [
        entry.name + ("/" if entry.kind is EntryKind.FOLDER else "")
        for entry in await context.files.list(arguments.path)
        if entry.kind is not EntryKind.LINK and not is_hidden(entry.name)
    ]
    path = str(arguments.path)
    if len(entries) <= _MOST_ENTRIES:
        return {"ok": True, "path": path, "truncated": False, "entries": entries}
    hint = f"{_MOST_ENTRIES} of {len(entries):,} entries. List a subdirectory, or search with fs.search."
    return {"ok": True, "path": path, "truncated": True, "entriesPreview": entries[:_MOST_ENTRIES], "hint": hint}


class AppendTexts(ToolArguments):
    append: list[str]


class AppendObjects(ToolArguments):
    append: list[dict[str, Any]]


class SetValues(ToolArguments):
    set: dict[str, Any]


class SetText(ToolArguments):
    # A value that is not a string fails like a schema mismatch, not as an argument; the schema still says string.
    set: Annotated[Any, WithJsonSchema({"title": "Set", "type": "string"})]


class FrontmatterUpdate(ToolArguments):
    """What is to be changed; what is not named stays."""

    stepsCompleted: AppendTexts | None = None
    variables: SetValues | None = None
    decisionLog: AppendObjects | None = None
    artifacts: AppendTexts | None = None
    currentNodeId: SetText | None = None
    updatedAt: SetText | None = None

    @property
    def plain(self) -> dict[str, Any]:
        """The update as plain values for a worker: what to append or set, by field."""
        for name, text in (("currentNodeId", self.currentNodeId), ("updatedAt", self.updatedAt)):
            if text is not None and not isinstance(text.set, str):
                raise SchemaMismatch(
                    f"`{name}` must be a string, not a {type(text.set).__name__}. Nothing was changed."
                )
        return {name: part.model_dump() for name in type(self).model_fields if (part := getattr(self, name))}


class FrontmatterPatch(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", frozen=True)

    operation: Literal["updateFrontmatter"]
    update: FrontmatterUpdate
    ifMatchSha256: str | None = None


class FsApplyPatchArguments(ToolArguments):
    path: MountPath = Field(description="Path of the document, such as @state/workflow.md.")
    patch: FrontmatterPatch = Field(
        description=(
            "`updateFrontmatter` with an `update`: `append` to stepsCompleted, artifacts (duplicates are "
            "skipped) and decisionLog; `set` variables (merged), currentNodeId and updatedAt."
        )
    )


class FsApplyPatchResult(FsSuccess):
    sha256Before: str
    sha256After: str


@built_in(
    "mounts",
    name="fs.apply_patch",
    danger=Danger.DANGEROUS,
    effects=lambda arguments: Effects(reads=(arguments.path,), writes=(arguments.path,)),
    encode_error=failed,
    in_execution_log=True,
)
async def fs_apply_patch(arguments: FsApplyPatchArguments, context: ToolContext) -> FsApplyPatchResult:
    """Update the frontmatter of a Markdown document in @state.

    Comments, key order and the text below it are kept. Pass `ifMatchSha256` from fs.read to avoid overwriting newer
    changes.
    """
    if arguments.path.mount is not Mount.STATE:
        raise ReadOnlyMount(f"{arguments.path} cannot be patched: updateFrontmatter is for documents in @state only.")
    reading = await context.tree.read(arguments.path)
    await context.tree.require_unchanged(reading, arguments.patch.ifMatchSha256)
    body = await in_worker(patched, reading.body, arguments.patch.update.plain)
    before = after = reading.sha256.hex()
    if body != reading.body:
        _require_within_limit(body, context)
        changed = await write_file(reading.path_state, body, context, content=ContentKind.TEXT)
        after = changed["hash"]
    return {"ok": True, "path": str(arguments.path), "sha256Before": before, "sha256After": after}

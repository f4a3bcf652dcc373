"""Changes part of a document: its frontmatter, and in @state only."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from toolcrib.core.errors import ReadOnlyMount, SchemaMismatch
from toolcrib.core.files import ContentKind
from toolcrib.core.paths import Mount, MountPath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.dialects.mounts.frontmatter_patch import patched
from toolcrib.tools.dialects.mounts.mount_results import done, failed
from toolcrib.tools.dialects.mounts.mount_writes import require_within_limit
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workers.worker_pool import in_worker


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


async def fs_apply_patch(arguments: FsApplyPatchArguments, context: ToolContext) -> dict[str, Any]:
    if arguments.path.mount is not Mount.STATE:
        raise ReadOnlyMount(f"{arguments.path} cannot be patched: updateFrontmatter is for documents in @state only.")
    reading = await context.tree.read(arguments.path)
    await context.tree.require_unchanged(reading, arguments.patch.ifMatchSha256)
    body = await in_worker(patched, reading.body, arguments.patch.update.plain)
    before = after = reading.sha256
    if body != reading.body:
        require_within_limit(body, context)
        path_state = await context.draft.ensure_tracked(reading.path_state)
        change = await context.draft.write(path_state, body, content=ContentKind.TEXT)
        assert change.after is not None and change.after.sha256 is not None
        after = change.after.sha256
    return done(arguments.path, sha256Before=before.hex(), sha256After=after.hex())


tool = Tool(
    name="fs.apply_patch",
    toolset="mounts",
    description=(
        "Update the frontmatter of a Markdown document in @state. Comments, key order and the text below "
        "it are kept. Pass `ifMatchSha256` from fs.read to avoid overwriting newer changes."
    ),
    category=ToolCategory.FILE,
    danger=Danger.DANGEROUS,
    arguments=FsApplyPatchArguments,
    effects=lambda arguments: Effects(reads=(arguments.path,), writes=(arguments.path,)),
    function=fs_apply_patch,
    encode_error=failed,
)

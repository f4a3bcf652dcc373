"""Changes part of a document: for now, its frontmatter, and in @state only."""

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field
from ruamel.yaml.comments import CommentedMap

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.errors import BadFrontmatter, ReadOnlyMount
from toolcrib.domain.files import ContentKind
from toolcrib.domain.places import Mount
from toolcrib.tools.context import ToolContext
from toolcrib.tools.mounts.frontmatter import rewritten
from toolcrib.tools.mounts.shapes import done, failed
from toolcrib.tools.mounts.writing import require_within_limit
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.paths import MountedPath


class AppendTexts(ToolArguments):
    append: list[str]


class AppendObjects(ToolArguments):
    append: list[dict[str, Any]]


class SetValues(ToolArguments):
    set: dict[str, Any]


class SetText(ToolArguments):
    set: str


class Update(ToolArguments):
    """What is to be changed; what is not named stays."""

    stepsCompleted: AppendTexts | None = None
    variables: SetValues | None = None
    decisionLog: AppendObjects | None = None
    artifacts: AppendTexts | None = None
    currentNodeId: SetText | None = None
    updatedAt: SetText | None = None


class Patch(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", frozen=True)

    operation: Literal["updateFrontmatter"]
    update: Update
    ifMatchSha256: str | None = None


class Arguments(ToolArguments):
    path: MountedPath = Field(description="The document, such as @state/workflow.md.")
    patch: Patch = Field(
        description=(
            "`updateFrontmatter` with an `update`: `append` to stepsCompleted, artifacts (what is there already is not "
            "repeated) and decisionLog, `set` variables (merged), currentNodeId and updatedAt."
        )
    )


async def fs_apply_patch(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    if arguments.path.mount is not Mount.STATE:
        raise ReadOnlyMount(f"{arguments.path} cannot be patched: updateFrontmatter is for documents in @state only.")
    reading = await context.tree.read(arguments.path)
    await context.tree.require_unchanged(reading, arguments.patch.ifMatchSha256)
    # YAML takes its time; others are served meanwhile.
    body = await asyncio.to_thread(rewritten, reading.body, lambda data: apply_update(arguments.patch.update, data))
    before = after = reading.sha256
    if body != reading.body:
        require_within_limit(body, context)
        standing = await context.draft.known(reading.standing)
        change = await context.draft.put(standing, body, content=ContentKind.TEXT)
        assert change.after is not None and change.after.sha256 is not None
        after = change.after.sha256
    return done(arguments.path, sha256Before=before.hex(), sha256After=after.hex())


def apply_update(update: Update, data: CommentedMap) -> bool:
    """Changes the frontmatter, and says whether anything is different now."""
    changed = [
        update.stepsCompleted and _append(data, "stepsCompleted", update.stepsCompleted.append, unique=True),
        update.variables and _merge(data, "variables", update.variables.set),
        update.decisionLog and _append(data, "decisionLog", update.decisionLog.append, unique=False),
        update.artifacts and _append(data, "artifacts", update.artifacts.append, unique=True),
        update.currentNodeId and _put(data, "currentNodeId", update.currentNodeId.set),
        update.updatedAt and _put(data, "updatedAt", update.updatedAt.set),
    ]
    return any(changed)


def _append(data: CommentedMap, key: str, values: Sequence[Any], *, unique: bool) -> bool:
    known = data.get(key)
    if known is None:
        known = data[key] = []
    if not isinstance(known, list):
        raise BadFrontmatter(f"`{key}` is not a list, so nothing can be appended to it.")
    count = len(known)
    for value in values:
        if not unique or value not in known:
            known.append(value)
    return len(known) != count


def _merge(data: CommentedMap, key: str, values: dict[str, Any]) -> bool:
    known = data.get(key)
    if known is None:
        known = data[key] = {}
    if not isinstance(known, dict):
        raise BadFrontmatter(f"`{key}` is not a mapping, so nothing can be set in it.")
    changed = [_put(known, name, value) for name, value in values.items()]
    return any(changed)


def _put(data: dict[str, Any], key: str, value: Any) -> bool:
    if key in data and data[key] == value:
        return False
    data[key] = value
    return True


tool = Tool(
    name="fs.apply_patch",
    toolset="mounts",
    description=(
        "Update the frontmatter of a Markdown document in @state; its comments, its order and the text below stay. "
        "Give `ifMatchSha256` from fs.read so that nobody's change is lost."
    ),
    category=Category.FILE,
    danger=Danger.DANGEROUS,
    arguments=Arguments,
    effects=lambda arguments: Effects(reads=(arguments.path,), writes=(arguments.path,)),
    function=fs_apply_patch,
    failure=failed,
)

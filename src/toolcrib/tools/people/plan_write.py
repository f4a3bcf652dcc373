"""Creates or replaces a plan. Generates a name if needed, and keeps other fields of its frontmatter."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from toolcrib.core.errors import BadArguments
from toolcrib.core.files import ContentKind, FileType
from toolcrib.core.paths import shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.people.plan_paths import PlanPath
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.sync.path_state import PathState
from toolcrib.workspace.text.plans import FOLDER, PlanDocument, PlanStatus, drawn, path_of
from toolcrib.workspace.text.worker_calls import plan_composed, plan_in


class PlanWriteArguments(ToolArguments):
    title: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1_000)] = Field(
        description="Title of the plan."
    )
    content: str = Field(description="The plan in Markdown, without frontmatter.")
    path: PlanPath | None = Field(default=None, description="Path to the plan file. By default, a new name in /plans.")
    status: PlanStatus = Field(default=PlanStatus.DRAFT, description="Status of the plan.")


async def plan_write(arguments: PlanWriteArguments, context: ToolContext) -> dict[str, Any]:
    path_state = await context.draft.lookup(arguments.path) if arguments.path else await _at_a_new_name(context)
    plan = await plan_composed(
        await _earlier(path_state, context),
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
    path_state = await context.draft.ensure_tracked(path_state) if path_state.exists else path_state
    change = await context.draft.write(path_state, content, content=ContentKind.TEXT, type=FileType.PLAN, retype=True)
    assert change.after is not None and change.after.sha256 is not None
    return {
        "path": shown(path_state.path),
        "file_id": str(change.file_id),
        "version_id": str(change.version_id),
        "hash": change.after.sha256.hex(),
        "metadata": plan.metadata,
    }


async def _at_a_new_name(context: ToolContext) -> PathState:
    while (path_state := await context.draft.lookup(path_of(drawn()))).exists:
        pass
    return path_state


async def _earlier(path_state: PathState, context: ToolContext) -> PlanDocument | None:
    return await plan_in((await context.tree.read(path_state.path)).body) if path_state.exists else None


def _encodable(field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadArguments({field: f"Not valid Unicode at character {error.start}: a lone surrogate."}) from None


def _effects(arguments: PlanWriteArguments) -> Effects:
    # The new name is chosen when the tool runs, among those that are free.
    return Effects(reads=(arguments.path,), writes=(arguments.path,)) if arguments.path else Effects(writes=(FOLDER,))


tool = Tool(
    name="plan_write",
    toolset="workspace",
    description=(
        "Write a plan, by default to a new file in /plans with a generated name. The title, status and "
        "time are stored in the frontmatter. An existing plan at `path` is replaced; other fields of its "
        "frontmatter are kept."
    ),
    category=ToolCategory.PLAN,
    danger=Danger.SAFE,
    arguments=PlanWriteArguments,
    effects=_effects,
    function=plan_write,
    idempotent=False,
)

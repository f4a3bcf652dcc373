"""Finds files and folders by glob patterns."""

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from toolcrib.core.paths import AbsolutePath, Mount, mount_root, shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.files.file_results import found_entry
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.search.find_files import globs, matching_globs


class GlobArguments(ToolArguments):
    pattern: str | None = Field(
        default=None,
        min_length=1,
        max_length=1_000,
        description="Glob pattern, such as *.rs (at any depth), src/**/*.md or test_*.",
    )
    patterns: list[Annotated[str, Field(max_length=1_000)]] = Field(
        default=[], max_length=50, description="Several patterns instead of `pattern`."
    )
    path: AbsolutePath = Field(default=mount_root(Mount.PROJECT), description="Base directory for the search.")
    limit: int = Field(default=0, ge=0, description="Maximum matches to return; 0 for all.")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.pattern is None) == (not self.patterns):
            raise ValueError("Give either `pattern` or `patterns`")
        return self

    @property
    def wanted(self) -> list[str]:
        return self.patterns if self.pattern is None else [self.pattern]


async def glob(arguments: GlobArguments, context: ToolContext) -> dict[str, Any]:
    meant = globs(arguments.wanted, arguments.path)
    found = await matching_globs(context.tree, arguments.path, meant, limit=arguments.limit or None)
    return {
        "pattern": ", ".join(arguments.wanted),
        "base_path": shown(arguments.path),
        "matches": [found_entry(path_state) | {"is_virtual": path_state.is_virtual} for path_state in found],
    }


tool = Tool(
    name="glob",
    toolset="workspace",
    description=(
        "Find files and folders by glob pattern. A pattern without `/` matches at any depth; `**` matches "
        "any number of folders. To search file contents, use `grep`."
    ),
    category=ToolCategory.SEARCH,
    danger=Danger.SAFE,
    arguments=GlobArguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=glob,
)

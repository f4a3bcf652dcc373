"""Finds files and folders by glob patterns."""

from typing import Any, Self

from pydantic import Field, model_validator

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.domain.places import Mount, root_of
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.tools.workspace.shapes import found_entry
from toolcrib.workspace.paths import AbsolutePath, shown
from toolcrib.workspace.search.globs import globs
from toolcrib.workspace.search.names import matching_globs


class Arguments(ToolArguments):
    pattern: str | None = Field(
        default=None,
        min_length=1,
        max_length=1_000,
        description="Glob pattern, such as *.rs (at any depth), src/**/*.md or test_*.",
    )
    patterns: list[str] = Field(default=[], max_length=50, description="Several patterns, instead of one.")
    path: AbsolutePath = Field(default=root_of(Mount.PROJECT), description="Base directory for the search.")
    limit: int = Field(default=0, ge=0, description="Maximum matches to return; 0 for all.")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.pattern is None) == (not self.patterns):
            raise ValueError("Give `pattern` or `patterns`, one of them")
        return self

    @property
    def wanted(self) -> list[str]:
        return self.patterns if self.pattern is None else [self.pattern]


async def glob(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
    meant = globs(arguments.wanted, arguments.path)
    found = await matching_globs(context.tree, arguments.path, meant, limit=arguments.limit or None)
    return {
        "pattern": ", ".join(arguments.wanted),
        "base_path": shown(arguments.path),
        "matches": [found_entry(standing) | {"is_virtual": standing.is_virtual} for standing in found],
    }


tool = Tool(
    name="glob",
    toolset="workspace",
    description=(
        "Find files and folders by glob pattern. A pattern without `/` counts at any depth; `**` spans folders. "
        "Reads no contents."
    ),
    category=Category.SEARCH,
    danger=Danger.SAFE,
    arguments=Arguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=glob,
)

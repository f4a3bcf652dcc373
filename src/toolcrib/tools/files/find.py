"""Finds files and folders by name, type and size."""

from typing import Any

from pydantic import Field

from toolcrib.core.files import FileType
from toolcrib.core.paths import AbsolutePath, Mount, mount_root
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.files.file_results import found_entry
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.search.find_files import FindCriteria, name_matcher, with_traits


class FindArguments(ToolArguments):
    name: str | None = Field(
        default=None, min_length=1, max_length=1_000, description="Filename pattern, such as *.txt, test_? or [ab]*."
    )
    path: AbsolutePath = Field(default=mount_root(Mount.PROJECT), description="Base directory for the search.")
    file_type: FileType | None = Field(default=None, description="Only this type: document, folder, canvas, …")
    min_size: int | None = Field(default=None, ge=0, description="Minimum file size in bytes.")
    max_size: int | None = Field(default=None, ge=0, description="Maximum file size in bytes.")
    recursive: bool = Field(default=True, description="Search subdirectories.")
    limit: int = Field(default=50, ge=0, description="Maximum matches to return; 0 for all.")

    @property
    def traits(self) -> FindCriteria:
        matcher = None if self.name is None else name_matcher(self.name)
        return FindCriteria(matcher, self.file_type, self.min_size, self.max_size)


async def find(arguments: FindArguments, context: ToolContext) -> dict[str, Any]:
    found = await with_traits(
        context.tree,
        arguments.path,
        arguments.traits,
        recursive=arguments.recursive,
        limit=arguments.limit or None,
    )
    return {"matches": [found_entry(path_state) for path_state in found]}


tool = Tool(
    name="find",
    toolset="workspace",
    description="Find files and folders by name (`*`, `?`, `[…]`), type and size. To search file contents, use `grep`.",
    category=ToolCategory.SEARCH,
    danger=Danger.SAFE,
    arguments=FindArguments,
    effects=lambda arguments: Effects(reads=(arguments.path,)),
    function=find,
)

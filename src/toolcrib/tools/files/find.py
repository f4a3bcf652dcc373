"""Find files and folders by name, type and size, or by glob patterns."""

from typing import Annotated, Final, NotRequired, Self

from pydantic import Field, model_validator

from toolcrib.core.files import FileType, PathState
from toolcrib.core.paths import AbsolutePath, Mount, mount_root
from toolcrib.core.tool_calls import Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import ToolArguments, built_in
from toolcrib.tools.tool_results import TimeText, ToolResult, timestamp
from toolcrib.workspace.search.find_files import FindCriteria, globs, matching_globs, name_matcher, with_traits
from toolcrib.workspace.search.ignored_files import HINT

INCLUDE_IGNORED: Final = "Also search .git and what .gitignore ignores."


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
    include_ignored: bool = Field(default=False, description=INCLUDE_IGNORED)


class FindEntry(ToolResult):
    path: str
    name: str
    synced: bool
    file_type: FileType
    size: Annotated[int | None, Field(description="Null for folders.")]
    updated_at: TimeText


class FindResult(ToolResult):
    matches: list[FindEntry]
    hint: NotRequired[Annotated[str | None, Field(default=None, description="What was not searched.")]]


@built_in("workspace", category=ToolCategory.SEARCH, effects=lambda arguments: Effects(reads=(arguments.path,)))
async def find(arguments: FindArguments, context: ToolContext) -> FindResult:
    """Find files and folders by name (`*`, `?`, `[…]`), type and size. To search file contents, use `grep`."""
    matcher = None if arguments.name is None else name_matcher(arguments.name)
    criteria = FindCriteria(matcher, arguments.file_type, arguments.min_size, arguments.max_size)
    found = await with_traits(
        context.tree,
        arguments.path,
        criteria,
        recursive=arguments.recursive,
        limit=arguments.limit or None,
        include_ignored=arguments.include_ignored,
    )
    result: FindResult = {"matches": [_entry(path_state) for path_state in found.path_states]}
    return {**result, "hint": HINT} if found.skipped else result


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
    include_ignored: bool = Field(default=False, description=INCLUDE_IGNORED)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.pattern is None) == (not self.patterns):
            raise ValueError("Give either `pattern` or `patterns`")
        return self


class GlobEntry(FindEntry):
    is_virtual: bool


class GlobResult(ToolResult):
    pattern: str
    base_path: str
    matches: list[GlobEntry]
    hint: NotRequired[Annotated[str | None, Field(default=None, description="What was not searched.")]]


@built_in("workspace", category=ToolCategory.SEARCH, effects=lambda arguments: Effects(reads=(arguments.path,)))
async def glob(arguments: GlobArguments, context: ToolContext) -> GlobResult:
    """Find files and folders by glob pattern.

    A pattern without `/` matches at any depth; `**` matches any number of folders. To search file contents, use `grep`.
    """
    wanted = arguments.patterns if arguments.pattern is None else [arguments.pattern]
    found = await matching_globs(
        context.tree,
        arguments.path,
        globs(wanted, arguments.path),
        limit=arguments.limit or None,
        include_ignored=arguments.include_ignored,
    )
    result: GlobResult = {
        "pattern": ", ".join(wanted),
        "base_path": arguments.path.display,
        "matches": [{**_entry(path_state), "is_virtual": path_state.is_virtual} for path_state in found.path_states],
    }
    return {**result, "hint": HINT} if found.skipped else result


def _entry(path_state: PathState) -> FindEntry:
    file, node = path_state.file, path_state.node
    size = node.fingerprint.size if node else file.state.size if file else 0
    return {
        "path": path_state.path.display,
        "name": path_state.path.name,
        "synced": path_state.synced,
        "file_type": path_state.type,
        "size": None if path_state.is_folder else size,
        "updated_at": timestamp(path_state.updated_at),
    }

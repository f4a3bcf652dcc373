"""Searches the text of every file for a regular expression."""

from typing import Any

from pydantic import Field

from toolcrib.core.paths import Mount, mount_root, shown
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.workspace.search.file_filter import like_pattern
from toolcrib.workspace.search.grep import MOST_MATCHES, SECONDS, GrepMatches, GrepQuery, GrepSearch
from toolcrib.workspace.search.hit_verification import ContextLines, MatchedLine

_MOST_CONTEXT = 100


class GrepArguments(ToolArguments):
    pattern: str = Field(
        min_length=1,
        max_length=2_000,
        description="Regular expression in PostgreSQL syntax, matched against each line. \\b is a word boundary.",
    )
    path_pattern: str | None = Field(
        default=None,
        min_length=1,
        max_length=1_000,
        description="Only paths that match, such as %.rs or /src/*. Without a wildcard, paths that contain it.",
    )
    case_sensitive: bool = Field(default=False, description="Match case.")
    before_context: int = Field(default=0, ge=0, le=_MOST_CONTEXT, description="Lines to show before each match.")
    after_context: int = Field(default=0, ge=0, le=_MOST_CONTEXT, description="Lines to show after each match.")
    context: int = Field(default=0, ge=0, le=_MOST_CONTEXT, description="Lines to show before and after each match.")
    limit: int = Field(default=50, ge=0, description="Maximum matches to return; 0 for all.")

    @property
    def around(self) -> ContextLines:
        return ContextLines(max(self.before_context, self.context), max(self.after_context, self.context))


async def grep(arguments: GrepArguments, context: ToolContext) -> dict[str, Any]:
    question = GrepQuery(
        pattern=arguments.pattern,
        ignore_case=not arguments.case_sensitive,
        paths=like_pattern(arguments.path_pattern) if arguments.path_pattern else None,
        around=arguments.around,
        limit=min(arguments.limit or MOST_MATCHES, MOST_MATCHES),
    )
    # Reserve some of the call's time for the response.
    answer = await GrepSearch(context.tree, question, seconds=min(SECONDS, 0.8 * context.seconds_left)).answer()
    lines = [
        {"path": shown(match.path), "line_number": match.number, "line_text": match.text} for match in answer.matches
    ]
    if question.around != ContextLines():
        lines = [{**line, **_around(match, arguments)} for line, match in zip(lines, answer.matches, strict=True)]
    return {"matches": lines, **_remarks(answer, arguments)}


def _around(match: MatchedLine, arguments: GrepArguments) -> dict[str, Any]:
    """Return the requested context lines of a match."""
    lines: dict[str, Any] = {}
    if arguments.around.before:
        lines["before_context"] = list(match.before)
    if arguments.around.after:
        lines["after_context"] = list(match.after)
    if arguments.context:
        lines["context"] = [*match.before, match.text, *match.after]
    return lines


def _remarks(answer: GrepMatches, arguments: GrepArguments) -> dict[str, Any]:
    """Return remarks on an incomplete result."""
    remarks: dict[str, Any] = {}
    hints: list[str] = []
    if answer.timed_out:
        remarks["timed_out"] = True
        hints.append(
            f"The search timed out after {SECONDS:.0f} s; there may be more matches. "
            "Use a simpler pattern, or a path_pattern for fewer files."
        )
    if len(answer.matches) == MOST_MATCHES != arguments.limit:
        remarks["truncated"] = True
        hints.append(f"Only the first {MOST_MATCHES:,} matches are shown. Use a more specific pattern.")
    if answer.denied:
        remarks["files_denied"] = answer.denied
        hints.append(f"{answer.denied} files were not searched: you have no permission to read them.")
    return {**remarks, "hint": " ".join(hints)} if hints else {}


tool = Tool(
    name="grep",
    toolset="workspace",
    description=(
        "Search the contents of all files for a regular expression (PostgreSQL syntax, matched line by "
        "line, case-insensitive by default). Returns the path, line number and text of each match."
    ),
    category=ToolCategory.SEARCH,
    danger=Danger.SAFE,
    arguments=GrepArguments,
    # Each file is checked by itself: unreadable ones are left out, and the rest is searched.
    effects=lambda _: Effects(reads_batch=(mount_root(Mount.PROJECT),)),
    function=grep,
)

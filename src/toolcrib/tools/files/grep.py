"""Search the text of every file for a regular expression."""

from typing import Annotated, NotRequired

from pydantic import Field

from toolcrib.core.paths import Mount, mount_root
from toolcrib.core.tool_calls import Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import ToolArguments, built_in
from toolcrib.tools.tool_results import ToolResult
from toolcrib.workspace.search.file_filter import like_pattern
from toolcrib.workspace.search.grep import MOST_MATCHES, SECONDS, GrepMatches, GrepQuery, GrepSearch
from toolcrib.workspace.search.hit_verification import ContextLines, MatchedLine
from toolcrib.workspace.search.ignored_files import HINT

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
    include_ignored: bool = Field(default=False, description="Also search .git and what .gitignore ignores.")


class GrepMatch(ToolResult):
    path: str
    line_number: int
    line_text: str
    before_context: NotRequired[Annotated[list[str] | None, Field(default=None)]]
    after_context: NotRequired[Annotated[list[str] | None, Field(default=None)]]
    context: NotRequired[Annotated[list[str] | None, Field(default=None)]]


class GrepResult(ToolResult):
    matches: list[GrepMatch]
    timed_out: NotRequired[Annotated[bool | None, Field(default=None)]]
    truncated: NotRequired[Annotated[bool | None, Field(default=None)]]
    files_denied: NotRequired[Annotated[int | None, Field(default=None)]]
    hint: NotRequired[
        Annotated[str | None, Field(default=None, description="Why the result is incomplete and what to do.")]
    ]


# Each file is checked by itself: unreadable ones are left out, and the rest is searched.
@built_in(
    "workspace", category=ToolCategory.SEARCH, effects=lambda _: Effects(reads_batch=(mount_root(Mount.PROJECT),))
)
async def grep(arguments: GrepArguments, context: ToolContext) -> GrepResult:
    """Search the contents of all files for a regular expression (PostgreSQL syntax, matched line by line,
    case-insensitive by default). Returns the path, line number and text of each match.
    """
    around = ContextLines(
        max(arguments.before_context, arguments.context), max(arguments.after_context, arguments.context)
    )
    question = GrepQuery(
        pattern=arguments.pattern,
        ignore_case=not arguments.case_sensitive,
        paths=like_pattern(arguments.path_pattern) if arguments.path_pattern else None,
        around=around,
        limit=min(arguments.limit or MOST_MATCHES, MOST_MATCHES),
        include_ignored=arguments.include_ignored,
    )
    # Reserve some of the call's time for the response.
    answer = await GrepSearch(context.tree, question, seconds=min(SECONDS, 0.8 * context.seconds_left)).answer()
    matches: list[GrepMatch] = [
        {"path": match.path.display, "line_number": match.number, "line_text": match.text} for match in answer.matches
    ]
    if around != ContextLines():
        for shown_match, match in zip(matches, answer.matches, strict=True):
            _add_context(shown_match, match, around, both=bool(arguments.context))
    return _with_remarks({"matches": matches}, answer, arguments)


def _add_context(shown_match: GrepMatch, match: MatchedLine, around: ContextLines, *, both: bool) -> None:
    """Add the requested context lines of a match."""
    if around.before:
        shown_match["before_context"] = list(match.before)
    if around.after:
        shown_match["after_context"] = list(match.after)
    if both:
        shown_match["context"] = [*match.before, match.text, *match.after]


def _with_remarks(result: GrepResult, answer: GrepMatches, arguments: GrepArguments) -> GrepResult:
    """Say why a result is incomplete, if it is."""
    hints: list[str] = []
    if answer.timed_out:
        result["timed_out"] = True
        hints.append(
            f"The search timed out after {SECONDS:.0f} s; there may be more matches. "
            "Use a simpler pattern, or a path_pattern for fewer files."
        )
    if len(answer.matches) == MOST_MATCHES != arguments.limit:
        result["truncated"] = True
        hints.append(f"Only the first {MOST_MATCHES:,} matches are shown. Use a more specific pattern.")
    if answer.denied:
        result["files_denied"] = answer.denied
        hints.append(f"{answer.denied} files were not searched: you have no permission to read them.")
    if answer.skipped:
        hints.append(HINT)
    if hints:
        result["hint"] = " ".join(hints)
    return result

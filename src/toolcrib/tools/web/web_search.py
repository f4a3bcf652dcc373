"""Search the web with the engines that the operator configured, or with the caller's own key."""

from collections.abc import Collection, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from toolcrib.core.ids import UserId
from toolcrib.core.tool_calls import ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.tool import ToolArguments, built_in, no_effects
from toolcrib.tools.tool_results import TextOutput, failed_output, text_output
from toolcrib.websearch.brave import SearchKeys
from toolcrib.websearch.search_engine import FallbackSearch, SearchResult
from toolcrib.websearch.text_sanitizer import find_secret, to_single_line

_MOST_QUERY = 400
_MOST_RESULTS = 20


def _asked(query: str) -> str:
    words = to_single_line(query)
    if not words:
        raise PydanticCustomError("query", "The query is empty. Give search terms.")
    if secret := find_secret(words):
        raise PydanticCustomError(
            "query", f"The query contains what looks like {secret}, so it was not sent. Remove it."
        )
    return words


class WebSearchArguments(ToolArguments):
    query: Annotated[str, AfterValidator(_asked)] = Field(
        max_length=_MOST_QUERY, description=f"Search query of at most {_MOST_QUERY} characters and 50 words."
    )
    max_results: int = Field(default=5, ge=1, le=_MOST_RESULTS, description="Maximum number of results.")


class WebSearch:
    """Searches with the engines of this server; the caller's own comes first."""

    def __init__(self, search: FallbackSearch, own: SearchKeys) -> None:
        self._search = search
        self._own = own
        self.hosts = tuple(dict.fromkeys((*search.hosts, own.host)))

    def is_available(self) -> bool:
        """Whether this server has an engine. Without, only models of people with a key see the tool."""
        return bool(self._search.engines)

    async def resources_of(self, user_id: UserId) -> Collection[type]:
        """Return what works for this person because of their own key, even if it is not available for everybody."""
        return (WebSearch,) if await self._own.has_key(user_id) else ()

    async def engines_for(self, user_id: UserId) -> FallbackSearch:
        """Return the engines for this person."""
        return self._search.preferring(await self._own.engine_of(user_id))


@built_in(
    "studio",
    category=ToolCategory.SEARCH,
    effects=no_effects,
    encode_error=failed_output,
    requires=WebSearch,
    hosts=lambda search: search.hosts,
    default=True,
)
async def web_search(arguments: WebSearchArguments, context: ToolContext) -> TextOutput:
    """Search the web. Returns a numbered list of titles, URLs and snippets, not the pages."""
    engines = await context.resource(WebSearch).engines_for(context.caller.user_id)
    found = await engines.search(
        arguments.query, most=arguments.max_results, deadline=context.deadline, tell=context.emit
    )
    metadata: dict[str, Any] = {"provider": found.provider, "resultCount": len(found.pages)}
    if found.failures:
        metadata["failures"] = dict(found.failures)
    return text_output(_numbered(found.pages) or f"No results for: {arguments.query}", **metadata)


def _numbered(pages: Sequence[SearchResult]) -> str:
    return "\n\n".join(
        "\n   ".join(filter(None, (f"{number}. {page.title}", page.address, page.snippet)))
        for number, page in enumerate(pages, 1)
    )

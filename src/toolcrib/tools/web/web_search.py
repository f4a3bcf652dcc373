"""Searches the web with the engines that the operator configured, or with the caller's own key."""

from collections.abc import Sequence
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from toolcrib.core.ids import UserId
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.tools.context import ToolContext
from toolcrib.tools.text_result import failed, text
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.websearch.search_engine import FallbackSearch, SearchEngine, SearchResult
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


class OwnKeys(Protocol):
    """People's own keys for a search engine."""

    @property
    def host(self) -> str: ...

    async def engine_of(self, user_id: UserId) -> SearchEngine | None: ...


def web_search_with(search: FallbackSearch, own: OwnKeys) -> Tool:
    """Build the tool with these engines; the caller's own comes first.

    Without any engine, only models of people with a key see it, and a call explains what to configure.
    """
    contacts = tuple(dict.fromkeys((*search.hosts, own.host)))

    async def web_search(arguments: WebSearchArguments, context: ToolContext) -> dict[str, Any]:
        engines = search.preferring(await own.engine_of(context.caller.user_id))
        found = await engines.search(
            arguments.query, most=arguments.max_results, deadline=context.deadline, tell=context.emit
        )
        metadata: dict[str, Any] = {"provider": found.provider, "resultCount": len(found.pages)}
        if found.failures:
            metadata["failures"] = dict(found.failures)
        return text(_numbered(found.pages) or f"No results for: {arguments.query}", **metadata)

    return Tool(
        name="web_search",
        toolset="studio",
        description="Search the web. Returns a numbered list of titles, URLs and snippets, not the pages.",
        category=ToolCategory.SEARCH,
        danger=Danger.SAFE,
        arguments=WebSearchArguments,
        effects=lambda _: Effects(hosts=contacts),
        function=web_search,
        encode_error=failed,
        available=bool(search.engines),
    )


def _numbered(pages: Sequence[SearchResult]) -> str:
    return "\n\n".join(
        "\n   ".join(filter(None, (f"{number}. {page.title}", page.address, page.snippet)))
        for number, page in enumerate(pages, 1)
    )

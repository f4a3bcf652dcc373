"""Searches the web with the engines that the operator configured. Made in wiring, which knows them."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from toolcrib.domain.effects import Category, Danger, Effects
from toolcrib.tools.context import ToolContext
from toolcrib.tools.studio.shapes import failed, text
from toolcrib.tools.tool import Tool, ToolArguments
from toolcrib.websearch.engine import Page
from toolcrib.websearch.fallback import Fallback
from toolcrib.websearch.leaks import secret_in
from toolcrib.websearch.words import one_line

_MOST_QUERY = 400
_MOST_RESULTS = 20


def _asked(query: str) -> str:
    words = one_line(query)
    if not words:
        raise PydanticCustomError("query", "Say what to search for; the query is empty.")
    if secret := secret_in(words):
        raise PydanticCustomError("query", f"It holds what looks like {secret}, so it was not sent. Ask without it.")
    return words


class Arguments(ToolArguments):
    query: Annotated[str, AfterValidator(_asked)] = Field(
        max_length=_MOST_QUERY, description=f"What to search for, in at most {_MOST_QUERY} characters and 50 words."
    )
    max_results: int = Field(default=5, ge=1, le=_MOST_RESULTS, description="How many results to give at most.")


def web_search_with(search: Fallback) -> Tool:
    """The tool on these engines. Without any it is shown to no model, and tells a person what to configure."""

    async def web_search(arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        found = await search.search(
            arguments.query, most=arguments.max_results, deadline=context.deadline, tell=context.emit
        )
        metadata: dict[str, Any] = {"provider": found.provider, "resultCount": len(found.pages)}
        if found.failures:
            metadata["failures"] = dict(found.failures)
        return text(_numbered(found.pages) or f"No results for: {arguments.query}", **metadata)

    return Tool(
        name="web_search",
        toolset="studio",
        description="Search the web. Gives a numbered list of titles, addresses and snippets, not the pages.",
        category=Category.SEARCH,
        danger=Danger.SAFE,
        arguments=Arguments,
        effects=lambda _: Effects(contacts=search.hosts),
        function=web_search,
        failure=failed,
        offered=bool(search.engines),
    )


def _numbered(pages: Sequence[Page]) -> str:
    return "\n\n".join(
        "\n   ".join(filter(None, (f"{number}. {page.title}", page.address, page.snippet)))
        for number, page in enumerate(pages, 1)
    )

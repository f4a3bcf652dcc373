"""The pages in an engine's list of results. One that is broken is left out; the others still count."""

from typing import Any

from toolcrib.websearch.engine import EngineFailed, Page
from toolcrib.websearch.words import plain, web_address

MOST_TITLE = 300
MOST_SNIPPET = 1_000


def pages(results: Any, *, title: str, address: str, snippet: str, most: int) -> list[Page]:
    """The first ``most`` that can be visited; the keywords say under which names an engine gives what."""
    if not isinstance(results, list):
        raise EngineFailed("the answer holds no list of results")
    found: list[Page] = []
    # More than any engine gives on a page; a hostile list must not keep the server busy.
    for result in results[:500]:
        if len(found) == most:
            break
        where = web_address(result.get(address)) if isinstance(result, dict) else None
        if where is not None:
            name = plain(result.get(title), most=MOST_TITLE) or where
            found.append(Page(name, where, plain(result.get(snippet), most=MOST_SNIPPET)))
    return found

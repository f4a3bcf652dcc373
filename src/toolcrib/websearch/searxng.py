"""SearXNG, and its predecessor searx: the operator's own server, queried for JSON."""

import re
from typing import Any

from yarl import URL

from toolcrib.core.errors import Misconfigured
from toolcrib.websearch.search_engine import EngineFailed, EngineResponse, SearchResult, ask, pages, parsed
from toolcrib.websearch.text_sanitizer import to_plain_text


class SearXNG:
    """A server at ``url``. Its query string is added to every search: ``?engines=bing,brave&language=en``."""

    name = "searxng"

    def __init__(self, url: str) -> None:
        self._url = _search_address(url)

    @property
    def host(self) -> str:
        return self._url.host or ""

    async def search(self, query: str, *, most: int, seconds: float) -> list[SearchResult]:
        params = {"q": _without_commands(query), "format": "json"}
        answer = await ask(self._url, params=params, headers={}, seconds=seconds)
        if not answer.ok:
            raise EngineFailed(_refusal(answer))
        body = answer.json_object()
        found = pages(body.get("results"), title="title", address="url", snippet="content", most=most)
        if not found and (silent := _silent(body.get("unresponsive_engines"))):
            # It answers 200 even if every engine behind it failed. That is not the same as finding nothing.
            raise EngineFailed(f"none of its engines responded ({silent})")
        return found


def _search_address(url: str) -> URL:
    address = parsed(url)
    if address is None:
        raise Misconfigured("TOOLCRIB_SEARXNG_URL is not a URL. Set one such as http://127.0.0.1:8080.")
    path = address.path.rstrip("/")
    return address.with_path(path if path.endswith("/search") else f"{path}/search", keep_query=True)


def _without_commands(query: str) -> str:
    """Remove commands: ``!!g x`` would redirect elsewhere, and ``<9 x`` would change the server's time limit."""
    return " ".join(re.sub(r"^(?:!!+|<(?=\d+$))", "", word) or word for word in query.split())


def _refusal(answer: EngineResponse) -> str:
    match answer.status:
        case 403:
            return "it does not return JSON; add `json` to `search.formats` in its settings.yml"
        case 429:
            return "its bot detection blocks this server; allow it in its limiter"
        case status if 300 <= status < 400:
            return f"{answer.refusal}: set TOOLCRIB_SEARXNG_URL to its final address"
        case _:
            return answer.refusal


def _silent(engines: Any) -> str:
    """Return ``bing: timeout, brave: too many requests``; they come as pairs, in some versions as names."""
    if not isinstance(engines, list):
        return ""
    pairs = [engine[:2] if isinstance(engine, list) else (engine,) for engine in engines[:5]]
    names = [": ".join(to_plain_text(word, most=80) for word in pair) for pair in pairs]
    return ", ".join(names) + (f" and {len(engines) - 5} more" if len(engines) > 5 else "")

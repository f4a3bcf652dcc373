"""SearXNG and Brave with the responses of their documentation. Both reject what the real services reject."""

import json
from dataclasses import dataclass, field
from typing import Any

from tests.integration.websearch.loopback import Reply, Request

KEY = "BSA-key-of-the-operator-4711"


def as_json(value: Any, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode())


def pages(count: int, *, by: str) -> list[dict[str, str]]:
    return [
        {"title": f"{by} {n}", "url": f"https://{by}.example/{n}", "text": f"About {n}."} for n in range(1, count + 1)
    ]


@dataclass
class SearXNG:
    """``search/`` of a server whose settings allow ``formats``."""

    results: list[Any] = field(default_factory=lambda: _searxng_results(3))
    unresponsive: list[list[str]] = field(default_factory=list)
    formats: tuple[str, ...] = ("html", "json")

    async def __call__(self, request: Request) -> Reply:
        if (request.method, request.path) != ("GET", "/search"):
            return Reply(404, b"<html>not found</html>", "text/html")
        wanted = request.query.get("format", "html")
        if wanted not in self.formats:
            return Reply(403, b"<!doctype html><title>403 Forbidden</title>", "text/html; charset=utf-8")
        query = request.query.get("q", "")
        if not query:
            return as_json({"error": "No query"}, 400)
        if query.startswith("!!"):
            return Reply(302, headers={"Location": "https://www.google.com/search?q=x"})
        return as_json(
            {
                "query": query,
                "number_of_results": 0,
                "results": self.results,
                "answers": [],
                "corrections": [],
                "infoboxes": [],
                "suggestions": [],
                "unresponsive_engines": self.unresponsive,
            }
        )


def _searxng_results(count: int) -> list[dict[str, Any]]:
    return [
        {
            "url": page["url"],
            "title": page["title"],
            "content": page["text"],
            "engine": "bing",
            "engines": ["bing"],
            "score": 1.0,
            "category": "general",
            "template": "default.html",
            "parsed_url": ["https", "searxng.example", "/1", "", "", ""],
        }
        for page in pages(count, by="searxng")
    ]


@dataclass
class Brave:
    """``/res/v1/web/search`` for one key whose plan has ``left`` requests left."""

    count: int = 20
    left: int = 1_000_000
    key: str = KEY

    async def __call__(self, request: Request) -> Reply:
        if (request.method, request.path) != ("GET", "/res/v1/web/search"):
            return brave_error(404, "NOT_FOUND", "No such endpoint")
        token = request.headers.get("x-subscription-token")
        if token is None:
            return brave_error(422, "VALIDATION", "Unable to validate request parameter(s)")
        if token != self.key:
            # Its message repeats the token, as a careless server's might.
            return brave_error(
                422, "SUBSCRIPTION_TOKEN_INVALID", f"The provided subscription token {token} is invalid."
            )
        if not _is_valid(request.query):
            return brave_error(422, "VALIDATION", "Unable to validate request parameter(s)")
        if self.left == 0:
            return brave_error(429, "RATE_LIMITED", "Request rate limit exceeded for plan.")
        self.left -= 1
        return as_json(self._found(request.query["q"], int(request.query.get("count", "20"))))

    def _found(self, query: str, count: int) -> dict[str, Any]:
        answer: dict[str, Any] = {"type": "search", "query": {"original": query, "more_results_available": False}}
        results = [
            {"type": "search_result", "title": page["title"], "url": page["url"], "description": page["text"]}
            for page in pages(min(count, self.count), by="brave")
        ]
        if results:
            answer["web"] = {"type": "search", "results": results, "family_friendly": True}
        return answer


def brave_error(status: int, code: str, detail: str) -> Reply:
    error = {"id": "ade84851", "status": status, "code": code, "detail": detail, "meta": {}}
    return as_json({"type": "ErrorResponse", "error": error, "time": 1754364294}, status)


def _is_valid(query: dict[str, str]) -> bool:
    words = query.get("q", "")
    return 0 < len(words) <= 400 and len(words.split()) <= 50 and 1 <= int(query.get("count", "20")) <= 20

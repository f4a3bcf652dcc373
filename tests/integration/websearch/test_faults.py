"""Engines that are slow, endless, broken or hostile: each fails with its reason and within its time limit."""

import asyncio
import gzip
import json
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import pytest
from pydantic import SecretStr

from tests.integration.websearch.engines import KEY, Brave, SearXNG, as_json, brave_error
from tests.integration.websearch.loopback import Handler, Reply, Request, loopback
from tests.wait_until import PATIENCE, growing
from toolcrib.core.errors import ToolFailed
from toolcrib.websearch import brave, searxng
from toolcrib.websearch.search_engine import (
    MOST_BYTES,
    EngineFailed,
    FallbackSearch,
    SearchEngine,
    SearchResult,
    SearchResults,
)

Making = Callable[[str], SearchEngine]

ENGINES: dict[str, Making] = {
    "searxng": searxng.SearXNG,
    "brave": lambda origin: brave.Brave(SecretStr(KEY), url=f"{origin}/res/v1/web/search"),
}
BOTH = pytest.mark.parametrize("engine", list(ENGINES))
MEGABYTE = b" " * 1_000_000


def always(reply: Reply) -> Handler:
    async def handler(_: Request) -> Reply:
        return reply

    return handler


async def failure(engine: str, handler: Handler, *, seconds: float = 10.0, query: str = "x") -> str:
    """Return why the engine failed."""
    async with loopback(handler) as served:
        with pytest.raises(EngineFailed) as failed:
            await ENGINES[engine](served.origin).search(query, most=5, seconds=seconds)
    return str(failed.value)


@BOTH
@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply(stay=True), "no response within 0.2 s"),
        (Reply(body=b'{"results": [', stay=True), "no response within 0.2 s"),
        (Reply(body=b" ", pieces=200, pause=0.05), "no response within 0.2 s"),
    ],
    ids=["after the head", "in the middle", "after every byte"],
)
async def test_hanging_engine_times_out(engine: str, reply: Reply, says: str) -> None:
    async with asyncio.timeout(PATIENCE):
        assert await failure(engine, always(reply), seconds=0.2) == says


@BOTH
async def test_silent_engine_times_out(engine: str) -> None:
    never = asyncio.Event()

    async def silent(_: Request) -> Reply:
        await never.wait()
        return Reply()

    assert await failure(engine, silent, seconds=0.2) == "no response within 0.2 s"


@BOTH
async def test_response_of_50_megabytes_is_cut_at_two(engine: str) -> None:
    async with loopback(always(Reply(body=MEGABYTE, pieces=50))) as served:
        with pytest.raises(EngineFailed, match="larger than 2,000,000 bytes"):
            await ENGINES[engine](served.origin).search("x", most=5, seconds=10)

    assert served.sent_bytes < 50_000_000


@BOTH
async def test_compressed_response_is_decompressed_up_to_two_megabytes(engine: str) -> None:
    bomb = gzip.compress(MEGABYTE * 100)

    assert len(bomb) < MOST_BYTES
    tracemalloc.start()
    try:
        said = await failure(engine, always(Reply(body=bomb, headers={"Content-Encoding": "gzip"})))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "larger than 2,000,000 bytes" in said
    assert peak < 20_000_000


async def test_compressed_response_is_read() -> None:
    found = {"results": [{"title": "t", "url": "https://a.example/", "content": "c"}]}
    packed = Reply(body=gzip.compress(json.dumps(found).encode()), headers={"Content-Encoding": "gzip"})
    async with loopback(always(packed)) as served:
        assert await searxng.SearXNG(served.origin).search("x", most=5, seconds=10) == [
            SearchResult("t", "https://a.example/", "c")
        ]


@BOTH
@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply(body=b"{"), "not JSON"),
        (Reply(body=b""), "not JSON"),
        (Reply(body=b"<!doctype html><title>Results</title>", content_type="text/html"), "not JSON"),
        (Reply(body=b"[" * 100_000), "not JSON"),
        (Reply(body=b'{"results": "\xff\xfe"}'), "not JSON"),
        (Reply(body=b'["results"]'), "not an object"),
        (as_json({}), "no list of results"),
        (as_json({"results": {"1": 2}, "web": {"results": 7}}), "no list of results"),
        (as_json({"results": None, "web": [1]}), "no list of results"),
        (Reply(body=b"not packed", headers={"Content-Encoding": "gzip"}), "the response is invalid"),
        (Reply(body=b"?", headers={"Content-Encoding": "br"}), "the response is invalid"),
        (Reply(500, b"oops", "text/plain"), "HTTP 500"),
        (Reply(204), "HTTP 204"),
    ],
)
async def test_malformed_response_is_reported(engine: str, reply: Reply, says: str) -> None:
    assert says in await failure(engine, always(reply))


@BOTH
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_is_not_followed_and_the_key_is_sent_nowhere_else(engine: str, status: int) -> None:
    async with loopback(Brave()) as elsewhere:
        location = {"Location": f"{elsewhere.origin}/res/v1/web/search?q=x"}
        said = await failure(engine, always(Reply(status, headers=location)))

    assert "redirects are not followed" in said
    assert elsewhere.requests == []


@BOTH
async def test_server_that_does_not_speak_http_is_a_failure(engine: str) -> None:
    async def gibber(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(gibber, "127.0.0.1", 0) as server:
        origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(EngineFailed, match="connection failed"):
            await ENGINES[engine](origin).search("x", most=5, seconds=5)


@BOTH
async def test_hostile_result_list_costs_little(engine: str) -> None:
    useless = [{"url": "x:"}] * 60_000
    async with loopback(always(as_json({"results": useless, "web": {"results": useless}}))) as served:
        assert await ENGINES[engine](served.origin).search("x", most=5, seconds=10) == []


async def test_searxng_without_json_reports_what_to_add() -> None:
    said = await failure("searxng", SearXNG(formats=("html",)))

    assert "add `json` to `search.formats`" in said


async def test_rate_limit_of_searxng_reports_what_to_do() -> None:
    assert "limiter" in await failure("searxng", always(Reply(429, b"Too Many Requests", "text/plain")))


async def test_query_cannot_command_searxng() -> None:
    async with loopback(SearXNG()) as served:
        engine = searxng.SearXNG(served.origin)
        assert len(await engine.search("!!g  <9 a<b x", most=5, seconds=5)) == 3

    assert served.queries == ["g 9 a<b x"]


async def test_operators_parameters_in_the_searxng_url_are_kept() -> None:
    async with loopback(always(as_json({"results": []}))) as served:
        url = f"{served.origin.replace('//', '//ada:pass@')}/searx/?engines=bing,brave&language=en#top"
        assert await searxng.SearXNG(url).search("x&format=csv", most=5, seconds=5) == []

    [request] = served.requests
    assert request.path == "/searx/search"
    assert request.query == {"engines": "bing,brave", "language": "en", "q": "x&format=csv", "format": "json"}
    assert request.headers["authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (brave_error(401, "UNAUTHORIZED", "no"), "it rejected the key (HTTP 401)"),
        (brave_error(403, "FORBIDDEN", "no"), "it rejected the key (HTTP 403)"),
        (brave_error(422, "SUBSCRIPTION_TOKEN_INVALID", "no"), "it rejected the key (HTTP 422)"),
        (brave_error(422, "VALIDATION", f"token {KEY} \x1b[1mbad"), "HTTP 422 (VALIDATION: token [key] bad)"),
        (brave_error(429, "RATE_LIMITED", "slow"), "its rate limit is reached"),
        (as_json({"error": ["?"]}, 500), "it returned HTTP 500"),
        (
            Reply(302, headers={"Location": f"https://a.example/?key={KEY}"}),
            "redirected to https://a.example/?key=[key]",
        ),
    ],
)
async def test_brave_errors_report_what_to_do(reply: Reply, says: str) -> None:
    assert says in await failure("brave", always(reply))


async def test_query_that_brave_would_reject_is_not_sent() -> None:
    handler = Brave()
    assert "the limit is 50 words" in await failure("brave", handler, query=" ".join("x" * 51))
    assert handler.left == 1_000_000


async def test_results_that_cannot_be_visited_are_skipped_and_the_others_stay() -> None:
    addresses: list[Any] = [
        None, 7, "", "javascript:alert(1)", "data:text/html,x", "ftp://a.example/", "file:///etc/passwd",
        "//a.example/", "https://", "https://bank.example@evil.example/", "https://a.example/\nb",
        "https://a.example/\u202eb", "https://[::1", "https://a.example:99999/", "https://a.example/" + "x" * 3000,
        "https://a.example\\@b.example/",
        "https://good.example/ü?q=1#2",
    ]  # fmt: skip
    results: list[Any] = [{"url": address, "title": "t", "content": "c"} for address in addresses]
    async with loopback(SearXNG(results=["?", None, [], *results])) as served:
        found = await searxng.SearXNG(served.origin).search("x", most=5, seconds=5)

    assert [page.address for page in found] == ["https://good.example/ü?q=1#2"]


# In order


async def test_hanging_engine_leaves_time_for_the_next() -> None:
    tool_result: list[str] = []
    async with loopback(always(Reply(stay=True))) as hanging, loopback(Brave()) as good:
        engines = (ENGINES["searxng"](hanging.origin), ENGINES["brave"](good.origin))
        found = await _searched(engines, tool_result)

    assert found.provider == "brave"
    assert found.failures["searxng"].startswith("no response within ")
    assert tool_result == ["Searching with searxng (127.0.0.1).\n", "Searching with brave (127.0.0.1).\n"]


async def _searched(engines: Sequence[SearchEngine], tool_result: list[str]) -> SearchResults:
    for seconds in growing(3.0):
        tool_result.clear()
        with suppress(ToolFailed):
            deadline = monotonic() + seconds
            return await FallbackSearch(tuple(engines)).search("x", most=5, deadline=deadline, tell=tool_result.append)
    raise AssertionError(f"None of them searched: {tool_result}")


class Third:
    """A third-party engine."""

    name = "third"
    host = "third.example"

    async def search(self, query: str, *, most: int, seconds: float) -> list[SearchResult]:
        return [SearchResult(query, "https://third.example/", "")]


async def test_third_party_engine_is_a_class_with_the_same_interface() -> None:
    chain = FallbackSearch((ENGINES["searxng"]("http://127.0.0.1:1"), Third()))

    found = await chain.search("x", most=5, deadline=monotonic() + 10, tell=lambda _: None)

    assert (found.provider, [page.title for page in found.pages]) == ("third", ["x"])
    assert chain.hosts == ("127.0.0.1", "third.example")


async def test_cancelled_search_ends_at_once_and_queries_no_other_engine() -> None:
    asked = asyncio.Event()

    async def hang(_: Request) -> Reply:
        asked.set()
        return Reply(stay=True)

    async with loopback(hang) as hanging, loopback(Brave()) as good:
        engines = (ENGINES["searxng"](hanging.origin), ENGINES["brave"](good.origin))
        search = asyncio.create_task(
            FallbackSearch(engines).search("x", most=5, deadline=monotonic() + 60, tell=lambda _: None)
        )
        await asyncio.wait_for(asked.wait(), PATIENCE)
        search.cancel()
        with pytest.raises(asyncio.CancelledError):
            await search

    assert good.requests == []


async def test_concurrent_searches_do_not_wait_for_one_that_hangs() -> None:
    async with loopback(always(Reply(stay=True))) as hanging, loopback(SearXNG()) as good:
        slow = asyncio.create_task(ENGINES["searxng"](hanging.origin).search("x", most=5, seconds=30))
        engine = ENGINES["searxng"](good.origin)
        found = await asyncio.wait_for(
            asyncio.gather(*(engine.search(f"q{number}", most=5, seconds=10) for number in range(50))), 20
        )
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)

    assert [len(pages) for pages in found] == [3] * 50


async def test_without_time_left_the_engines_fail_instead_of_waiting() -> None:
    async with loopback(SearXNG()) as served:
        with pytest.raises(ToolFailed, match="no response within 0 s"):
            await FallbackSearch((ENGINES["searxng"](served.origin),)).search(
                "x", most=5, deadline=monotonic() - 1, tell=lambda _: None
            )


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_local_engine_is_not_queried_through_a_proxy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with loopback(SearXNG()) as served:
        assert len(await searxng.SearXNG(served.origin).search("x", most=5, seconds=5)) == 3

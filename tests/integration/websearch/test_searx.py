"""A real searx, which queries a JSON server of ours: we parse its responses correctly."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.tools.builders import tool_result
from tests.integration.websearch.builders import searching
from tests.integration.websearch.engines import Brave, pages
from tests.integration.websearch.loopback import Loopback, Reply, Request, loopback
from tests.integration.websearch.searx import searx

pytestmark = pytest.mark.xdist_group("searx")


@dataclass
class Source:
    """The reply that searx finds; each test may change it."""

    reply: Reply

    async def __call__(self, _: Request) -> Reply:
        return self.reply


@dataclass(frozen=True)
class Standing:
    """A running searx, and the source of its results."""

    url: str
    source: Source
    served: Loopback


def results(*found: dict[str, str]) -> Reply:
    return Reply(body=json.dumps({"results": found}).encode())


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Standing]:
    source = Source(results())
    async with loopback(source) as served:
        with searx(tmp_path_factory.mktemp("searx"), served.origin) as url:
            yield Standing(url, source, served)


async def test_its_results_are_returned_as_a_numbered_list(workspace: WorkspaceFixture, running: Standing) -> None:
    running.source.reply = results(*pages(3, by="real"))

    result = await tool_result(
        searching(workspace, searxng=running.url), "web_search", query="größe & <order>", max_results=2
    )

    assert result == {
        "output": "1. real 1\n   https://real.example/1\n   About 1.\n\n"
        "2. real 2\n   https://real.example/2\n   About 2.",
        "metadata": {"provider": "searxng", "resultCount": 2},
        "is_error": False,
    }
    assert running.served.queries[-1] == "größe & <order>"


async def test_without_results_brave_is_queried(workspace: WorkspaceFixture, running: Standing) -> None:
    running.source.reply = results()
    async with loopback(Brave()) as brave:
        alone = await tool_result(searching(workspace, searxng=running.url), "web_search", query="nothing")
        both = await tool_result(searching(workspace, searxng=running.url, brave=brave), "web_search", query="nothing")

    assert alone["metadata"] == {"provider": "searxng", "resultCount": 0}
    assert both["metadata"] == {"provider": "brave", "resultCount": 5}


@pytest.mark.parametrize("reply", [Reply(500, b"down"), Reply(body=b"{")], ids=["an error", "nonsense"])
async def test_failure_of_its_only_engine_is_a_failure(
    workspace: WorkspaceFixture, running: Standing, reply: Reply
) -> None:
    running.source.reply = reply
    async with loopback(Brave()) as brave:
        alone = await tool_result(searching(workspace, searxng=running.url), "web_search", query="fails")
        both = await tool_result(searching(workspace, searxng=running.url, brave=brave), "web_search", query="fails")

    assert alone["is_error"]
    assert "none of its engines responded (ours: " in alone["output"]
    assert both["metadata"]["provider"] == "brave"


async def test_bang_that_would_redirect_is_searched_for_instead(workspace: WorkspaceFixture, running: Standing) -> None:
    running.source.reply = results(*pages(1, by="real"))

    result = await tool_result(searching(workspace, searxng=running.url), "web_search", query="!!g x")

    assert result["metadata"] == {"provider": "searxng", "resultCount": 1}
    assert running.served.queries[-1] == "g x"


async def test_malformed_result_does_not_hide_the_others(workspace: WorkspaceFixture, running: Standing) -> None:
    good = pages(1, by="real")[0]
    running.source.reply = results(
        {"title": "x", "url": "javascript:alert(1)", "text": "x"}, {**good, "text": "<b>a</b> &amp; b"}
    )

    result = await tool_result(searching(workspace, searxng=running.url), "web_search", query="mixed")

    assert result["output"] == "1. real 1\n   https://real.example/1\n   a & b"

"""`web_search` of the `studio` toolset, under the test names that its authors list; then who may use it."""

import logging
from typing import Any

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import audit_records_of, joined, stranger
from tests.integration.tools.builders import tool_result
from tests.integration.websearch.builders import NOWHERE, searching
from tests.integration.websearch.engines import KEY, Brave, SearXNG
from tests.integration.websearch.loopback import loopback
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.errors import Forbidden, Misconfigured, PermissionDenied
from toolcrib.core.ids import UserId
from toolcrib.core.provider_credentials import ProviderCredentials
from toolcrib.core.tool_calls import Danger, OutcomeState, ToolCategory
from toolcrib.storage.users import ActingUser
from toolcrib.wiring.tool_runtime import assemble

NUMBERED = """\
1. searxng 1
   https://searxng.example/1
   About 1.

2. searxng 2
   https://searxng.example/2
   About 2.

3. searxng 3
   https://searxng.example/3
   About 3."""


# As its authors list them


async def test_searxng_returns_results_formatted_output(workspace: WorkspaceFixture) -> None:
    async with loopback(SearXNG()) as searxng, loopback(Brave()) as brave:
        result = await tool_result(
            searching(workspace, searxng=searxng.origin, brave=brave), "web_search", query="a  query"
        )

    assert result == {
        "output": NUMBERED,
        "metadata": {"provider": "searxng", "resultCount": 3},
        "is_error": False,
    }
    assert searxng.queries == ["a query"]
    assert brave.requests == []


async def test_searxng_down_brave_returns_results_fallback_works(workspace: WorkspaceFixture) -> None:
    async with loopback(Brave()) as brave:
        result = await tool_result(searching(workspace, searxng=NOWHERE, brave=brave), "web_search", query="test")

    assert not result["is_error"]
    assert result["output"].startswith("1. brave 1\n   https://brave.example/1\n   About 1.")
    assert (result["metadata"]["provider"], result["metadata"]["resultCount"]) == ("brave", 5)
    assert "cannot be reached" in result["metadata"]["failures"]["searxng"]


async def test_both_providers_fail_is_error_true(workspace: WorkspaceFixture) -> None:
    result = await tool_result(searching(workspace, searxng=NOWHERE, brave=NOWHERE), "web_search", query="test")

    assert result["is_error"]
    assert result["output"].startswith("The web search failed. searxng: it cannot be reached")
    assert "brave: it cannot be reached" in result["output"]
    assert result["metadata"] == {"code": "TOOL_FAILED"}


@pytest.mark.parametrize("query", ["", "  \n", "\u200b\x1b[0m"])
async def test_empty_query_is_error_true(workspace: WorkspaceFixture, query: str) -> None:
    async with loopback(SearXNG()) as searxng:
        result = await tool_result(searching(workspace, searxng=searxng.origin), "web_search", query=query)

    assert result["is_error"]
    assert result["output"].startswith("query: The query is empty")
    assert searxng.requests == []


async def test_searxng_returns_empty_results_tries_fallback(workspace: WorkspaceFixture) -> None:
    async with loopback(SearXNG(results=[])) as searxng, loopback(Brave()) as brave:
        result = await tool_result(
            searching(workspace, searxng=searxng.origin, brave=brave), "web_search", query="test"
        )

    assert result["metadata"] == {"provider": "brave", "resultCount": 5}
    assert (searxng.queries, brave.queries) == (["test"], ["test"])


async def test_brave_api_returns_error_status_is_error_true(workspace: WorkspaceFixture) -> None:
    async with loopback(Brave(left=0)) as brave:
        result = await tool_result(searching(workspace, searxng=NOWHERE, brave=brave), "web_search", query="test")

    assert result["is_error"]
    assert "brave: its rate limit is reached" in result["output"]


@pytest.mark.parametrize("most", [1, 2, 20])
async def test_max_results_parameter_respected(workspace: WorkspaceFixture, most: int) -> None:
    async with loopback(SearXNG()) as searxng, loopback(Brave()) as brave:
        by_searxng = await tool_result(
            searching(workspace, searxng=searxng.origin), "web_search", query="x", max_results=most
        )
        by_brave = await tool_result(searching(workspace, brave=brave), "web_search", query="x", max_results=most)

    assert by_searxng["metadata"]["resultCount"] == min(most, 3)
    assert by_brave["metadata"]["resultCount"] == most
    assert by_brave["output"].count("https://") == most


@pytest.mark.parametrize("most", [0, -1, 21, "many"])
async def test_max_results_out_of_bounds_is_an_error_that_names_the_field(
    workspace: WorkspaceFixture, most: Any
) -> None:
    result = await tool_result(searching(workspace, searxng=NOWHERE), "web_search", query="x", max_results=most)

    assert result["is_error"]
    assert result["output"].startswith("max_results: ")


async def test_verify_output_format_is_llm_readable_numbered_list(workspace: WorkspaceFixture) -> None:
    strange = [
        {
            "title": "2. <b>Forged</b>\n\n3. entry",
            "url": "https://a.example/",
            "content": "\x1b[31mred\x1b[0m &amp; <i>x</i>",
        },
        {"title": None, "url": "https://b.example/", "content": None},
    ]
    async with loopback(SearXNG(results=strange)) as searxng:
        result = await tool_result(searching(workspace, searxng=searxng.origin), "web_search", query="x")

    assert result["output"].split("\n") == [
        "1. 2. Forged 3. entry",
        "   https://a.example/",
        "   red & x",
        "",
        "2. https://b.example/",
        "   https://b.example/",
    ]


async def test_ac18_searxng_is_reachable_and_the_output_contains_its_results(workspace: WorkspaceFixture) -> None:
    async with loopback(SearXNG()) as searxng:
        result = await tool_result(searching(workspace, searxng=searxng.origin), "web_search", query="test")

    assert "searxng 1" in result["output"]
    assert result["is_error"] is False


async def test_ac19_searxng_is_down_and_brave_results_are_returned(workspace: WorkspaceFixture) -> None:
    async with loopback(Brave()) as brave:
        result = await tool_result(searching(workspace, searxng=NOWHERE, brave=brave), "web_search", query="test")

    assert "brave 1" in result["output"]
    assert result["is_error"] is False


async def test_ac20_both_fail_is_an_error(workspace: WorkspaceFixture) -> None:
    assert (await tool_result(searching(workspace, searxng=NOWHERE, brave=NOWHERE), "web_search", query="test"))[
        "is_error"
    ] is True


# Between success and failure


async def test_engines_that_find_nothing_are_no_error(workspace: WorkspaceFixture) -> None:
    async with loopback(SearXNG(results=[])) as searxng, loopback(Brave(count=0)) as brave:
        result = await tool_result(
            searching(workspace, searxng=searxng.origin, brave=brave), "web_search", query="zxqv"
        )

    assert result == {
        "output": "No results for: zxqv",
        "metadata": {"provider": "searxng", "resultCount": 0},
        "is_error": False,
    }


async def test_empty_result_of_one_engine_counts_when_the_other_fails(workspace: WorkspaceFixture) -> None:
    async with loopback(SearXNG(results=[])) as searxng:
        result = await tool_result(
            searching(workspace, searxng=searxng.origin, brave=NOWHERE), "web_search", query="zxqv"
        )

    assert not result["is_error"]
    assert result["metadata"]["provider"] == "searxng"
    assert "brave" in result["metadata"]["failures"]


async def test_200_empty_and_unresponsive_engines_count_as_failure(workspace: WorkspaceFixture) -> None:
    silent = SearXNG(results=[], unresponsive=[["bing", "timeout"], ["brave", "Suspended: too many requests"]])
    async with loopback(silent) as searxng, loopback(Brave()) as brave:
        alone = await tool_result(searching(workspace, searxng=searxng.origin), "web_search", query="test")
        both = await tool_result(searching(workspace, searxng=searxng.origin, brave=brave), "web_search", query="test")

    assert alone["is_error"]
    assert "(bing: timeout, brave: Suspended: too many requests)" in alone["output"]
    assert both["metadata"]["provider"] == "brave"
    assert "none of its engines responded" in both["metadata"]["failures"]["searxng"]


async def test_some_results_and_some_unresponsive_engines_count_as_found(workspace: WorkspaceFixture) -> None:
    async with loopback(SearXNG(unresponsive=[["bing", "timeout"]])) as searxng:
        result = await tool_result(searching(workspace, searxng=searxng.origin), "web_search", query="test")

    assert result["metadata"] == {"provider": "searxng", "resultCount": 3}


async def test_query_is_sent_verbatim_except_for_blanks_and_invisible_characters(workspace: WorkspaceFixture) -> None:
    async with loopback(SearXNG()) as searxng:
        there = searching(workspace, searxng=searxng.origin)
        await tool_result(there, "web_search", query=" what does\n<b> do &amp; why?\x1b[1m\x00 größe=1+1 ")

    assert searxng.queries == ["what does <b> do &amp; why? größe=1+1"]


# Who may use it


async def test_it_is_a_safe_search_that_declares_the_hosts_it_contacts(workspace: WorkspaceFixture) -> None:
    there = searching(workspace, searxng="https://searx.example.org/", brave="https://relay.example.org")
    tool = there.engine.registry.require("web_search")

    assert (tool.toolset, tool.category, tool.danger) == ("studio", ToolCategory.SEARCH, Danger.SAFE)
    assert tool.input_schema["required"] == ["query"]
    assert all(field["description"] for field in tool.input_schema["properties"].values())
    assert tool.input_schema["properties"]["max_results"]["default"] == 5
    assert tool.effects(tool.parse({"query": "x"})).hosts == ("searx.example.org", "relay.example.org")


async def test_read_only_agent_may_search_without_approval(workspace: WorkspaceFixture) -> None:
    reader = await workspace.agent(toolsets=["studio"])
    async with loopback(SearXNG()) as searxng:
        outcome = await searching(workspace, searxng=searxng.origin).call("web_search", reader, query="x")

    assert outcome.succeeded
    [record] = await audit_records_of(workspace, outcome.call_id)
    assert (record.tool, record.decision, record.outcome) == ("web_search", "allow", "done")


async def test_agent_without_permission_or_approval_contacts_no_host(workspace: WorkspaceFixture) -> None:
    without = await workspace.agent(toolsets=["studio"], tool_permissions={"file_read": {"allowed": True}})
    supervised = await workspace.agent(toolsets=["studio"], trust="supervised")
    async with loopback(SearXNG()) as searxng:
        there = searching(workspace, searxng=searxng.origin)
        assert isinstance((await there.call("web_search", without, query="x")).error, PermissionDenied)
        assert (await there.call("web_search", supervised, query="x")).state is OutcomeState.PAUSED

    assert searxng.requests == []


async def test_viewer_may_search_and_a_stranger_may_not(workspace: WorkspaceFixture) -> None:
    async with loopback(SearXNG()) as searxng:
        there = searching(workspace, searxng=searxng.origin)
        assert (await there.call("web_search", await joined(workspace, WorkspaceRole.VIEWER), query="x")).succeeded
        with pytest.raises(Forbidden):
            await there.call("web_search", await stranger(workspace), query="x")

    assert len(searxng.requests) == 1


async def test_without_an_engine_no_model_is_offered_it_and_a_person_gets_advice(workspace: WorkspaceFixture) -> None:
    reader = (await workspace.agent(toolsets=["studio"])).agent
    assert reader is not None

    def shown(at: WorkspaceFixture) -> set[str]:
        return {tool.name for tool in at.engine.registry.list_for_scope(reader.rules)}

    assert "web_search" not in shown(workspace)
    assert "web_search" in shown(searching(workspace, searxng=NOWHERE))
    result = await tool_result(workspace, "web_search", query="x")
    assert result["is_error"]
    assert "TOOLCRIB_SEARXNG_URL" in result["output"]
    assert "TOOLCRIB_BRAVE_API_KEY" in result["output"]


# What is sent, and what must not be


async def test_query_with_a_secret_is_not_sent(workspace: WorkspaceFixture) -> None:
    async with loopback(SearXNG()) as searxng:
        there = searching(workspace, searxng=searxng.origin)
        result = await tool_result(there, "web_search", query=f"why is ghp_{'a1' * 18} refused")

    assert result["is_error"]
    assert "looks like a GitHub token, so it was not sent" in result["output"]
    assert searxng.requests == []


async def test_key_reaches_brave_and_no_message_log_or_record(
    workspace: WorkspaceFixture, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "BSA-another-key-0815"
    caplog.set_level(logging.DEBUG)
    async with loopback(SearXNG(results=[])) as searxng, loopback(Brave()) as brave:
        with capture_logs() as logs:
            good = await searching(workspace, searxng=searxng.origin, brave=brave).call("web_search", query="x")
            there = searching(workspace, brave=brave, brave_api_key=SecretStr(wrong))
            bad = await there.call("web_search", query="x")

    assert [request.headers["x-subscription-token"] for request in brave.requests] == [KEY, wrong]
    assert "x-subscription-token" not in searxng.requests[0].headers
    assert good.succeeded
    assert "it rejected the key (HTTP 422); check TOOLCRIB_BRAVE_API_KEY" in bad.result["output"]
    records = [*await audit_records_of(workspace, good.call_id), *await audit_records_of(workspace, bad.call_id)]
    said = repr((good, bad, bad.error, logs, caplog.records, caplog.text, records, there.settings))
    assert KEY not in said
    assert wrong not in said


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"searxng_url": "searx.example.org"}, "TOOLCRIB_SEARXNG_URL"),
        ({"searxng_url": "file:///etc/passwd"}, "TOOLCRIB_SEARXNG_URL"),
        ({"searxng_url": "http://[::1"}, "TOOLCRIB_SEARXNG_URL"),
        ({"brave_api_key": SecretStr("two\nlines-of-it")}, "TOOLCRIB_BRAVE_API_KEY"),
        ({"brave_api_key": SecretStr("schlüssel")}, "TOOLCRIB_BRAVE_API_KEY"),
        ({"brave_api_key": SecretStr("k"), "brave_url": "http://api.search.brave.com/"}, "https://"),
        ({"brave_api_key": SecretStr("k"), "brave_url": "https://u:p@api.search.brave.com/"}, "https://"),
    ],
)
async def test_configuration_that_cannot_work_or_would_expose_the_key_is_rejected_at_startup(
    workspace: WorkspaceFixture, given: dict[str, Any], says: str
) -> None:
    with pytest.raises(Misconfigured, match=says) as refused:
        assemble(workspace.settings.model_copy(update=given), workspace.database)
    assert "lines-of-it" not in str(refused.value)
    assert "schlüssel" not in str(refused.value)


# With a person's own key

OWN = "BSA-key-of-ada-0815"


async def stored(workspace: WorkspaceFixture, key: str = OWN) -> None:
    access = workspace.stores.access
    await access.store(ActingUser(workspace.caller.user_id), "brave", ProviderCredentials(key))


async def test_persons_own_key_serves_only_their_and_their_agents_searches(workspace: WorkspaceFixture) -> None:
    await stored(workspace)
    agent = await workspace.agent(toolsets=["studio"])
    async with loopback(SearXNG()) as searxng, loopback(Brave(key=OWN)) as brave:
        there = searching(workspace, searxng=searxng.origin, brave=brave)
        for caller in (workspace.caller, agent):
            result = (await there.call("web_search", caller, query="mine")).result
            assert result["metadata"]["provider"] == "brave"
        other = (await there.call("web_search", await joined(workspace, WorkspaceRole.MEMBER), query="theirs")).result

    assert [request.headers["x-subscription-token"] for request in brave.requests] == [OWN, OWN]
    assert other["metadata"]["provider"] == "searxng"


async def test_operators_key_does_not_replace_a_persons_failing_key(workspace: WorkspaceFixture) -> None:
    await stored(workspace, "BSA-expired")
    async with loopback(Brave()) as brave:
        result = await tool_result(searching(workspace, brave=brave), "web_search", query="x")

    assert result["is_error"]
    assert "check the key that you stored" in result["output"]
    assert "BSA-expired" not in str(result)
    assert [request.headers["x-subscription-token"] for request in brave.requests] == ["BSA-expired"]


async def test_persons_own_key_offers_the_search_where_the_server_has_no_engine(workspace: WorkspaceFixture) -> None:
    reader = (await workspace.agent(toolsets=["studio"])).agent
    other = await joined(workspace, WorkspaceRole.MEMBER)
    assert reader is not None
    await stored(workspace)

    async def shown(user_id: UserId) -> set[str]:
        registry = await workspace.engine.registry.for_person(workspace.caller.workspace_id, user_id)
        return {tool.name for tool in registry.list_for_scope(reader.rules)}

    assert "web_search" in await shown(workspace.caller.user_id)
    assert "web_search" not in await shown(other.user_id)

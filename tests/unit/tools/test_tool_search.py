"""The ranking of tools by a query, and what a search discloses."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.wait_until import is_quick
from toolcrib import tool
from toolcrib.tools.tool import Tool
from toolcrib.tools.tool_matches import rank_tools
from toolcrib.tools.tool_search import found_tools, searched_text


def named(name: str, description: str) -> Tool:
    async def act(body: str = "") -> str:
        return body

    act.__doc__ = description
    return tool(name=name)(act)


TOOLS = [
    named("github_create_issue", "Create an issue in a repository."),
    named("github_list_issues", "List the issues of a repository, newest first."),
    named("github_merge_pull_request", "Merge a pull request."),
    named("slack_post_message", "Post a message to a channel. Mentions an issue if it has one."),
    named("getWeatherForecast", "The weather of the next days for a city."),
    named("jira_issue", "Look at one ticket."),
    named("send_mail", "Sends an electronic letter."),
]


def ranked(query: str, tools: Sequence[Tool]) -> list[str]:
    """The names of the tools that a query finds."""
    return [tools[place].name for place in rank_tools(query, [(one.name, searched_text(one)) for one in tools])]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("create an issue", "github_create_issue"),
        ("list issues", "github_list_issues"),
        ("issue list", "github_list_issues"),
        ("merge PR pull", "github_merge_pull_request"),
        ("weather", "getWeatherForecast"),
        ("forecasts for Berlin", "getWeatherForecast"),
        ("post in slack", "slack_post_message"),
        ("JIRA_ISSUE", "jira_issue"),
        ("electro letter", "send_mail"),
    ],
)
def test_best_match_comes_first(query: str, first: str) -> None:
    assert ranked(query, TOOLS)[0] == first


@pytest.mark.parametrize("query", ["kubernetes", "!!!", "  ", "xy"])
def test_nothing_is_found_without_a_common_word(query: str) -> None:
    assert ranked(query, TOOLS) == []


def test_order_of_the_tools_does_not_matter() -> None:
    assert ranked("issue", TOOLS) == ranked("issue", TOOLS[::-1])


def test_many_tools_with_long_descriptions_are_ranked_quickly() -> None:
    many = [named(f"tool_{number}", f"word{number % 50} " * 5_000) for number in range(500)]

    assert is_quick(lambda: ranked("word1 word2 something else " * 10, many), 0.25)


@pytest.mark.parametrize(
    ("result", "names"),
    [
        ({"tools": [{"name": "a"}, {"name": "b", "description": "B"}]}, ["a", "b"]),
        ({"tools": [{"name": 1}, "a", None]}, []),
        ({"tools": "a"}, []),
        ({}, []),
        (None, []),
        ("tools", []),
    ],
)
def test_names_are_read_from_a_result_of_any_form(result: Any, names: Sequence[str]) -> None:
    assert found_tools(result) == names

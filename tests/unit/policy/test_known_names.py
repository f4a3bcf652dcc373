"""Names of tools and toolsets in an agent's rules: unknown ones are rejected, with the nearest known name."""

from itertools import islice, product
from typing import Any

import pytest

from tests.wait_until import is_quick
from toolcrib.core.agents import AgentRules
from toolcrib.core.errors import BadArguments
from toolcrib.policy.agent_definition import KnownNames, reject_unknown_names, unknown_names

KNOWN = KnownNames(
    frozenset({"bash", "read", "read_file", "write", "fs.read", "weather"}),
    frozenset({"workspace", "history", "custom"}),
)


def mistakes(kept: AgentRules | None = None, **rules: Any) -> dict[str, str]:
    try:
        reject_unknown_names(AgentRules.model_validate(rules), KNOWN, kept=kept)
    except BadArguments as error:
        return dict(error.fields)
    return {}


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("bsah", "bash"), ("Bash", "bash"), ("readfile", "read_file"), ("ReadFile", "read_file"), ("wether", "weather")],
)
def test_the_nearest_name_is_offered(name: str, nearest: str) -> None:
    found = mistakes(tool_permissions={name: {"allowed": True}})
    assert found == {f"tool_permissions.{name}": f"Unknown tool `{name}`. Did you mean `{nearest}`?"}


def test_a_name_like_no_other_says_how_to_list_them() -> None:
    assert mistakes(tool_permissions={"teleport": {}}) == {
        "tool_permissions.teleport": "Unknown tool `teleport`. `toolcrib tool` lists the tools."
    }


def test_phases_and_toolsets_are_checked_too() -> None:
    found = mistakes(
        toolsets=["workspac", "mcp:far"], phases=[{"name": "a", "tool_permissions": {"raed": {}, "read": {}}}]
    )
    assert found == {
        "toolsets.0": "Unknown toolset `workspac`. Did you mean `workspace`?",
        "phases.0.tool_permissions.raed": "Unknown tool `raed`. Did you mean `read`?",
    }


def test_tools_of_mcp_servers_need_the_form_only() -> None:
    assert mistakes(toolsets=["mcp:later"], tool_permissions={"mcp:later/send.Mail": {"allowed": True}}) == {}
    found = mistakes(toolsets=["mcp:a/b"], tool_permissions={"mcp:later:send": {}})
    assert sorted(found) == ["tool_permissions.mcp:later:send", "toolsets.0"]
    assert all("`mcp:<server>/<tool>`" in flaw for flaw in found.values())


def test_what_an_agent_already_named_may_stay() -> None:
    before = AgentRules.model_validate({"toolsets": ["mine"], "tool_permissions": {"my_tool": {"allowed": True}}})
    rules = {"toolsets": ["mine", "their"], "tool_permissions": {"my_tool": {}, "other_tool": {}}}
    assert sorted(mistakes(before, **rules)) == ["tool_permissions.other_tool", "toolsets.1"]


def test_a_warning_names_each_once() -> None:
    phases: Any = [{"name": name, "tool_permissions": {"bsah": {}}} for name in ("a", "b")]
    assert unknown_names(AgentRules.model_validate({"phases": phases}), KNOWN) == (
        "Unknown tool `bsah`. Did you mean `bash`?",
    )


def test_thousands_of_unknown_names_are_answered_quickly() -> None:
    names = ("".join(letters) for letters in product("listred", repeat=5))
    permissions: dict[str, Any] = {name: {} for name in islice(names, 2_900)}
    rules, before = (AgentRules.model_validate({"tool_permissions": permissions}) for _ in range(2))

    assert is_quick(lambda: mistakes(tool_permissions=permissions), 0.4)
    assert is_quick(lambda: unknown_names(rules, KNOWN), 0.4)
    assert is_quick(lambda: reject_unknown_names(rules, KNOWN, kept=before), 0.4)
    found = mistakes(tool_permissions=permissions)
    assert found["…"] == "2,880 more fields are invalid."

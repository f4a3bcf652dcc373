"""Explaining a call without running it."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.policy.builders import BASH, READ, WRITE, Tool, agent, person, project
from toolcrib.core.agents import TrustLevel
from toolcrib.core.callers import Caller
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.tool_calls import Effects
from toolcrib.policy.authorization import AuthorizationAction, DeniedFile, authorize, explain

_paths = st.lists(
    st.sampled_from([project("/a"), project("/.env"), project("/.git"), WorkspacePath(Mount.PKG, "/a"), project("/")])
).map(tuple)
_effects = st.builds(Effects, reads=_paths, writes=_paths, reads_batch=_paths)
_callers = st.just(person()) | st.sampled_from(TrustLevel).map(lambda trust: agent(trust=trust))


@given(_callers, st.sampled_from([READ, WRITE, BASH]), _effects)
def test_the_explanation_matches_the_decision(caller: Caller, tool: Tool, effects: Effects) -> None:
    decision, result = authorize(caller, tool, effects), explain(caller, tool, effects)
    assert (result.action, result.rule, result.reason) == (decision.action, decision.rule, decision.reason)
    assert (result.required_role, result.rules_checked) == (decision.required_role, decision.rules_checked)


def test_it_names_the_agent_the_rule_and_the_remedy() -> None:
    result = explain(agent(), WRITE, Effects(writes=(project("/.vscode/tasks.json"),)))
    assert (result.agent, result.tool, result.action) == ("coder", "write", AuthorizationAction.ASK)
    assert result.rule == "protected-name"
    assert "`.vscode` runs programs" in result.reason
    assert "`unprotected_paths`" in result.reason


def test_it_lists_the_files_of_a_batch_that_would_be_withheld() -> None:
    result = explain(agent(), Tool("cat"), Effects(reads_batch=(project("/a"), project("/.env"))))
    assert result.action is AuthorizationAction.ALLOW
    assert [(file.path, file.rule) for file in result.denied_files] == [("@project/.env", "protected-name:.env")]
    assert isinstance(result.denied_files[0], DeniedFile)


def test_a_person_has_no_agent() -> None:
    assert explain(person(), READ, Effects(reads=(project("/a"),))).agent is None

"""Explaining a call without running it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.policy.builders import BASH, READ, WRITE, Tool, agent, person, project
from toolcrib.core.agents import TrustLevel
from toolcrib.core.callers import Caller
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.tool_calls import Effects
from toolcrib.policy.authorization import AuthorizationAction, DeniedFile, authorize, explain

pytestmark = pytest.mark.req("PO-5")

_paths = st.lists(
    st.sampled_from([project("/a"), project("/.env"), project("/.git"), WorkspacePath(Mount.PKG, "/a"), project("/")])
).map(tuple)
_effects = st.builds(Effects, reads=_paths, writes=_paths, reads_batch=_paths)
_callers = st.just(person()) | st.sampled_from(TrustLevel).map(lambda trust: agent(trust=trust))


@given(_callers, st.sampled_from([READ, WRITE, BASH]), _effects)
def test_the_explanation_matches_the_decision(caller: Caller, tool: Tool, effects: Effects) -> None:
    decision, told = authorize(caller, tool, effects), explain(caller, tool, effects)
    assert (told.action, told.rule, told.reason) == (decision.action, decision.rule, decision.reason)
    assert (told.required_role, told.rules_checked) == (decision.required_role, decision.rules_checked)


def test_it_names_the_agent_the_rule_and_the_remedy() -> None:
    told = explain(agent(), WRITE, Effects(writes=(project("/.vscode/tasks.json"),)))
    assert (told.agent, told.tool, told.action) == ("coder", "write", AuthorizationAction.ASK)
    assert told.rule == "protected-name"
    assert "`.vscode` runs programs" in told.reason
    assert "`unprotected_paths`" in told.reason


def test_it_lists_the_files_of_a_batch_that_would_be_withheld() -> None:
    told = explain(agent(), Tool("cat"), Effects(reads_batch=(project("/a"), project("/.env"))))
    assert told.action is AuthorizationAction.ALLOW
    assert [(file.path, file.rule) for file in told.denied_files] == [("@project/.env", "protected-name:.env")]
    assert isinstance(told.denied_files[0], DeniedFile)


def test_a_person_has_no_agent() -> None:
    assert explain(person(), READ, Effects(reads=(project("/a"),))).agent is None

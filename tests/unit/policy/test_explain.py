"""Explaining a call without running it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.policy.cast import BASH, READ, WRITE, Tool, agent, person, project
from toolcrib.domain.agents import Trust
from toolcrib.domain.callers import Caller
from toolcrib.domain.effects import Effects
from toolcrib.domain.places import Mount, Place
from toolcrib.policy.decisions import Verdict, decide
from toolcrib.policy.explain import Withheld, explain

pytestmark = pytest.mark.req("PO-5")

_places = st.lists(
    st.sampled_from([project("/a"), project("/.env"), project("/.git"), Place(Mount.PKG, "/a"), project("/")])
).map(tuple)
_effects = st.builds(Effects, reads=_places, writes=_places, reads_each=_places)
_callers = st.just(person()) | st.sampled_from(Trust).map(lambda trust: agent(trust=trust))


@given(_callers, st.sampled_from([READ, WRITE, BASH]), _effects)
def test_the_explanation_is_the_decision(caller: Caller, tool: Tool, effects: Effects) -> None:
    decision, told = decide(caller, tool, effects), explain(caller, tool, effects)
    assert (told.verdict, told.rule, told.reason) == (decision.verdict, decision.rule, decision.reason)
    assert (told.needs_role, told.considered) == (decision.needs_role, decision.considered)


def test_it_names_the_agent_the_rule_and_the_remedy() -> None:
    told = explain(agent(), WRITE, Effects(writes=(project("/.vscode/tasks.json"),)))
    assert (told.agent, told.tool, told.verdict) == ("coder", "write", Verdict.REFUSE)
    assert told.rule == "protected-name:.vscode"
    assert "`unprotect`" in told.reason


def test_it_tells_which_files_of_a_batch_would_be_withheld() -> None:
    told = explain(agent(), Tool("cat"), Effects(reads_each=(project("/a"), project("/.env"))))
    assert told.verdict is Verdict.ALLOW
    assert [(file.path, file.rule) for file in told.withheld] == [("@project/.env", "protected-name:.env")]
    assert isinstance(told.withheld[0], Withheld)


def test_a_person_has_no_agent() -> None:
    assert explain(person(), READ, Effects(reads=(project("/a"),))).agent is None

"""Phases of an agent's workflow: the permissions in each, and how they are defined."""

from dataclasses import replace

import pytest

from tests.unit.policy.builders import BASH, READ, WRITE, agent, project
from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import Agent
from toolcrib.core.errors import BadArguments
from toolcrib.core.ids import AgentId, new_id
from toolcrib.core.tool_calls import Effects
from toolcrib.policy.agent_definition import parse_definition
from toolcrib.policy.authorization import AuthorizationAction, authorize
from toolcrib.policy.trust import bound_agent, in_phase, reject_unknown_phase

DECLARED = """
trust: autonomous
toolsets: [workspace, studio]
phases:
  - name: solutioning
    tool_permissions:
      read: {allowed: true}
      write: {allowed: true, paths: [docs/**]}
  - name: implementation
    tool_permissions:
      read: {allowed: true}
      write: {allowed: true}
      bash: {allowed: true}
"""
CODE = Effects(writes=(project("/src/a.py"),))
PAGE = Effects(writes=(project("/docs/a.md"),))
COMMAND = Effects(command="ls")


@pytest.fixture
def coder() -> Agent:
    return bound_agent(AgentId(new_id()), "coder", parse_definition(DECLARED), (), workspace_ceiling=None)


def verdicts(bound: Agent) -> list[AuthorizationAction]:
    """The decisions on writing a page, writing code, and running a command."""
    caller = replace(agent(), agent=bound)
    return [
        authorize(caller, tool, effects).action for tool, effects in ((WRITE, PAGE), (WRITE, CODE), (BASH, COMMAND))
    ]


def test_an_agent_is_in_its_first_phase_until_a_person_changes_it(coder: Agent) -> None:
    assert coder.phase == "solutioning"
    assert (
        verdicts(coder)
        == verdicts(in_phase(coder, None))
        == [AuthorizationAction.ALLOW, AuthorizationAction.DENY, AuthorizationAction.DENY]
    )


def test_every_phase_has_only_its_own_permissions(coder: Agent) -> None:
    later = in_phase(coder, "implementation")
    assert verdicts(later) == [AuthorizationAction.ALLOW] * 3
    assert verdicts(in_phase(later, "solutioning")) == [
        AuthorizationAction.ALLOW,
        AuthorizationAction.DENY,
        AuthorizationAction.DENY,
    ]


def test_an_unknown_phase_only_allows_reading(coder: Agent) -> None:
    gone = in_phase(coder, "retired")
    assert verdicts(gone) == [AuthorizationAction.DENY] * 3
    assert authorize(replace(agent(), agent=gone), READ, Effects()).action is AuthorizationAction.ALLOW


def test_a_denial_names_the_phase_and_who_may_change_it(coder: Agent) -> None:
    decision = authorize(replace(agent(), agent=coder), BASH, COMMAND)
    assert decision.rule == "agent.phases.solutioning.tool_permissions.bash"
    assert "in phase 'solutioning' cannot use `bash`" in decision.reason
    assert "a person can choose another phase" in decision.reason
    paths = authorize(replace(agent(), agent=coder), WRITE, CODE)
    assert paths.rule == "agent.phases.solutioning.tool_permissions.write.paths"


def test_an_agent_without_phases_ignores_the_phase_of_a_session() -> None:
    bound = agent().agent
    assert bound is not None
    assert in_phase(bound, "implementation") == bound


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("tool_permissions: {}\nphases: [{name: a, tool_permissions: {}}]", "tool_permissions", "Move these"),
        (
            "phases: [{name: a, tool_permissions: {}}, {name: a, tool_permissions: {}}]",
            "phases.1.name",
            "the name of another phase",
        ),
        ("phases: [{name: a}]", "phases.0.tool_permissions", "required"),
        ("phases: [{name: A b, tool_permissions: {}}]", "phases.0.name", "match pattern"),
        ("phases: [{name: a, tools: []}]", "phases.0.tools", "Known fields: `name`, `tool_permissions`"),
        (
            "phases: [{name: a, tool_permissions: {bash: {alowed: true}}}]",
            "phases.0.tool_permissions.bash.alowed",
            "Known fields: `allowed`",
        ),
        (
            "phases: [{name: a, tool_permissions: {write: {paths: [/]}}}]",
            "phases.0.tool_permissions.write.paths.0",
            "matches nothing",
        ),
    ],
)
def test_an_error_in_a_phase_names_its_field(text: str, field: str, expected: str) -> None:
    with pytest.raises(BadArguments) as wrong:
        parse_definition(text)
    assert expected in wrong.value.fields[field]


def test_only_a_phase_of_the_agent_can_be_selected() -> None:
    reject_unknown_phase(parse_definition(DECLARED), "implementation")
    reject_unknown_phase(None, None)
    for rules in (parse_definition(DECLARED), AgentRules(), None):
        with pytest.raises(BadArguments):
            reject_unknown_phase(rules, "release")

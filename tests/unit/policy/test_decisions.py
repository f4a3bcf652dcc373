"""The decision on a call: every rule, in its order, and the whole table of trust."""

import pytest

from tests.unit.policy.cast import BASH, READ, WRITE, Tool, agent, person, project
from toolcrib.domain.agents import Trust
from toolcrib.domain.callers import Caller, Role
from toolcrib.domain.effects import Danger, Effects
from toolcrib.domain.errors import NotPermitted, ProtectedName, ReadOnlyMount, ToolcribError, Violation
from toolcrib.domain.places import Mount, Place
from toolcrib.policy.decisions import Decision, Verdict, decide

A_FILE = project("/src/a.py")
READS = Effects(reads=(A_FILE,))
WRITES = Effects(writes=(A_FILE,))


@pytest.mark.req("PO-3")
@pytest.mark.parametrize(
    ("trust", "danger", "verdict"),
    [
        (Trust.SUPERVISED, Danger.SAFE, Verdict.ASK),
        (Trust.SUPERVISED, Danger.DANGEROUS, Verdict.ASK),
        (Trust.GUIDED, Danger.SAFE, Verdict.ALLOW),
        (Trust.GUIDED, Danger.DANGEROUS, Verdict.ASK),
        (Trust.AUTONOMOUS, Danger.SAFE, Verdict.ALLOW),
        (Trust.AUTONOMOUS, Danger.DANGEROUS, Verdict.ALLOW),
    ],
)
def test_trust_and_danger_decide_whether_a_person_is_asked(trust: Trust, danger: Danger, verdict: Verdict) -> None:
    decision = decide(agent(trust=trust), Tool("read", danger), READS)
    assert (decision.verdict, decision.rule, decision.error) == (verdict, f"trust.{trust}.{danger}", None)


@pytest.mark.req("PO-3", part="trust never adds permissions")
@pytest.mark.parametrize("trust", list(Trust))
def test_what_is_refused_is_refused_at_every_level_of_trust(trust: Trust) -> None:
    caller = agent(trust=trust, tool_permissions={"write": {"allowed": True, "paths": ["docs/**"]}})
    assert decide(caller, BASH, Effects(runs="ls")).verdict is Verdict.REFUSE
    assert decide(caller, WRITE, WRITES).verdict is Verdict.REFUSE
    assert decide(caller, WRITE, Effects(writes=(project("/docs/.env"),))).verdict is Verdict.REFUSE


@pytest.mark.req("PO-1", part="people act by role")
@pytest.mark.parametrize(
    ("tool", "effects", "role"),
    [
        (READ, READS, Role.VIEWER),
        (READ, Effects(reads=(project("/.env"),)), Role.VIEWER),
        (WRITE, WRITES, Role.MEMBER),
        (WRITE, Effects(writes=(project("/.git/hooks/x"),)), Role.MEMBER),
        (BASH, Effects(runs="ls"), Role.MEMBER),
        (Tool("web_search", toolset="studio"), Effects(contacts=("search",)), Role.VIEWER),
        (Tool("call", Danger.DANGEROUS, "mcp:ops"), Effects(contacts=("ops",)), Role.MEMBER),
        (Tool("deploy", Danger.DANGEROUS, "mcp:ops"), Effects(), Role.MEMBER),
    ],
)
def test_a_person_is_never_asked_and_is_bound_by_role_only(tool: Tool, effects: Effects, role: Role) -> None:
    decision = decide(person(), tool, effects)
    assert (decision.verdict, decision.needs_role, decision.rule) == (Verdict.ALLOW, role, f"role.{role}")


@pytest.mark.req("PO-1", part="who answers for an agent")
def test_who_answers_for_an_agent_needs_the_role_that_the_call_needs() -> None:
    assert decide(agent(), READ, READS).needs_role is Role.VIEWER
    assert decide(agent(), WRITE, WRITES).needs_role is Role.MEMBER


READER = agent(tool_permissions=None)
NARROW = agent(tool_permissions={"write": {"allowed": True, "paths": ["src/**"]}, "read": {"allowed": False}})


@pytest.mark.req("PO-1", "PO-6", part="which rule refuses, with which error")
@pytest.mark.parametrize(
    ("caller", "tool", "effects", "rule", "error"),
    [
        (person(), WRITE, Effects(writes=(Place(Mount.PKG, "/a"),)), "mount.read-only", ReadOnlyMount),
        (READER, WRITE, Effects(writes=(Place(Mount.PKG, "/a"),)), "mount.read-only", ReadOnlyMount),
        (person(), WRITE, Effects(writes=(Place(Mount.STATE, "/logs/x"),)), "state.logs", ReadOnlyMount),
        (READER, Tool("read_file", toolset="project"), READS, "agent.toolsets", NotPermitted),
        (READER, WRITE, WRITES, "agent.tool_permissions.absent", NotPermitted),
        (READER, Tool("sly"), WRITES, "agent.tool_permissions.absent", NotPermitted),
        (NARROW, READ, READS, "agent.tool_permissions.read", NotPermitted),
        (NARROW, Tool("mv"), READS, "agent.tool_permissions.mv", NotPermitted),
        (NARROW, WRITE, Effects(writes=(project("/b"),)), "agent.tool_permissions.write.paths", NotPermitted),
        (NARROW, WRITE, Effects(reads=(project("/b"),)), "agent.tool_permissions.write.paths", NotPermitted),
        (NARROW, WRITE, Effects(writes=(A_FILE, project("/src/.env"))), "protected-name:.env", ProtectedName),
        (agent(), READ, Effects(reads=(project("/.env.local"),)), "protected-name:.env.*", ProtectedName),
        (agent(), WRITE, Effects(writes=(project("/.git"),)), "protected-name:.git", ProtectedName),
    ],
)
def test_the_first_rule_that_objects_refuses(
    caller: Caller, tool: Tool, effects: Effects, rule: str, error: type[ToolcribError]
) -> None:
    decision = decide(caller, tool, effects)
    assert (decision.verdict, decision.rule) == (Verdict.REFUSE, rule)
    assert type(decision.error) is error
    assert decision.reason == decision.error.message


@pytest.mark.req("PO-6", part="refused permissions are no violations")
def test_a_border_that_is_touched_is_a_violation_and_a_missing_permission_is_not() -> None:
    assert isinstance(decide(agent(), READ, Effects(reads=(project("/.env"),))).error, Violation)
    assert not isinstance(decide(READER, WRITE, WRITES).error, Violation)


@pytest.mark.req("WS-4", part="batches")
def test_files_of_a_batch_are_left_to_the_guard() -> None:
    decision = decide(agent(), Tool("cat"), Effects(reads_each=(A_FILE, project("/.env"))))
    assert decision.verdict is Verdict.ALLOW


@pytest.mark.req("PO-5", part="every rule considered is listed")
def test_the_rules_considered_are_listed_in_order_with_their_results() -> None:
    passed = [
        "mount.read-only: no objection",
        "state.logs: no objection",
        "session.mode: no objection",
        "agent.toolsets: no objection",
        "agent.tool_permissions.write: no objection",
        "agent.tool_permissions.write.paths: no objection",
        "protected-name: no objection",
    ]
    asked, refused = _decided("/src/a.py"), _decided("/.env")
    assert list(asked.considered) == [*passed, "trust.guided.dangerous: ask"]
    assert list(refused.considered) == [*passed[:-1], "protected-name:.env: refuse"]


def _decided(path: str) -> Decision:
    return decide(agent(), WRITE, Effects(writes=(project(path),)))

"""The authorization of a call: every rule, in order, and the complete table of trust."""

import pytest

from tests.unit.policy.builders import BASH, READ, WRITE, Tool, agent, person, project
from toolcrib.core.agents import TrustLevel
from toolcrib.core.callers import Caller, WorkspaceRole
from toolcrib.core.errors import PermissionDenied, ProtectedPath, ReadOnlyMount, SandboxViolation, ToolcribError
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.policy.authorization import IRREVERSIBLE, Authorization, AuthorizationAction, authorize

A_FILE = project("/src/a.py")
READS = Effects(reads=(A_FILE,))
WRITES = Effects(writes=(A_FILE,))


@pytest.mark.parametrize(
    ("trust", "danger", "verdict"),
    [
        (TrustLevel.SUPERVISED, Danger.SAFE, AuthorizationAction.ASK),
        (TrustLevel.SUPERVISED, Danger.DANGEROUS, AuthorizationAction.ASK),
        (TrustLevel.GUIDED, Danger.SAFE, AuthorizationAction.ALLOW),
        (TrustLevel.GUIDED, Danger.DANGEROUS, AuthorizationAction.ASK),
        (TrustLevel.AUTONOMOUS, Danger.SAFE, AuthorizationAction.ALLOW),
        (TrustLevel.AUTONOMOUS, Danger.DANGEROUS, AuthorizationAction.ALLOW),
    ],
)
def test_trust_and_danger_decide_whether_approval_is_needed(
    trust: TrustLevel, danger: Danger, verdict: AuthorizationAction
) -> None:
    decision = authorize(agent(trust=trust), Tool("read", danger), READS)
    assert (decision.action, decision.rule, decision.error) == (verdict, f"trust.{trust}.{danger}", None)


@pytest.mark.parametrize("trust", list(TrustLevel))
def test_a_denied_call_is_denied_at_every_trust_level(trust: TrustLevel) -> None:
    caller = agent(trust=trust, tool_permissions={"write": {"allowed": True, "paths": ["docs/**"]}})
    assert authorize(caller, BASH, Effects(command="ls")).action is AuthorizationAction.DENY
    assert authorize(caller, WRITE, WRITES).action is AuthorizationAction.DENY
    assert authorize(caller, WRITE, Effects(writes=(project("/docs/.env"),))).action is AuthorizationAction.DENY


@pytest.mark.parametrize(
    ("tool", "effects", "role"),
    [
        (READ, READS, WorkspaceRole.VIEWER),
        (READ, Effects(reads=(project("/.env"),)), WorkspaceRole.VIEWER),
        (WRITE, WRITES, WorkspaceRole.MEMBER),
        (WRITE, Effects(writes=(project("/.git/hooks/x"),)), WorkspaceRole.MEMBER),
        (BASH, Effects(command="ls"), WorkspaceRole.MEMBER),
        (Tool("web_search", toolset="studio"), Effects(hosts=("search",)), WorkspaceRole.VIEWER),
        (Tool("call", Danger.DANGEROUS, "mcp:ops"), Effects(hosts=("ops",)), WorkspaceRole.MEMBER),
        (Tool("deploy", Danger.DANGEROUS, "mcp:ops"), Effects(), WorkspaceRole.MEMBER),
    ],
)
def test_a_person_needs_no_approval_and_is_bound_by_role_only(
    tool: Tool, effects: Effects, role: WorkspaceRole
) -> None:
    decision = authorize(person(), tool, effects)
    assert (decision.action, decision.required_role, decision.rule) == (AuthorizationAction.ALLOW, role, f"role.{role}")


def test_the_user_behind_an_agent_needs_the_role_that_the_call_needs() -> None:
    assert authorize(agent(), READ, READS).required_role is WorkspaceRole.VIEWER
    assert authorize(agent(), WRITE, WRITES).required_role is WorkspaceRole.MEMBER


READER = agent(tool_permissions=None)
NARROW = agent(tool_permissions={"write": {"allowed": True, "paths": ["src/**"]}, "read": {"allowed": False}})


@pytest.mark.parametrize(
    ("caller", "tool", "effects", "rule", "error"),
    [
        (person(), WRITE, Effects(writes=(WorkspacePath(Mount.PKG, "/a"),)), "mount.read-only", ReadOnlyMount),
        (READER, WRITE, Effects(writes=(WorkspacePath(Mount.PKG, "/a"),)), "mount.read-only", ReadOnlyMount),
        (person(), WRITE, Effects(writes=(WorkspacePath(Mount.STATE, "/logs/x"),)), "state.logs", ReadOnlyMount),
        (READER, Tool("read_file", toolset="project"), READS, "agent.toolsets", PermissionDenied),
        (READER, WRITE, WRITES, "agent.tool_permissions.absent", PermissionDenied),
        (READER, Tool("sly"), WRITES, "agent.tool_permissions.absent", PermissionDenied),
        (NARROW, READ, READS, "agent.tool_permissions.read", PermissionDenied),
        (NARROW, Tool("mv"), READS, "agent.tool_permissions.mv", PermissionDenied),
        (NARROW, WRITE, Effects(writes=(project("/b"),)), "agent.tool_permissions.write.paths", PermissionDenied),
        (NARROW, WRITE, Effects(reads=(project("/b"),)), "agent.tool_permissions.write.paths", PermissionDenied),
        (NARROW, WRITE, Effects(writes=(A_FILE, project("/src/.env"))), "protected-name:.env", ProtectedPath),
        (agent(), READ, Effects(reads=(project("/.env.local"),)), "protected-name:.env.*", ProtectedPath),
        (agent(), WRITE, Effects(writes=(project("/.git/.env"),)), "protected-name:.env", ProtectedPath),
    ],
)
def test_the_first_rule_that_applies_denies(
    caller: Caller, tool: Tool, effects: Effects, rule: str, error: type[ToolcribError]
) -> None:
    decision = authorize(caller, tool, effects)
    assert (decision.action, decision.rule) == (AuthorizationAction.DENY, rule)
    assert type(decision.error) is error
    assert decision.reason == decision.error.message


def test_a_protected_path_is_a_violation_and_a_missing_permission_is_not() -> None:
    assert isinstance(authorize(agent(), READ, Effects(reads=(project("/.env"),))).error, SandboxViolation)
    assert not isinstance(authorize(READER, WRITE, WRITES).error, SandboxViolation)


@pytest.mark.parametrize("trust", list(TrustLevel))
@pytest.mark.parametrize("path", ["/.git", "/.git/hooks/x", "/.vscode/tasks.json"])
def test_writing_files_that_become_code_needs_approval_at_every_trust_level(trust: TrustLevel, path: str) -> None:
    decision = authorize(agent(trust=trust), WRITE, Effects(writes=(A_FILE, project(path))))
    assert (decision.action, decision.rule, decision.error) == (AuthorizationAction.ASK, "protected-name", None)
    assert decision.is_supervised is (trust is TrustLevel.SUPERVISED)
    assert authorize(agent(trust=trust), READ, Effects(reads=(project(path),))).rule != "protected-name"


def test_files_of_a_batch_are_left_to_the_path_guard() -> None:
    decision = authorize(agent(), Tool("cat"), Effects(reads_batch=(A_FILE, project("/.env"))))
    assert decision.action is AuthorizationAction.ALLOW


def test_the_evaluated_rules_are_listed_in_order_with_their_results() -> None:
    passed = [
        "mount.read-only: not denied",
        "state.logs: not denied",
        "session.mode: not denied",
        "agent.toolsets: not denied",
        "agent.tool_permissions.write: not denied",
        "agent.tool_permissions.write.paths: not denied",
        "protected-name: not denied",
    ]
    asked, refused = _decided("/src/a.py"), _decided("/.env")
    assert list(asked.rules_checked) == [*passed, "trust.guided.dangerous: ask"]
    assert list(refused.rules_checked) == [*passed[:-1], "protected-name:.env: deny"]


def _decided(path: str) -> Authorization:
    return authorize(agent(), WRITE, Effects(writes=(project(path),)))


MAKE = Tool("make", Danger.DANGEROUS, replannable=False)
START = Tool("start", Danger.DANGEROUS)
LIVE = Tool("live", Danger.DANGEROUS, "mcp:ops", ToolCategory.MCP)
HINTED = Tool("hinted", Danger.DANGEROUS, "mcp:ops", ToolCategory.MCP, declared_read_only=True)
MARKED = Tool("marked", Danger.SAFE, "mcp:ops", ToolCategory.MCP)
RUNS, CONTACTS = Effects(command="ls"), Effects(command="pip install x", hosts=("pypi.org",))
CALLS = Effects(hosts=("ops.example.com",))
EACH = {tool.name: {"allowed": True} for tool in (READ, WRITE, MAKE, START, LIVE, HINTED, MARKED)}
EACH |= {name: {"allowed": True} for name in ("undo", "deploy", "web_search", "web_fetch", "ask_user")}
EFFECTS = [
    # What a call does: then whether supervised, guided, review and autonomous ask before it runs.
    ("reads files", READ, READS, "yes no no no"),
    ("searches the web", Tool("web_search", toolset="studio"), Effects(hosts=("example.com",)), "yes no no no"),
    ("reads a web page", Tool("web_fetch", toolset="studio"), Effects(hosts=("example.com",)), "yes yes yes yes"),
    ("changes files", WRITE, WRITES, "yes yes no no"),
    ("plans its own changes", Tool("undo", Danger.DANGEROUS, drafts=True), Effects(), "yes yes no no"),
    ("runs a command as a transaction", MAKE, RUNS, "yes yes no no"),
    ("runs a command with hosts", MAKE, CONTACTS, "yes yes yes no"),
    ("runs a command on the live files", START, RUNS, "yes yes yes no"),
    ("has unknown effects", Tool("deploy", Danger.DANGEROUS), Effects(), "yes yes yes no"),
    ("calls an MCP tool", LIVE, CALLS, "yes yes yes no"),
    ("calls an MCP tool that declares to be read-only", HINTED, CALLS, "yes yes no no"),
    ("calls an MCP tool that an owner marked as safe", MARKED, CALLS, "yes no no no"),
    ("asks a person", Tool("ask_user", category=ToolCategory.HUMAN), Effects(), "no no no no"),
    ("writes a protected name", WRITE, Effects(writes=(project("/.vscode/tasks.json"),)), "yes yes yes yes"),
]


@pytest.mark.parametrize(("tool", "effects", "asks"), [row[1:] for row in EFFECTS], ids=[row[0] for row in EFFECTS])
def test_trust_and_effect_decide_who_is_asked(tool: Tool, effects: Effects, asks: str) -> None:
    for trust, answer in zip(TrustLevel, asks.split(), strict=True):
        caller = agent(trust=trust, toolsets=("workspace", "studio", "mcp:ops"), tool_permissions=EACH)
        decision = authorize(caller, tool, effects)
        assert decision.action is (AuthorizationAction.ASK if answer == "yes" else AuthorizationAction.ALLOW), trust


def test_review_says_what_cannot_be_undone() -> None:
    caller = agent(trust=TrustLevel.REVIEW, tool_permissions=EACH)
    decision = authorize(caller, MAKE, CONTACTS)
    assert decision.rule == IRREVERSIBLE == "trust.review.irreversible"
    assert "it contacts pypi.org" in decision.reason
    assert not decision.undoable_only
    applied = authorize(caller, WRITE, WRITES)
    assert (applied.rule, applied.undoable_only) == ("trust.review.undoable", True)


def test_hosts_of_the_definition_are_a_standing_grant() -> None:
    permissions = {"make": {"allowed": True, "hosts": ["pypi.org"]}}
    caller = agent(trust=TrustLevel.REVIEW, tool_permissions=permissions)
    assert authorize(caller, MAKE, CONTACTS).action is AuthorizationAction.ALLOW
    more = Effects(command="pip install x", hosts=("pypi.org", "evil.example.com"))
    assert "it contacts evil.example.com:" in authorize(caller, MAKE, more).reason

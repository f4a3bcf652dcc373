"""Decides one call before it runs: allow, ask a person, or deny. Membership is checked elsewhere.

Also explains a decision without running the call.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import starmap
from typing import Final, assert_never

from toolcrib.core.agents import TrustLevel
from toolcrib.core.callers import Agent, Caller, SessionMode, WorkspaceRole
from toolcrib.core.errors import PermissionDenied, ToolcribError
from toolcrib.core.paths import WorkspacePath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.policy.grants import find_grant
from toolcrib.policy.path_guard import Denial, PathAccess, PathGuard
from toolcrib.policy.permissions import ToolMetadata, has_toolset, is_permitted, is_read_only, permission_for
from toolcrib.policy.protected_paths import PATTERNS, ProtectedPaths

PLAN_SUFFIX = ".plan"
EXIT = "exit_plan_mode"
# Writes files of any kind; in plan mode only plans.
_WRITES_PLANS = "write"


def is_offered_in_mode(mode: SessionMode, tool: ToolMetadata) -> bool:
    """Whether a model in a session of this mode sees the tool."""
    if mode is SessionMode.BUILD:
        return tool.name != EXIT
    return tool.name == _WRITES_PLANS or _looks_or_plans(tool)


def mode_denial(mode: SessionMode, tool: ToolMetadata, effects: Effects) -> str | None:
    """Return why a call is denied in this mode; ``None`` if it is allowed.

    In plan mode, an agent reads, asks and writes plans; nothing else.
    """
    if mode is SessionMode.BUILD or _looks_or_plans(tool):
        return None
    if tool.name == _WRITES_PLANS and effects.writes and all(p.name.endswith(PLAN_SUFFIX) for p in effects.writes):
        return None
    return (
        f"The session is in plan mode: `{tool.name}` is not available, and `write` only for *{PLAN_SUFFIX}. "
        "Write the plan, ask with `ask_user` whether it is accepted, then call `exit_plan_mode`."
    )


def _looks_or_plans(tool: ToolMetadata) -> bool:
    if tool.category in (ToolCategory.PLAN, ToolCategory.HUMAN):
        return True
    return tool.danger is Danger.SAFE and tool.category is not ToolCategory.EXEC


# The rule by which a person must approve writing a protected path.
PROTECTED_NAME: Final = "protected-name"


class AuthorizationAction(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Authorization:
    """The decision on a call.

    Attributes:
        required_role: The role that the caller, or the person responsible for the agent, must have.
        rules_checked: Every rule that was checked, in order, with its result.
        is_supervised: The agent's trust is so low that even reading needs an approval.
    """

    action: AuthorizationAction
    rule: str
    reason: str
    required_role: WorkspaceRole
    error: ToolcribError | None
    rules_checked: tuple[str, ...]
    is_supervised: bool = False


def authorize(caller: Caller, tool: ToolMetadata, effects: Effects) -> Authorization:
    """Decide a call. Skips ``effects.reads_batch``, which the guard checks file by file."""
    role = _role_needed(tool, effects)
    rules_checked: list[str] = []
    closed: list[WorkspacePath] = []
    for rule, denial in _denials(caller, tool, effects, closed):
        if denial is not None:
            rules_checked.append(f"{denial.rule}: {AuthorizationAction.DENY}")
            error = denial.error
            return Authorization(
                AuthorizationAction.DENY, denial.rule, error.message, role, error, tuple(rules_checked)
            )
        rules_checked.append(f"{rule}: not denied")
    verdict, rule, reason = _by_trust(caller.agent, tool) if caller.agent else _by_role(role, tool)
    if caller.agent and closed:
        # Regardless of trust and grants: an approval of another call does not cover code on a person's machine.
        verdict, rule, reason = AuthorizationAction.ASK, PROTECTED_NAME, _closed(caller.agent, closed[0])
    elif verdict is AuthorizationAction.ASK and (grant := find_grant(caller, tool, effects)):
        rules_checked.append(f"{rule}: {verdict}")
        verdict, rule = AuthorizationAction.ALLOW, f"grant.{'session' if grant.session_id else 'always'}:{grant.id}"
        reason = f"A saved approval covers this call: {rule}."
    supervised = caller.agent is not None and caller.agent.rules.trust is TrustLevel.SUPERVISED
    rules_checked.append(f"{rule}: {verdict}")
    return Authorization(verdict, rule, reason, role, None, tuple(rules_checked), is_supervised=supervised)


def _role_needed(tool: ToolMetadata, effects: Effects) -> WorkspaceRole:
    """Reading is for every member. A dangerous tool counts as having effects, even if it declares none."""
    acts = effects.has_side_effects or tool.danger is Danger.DANGEROUS or tool.category is ToolCategory.HUMAN
    return WorkspaceRole.MEMBER if acts else WorkspaceRole.VIEWER


def _denials(
    caller: Caller, tool: ToolMetadata, effects: Effects, closed: list[WorkspacePath]
) -> Iterator[tuple[str, Denial | None]]:
    """Yield every rule that can deny, in order, with its denial if there is one.

    Adds the paths that need a person's approval to ``closed``.
    """
    guard = PathGuard(caller, tool.name, ask=closed.append)
    accesses = [(PathAccess.READ, path) for path in effects.reads]
    accesses += [(PathAccess.WRITE, path) for path in effects.writes]

    def first(judge: Callable[[PathAccess, WorkspacePath], Denial | None]) -> Denial | None:
        return next(filter(None, starmap(judge, accesses)), None)

    yield "mount.read-only", first(guard.read_only_mount)
    yield "state.logs", first(guard.state_logs)
    if caller.agent is None:
        return
    yield "session.mode", _mode(caller, tool, effects)
    yield "agent.toolsets", _toolset(caller.agent, tool)
    permissions = caller.agent.permissions_rule
    yield f"{permissions}.{tool.name}", _permission(caller.agent, tool, effects)
    yield f"{permissions}.{tool.name}.paths", first(guard.paths)
    yield PROTECTED_NAME, first(guard.protected_name)


def _mode(caller: Caller, tool: ToolMetadata, effects: Effects) -> Denial | None:
    reason = mode_denial(caller.mode, tool, effects)
    return None if reason is None else Denial("session.mode", PermissionDenied(reason))


def _toolset(agent: Agent, tool: ToolMetadata) -> Denial | None:
    if has_toolset(agent.rules, tool):
        return None
    message = (
        f"Agent {agent.name!r} does not have the toolset `{tool.toolset}` of `{tool.name}`. "
        "A workspace owner can add it under `toolsets`."
    )
    return Denial("agent.toolsets", PermissionDenied(message))


def _permission(agent: Agent, tool: ToolMetadata, effects: Effects) -> Denial | None:
    read_only = is_read_only(agent.rules)
    # A tool declared as safe may still write: its effects on the tree take precedence.
    acts = bool(effects.writes or effects.command)
    if is_permitted(agent.rules, tool.name, tool.danger) and not (read_only and acts):
        return None
    why = "without `tool_permissions` it can only read" if read_only else "its `tool_permissions` do not allow it"
    other = ", or a person can choose another phase for the session" if agent.phase else ""
    message = (
        f"{agent.described} cannot use `{tool.name}`: {why}. "
        f"A workspace owner can add `tool_permissions: {{{tool.name}: {{allowed: true}}}}`{other}."
    )
    rule = f"{agent.permissions_rule}.{'absent' if read_only else tool.name}"
    return Denial(rule, PermissionDenied(message))


def _closed(agent: Agent, path: WorkspacePath) -> str:
    glob = ProtectedPaths(agent.rules.unprotected_paths).protects_writing(path)
    assert glob is not None
    return (
        f"Writing {path} always needs a person's approval: `{glob}` "
        f"{PATTERNS[glob].why}. A workspace owner can unprotect `{glob}` for this agent under `unprotected_paths`."
    )


def _by_trust(agent: Agent, tool: ToolMetadata) -> tuple[AuthorizationAction, str, str]:
    if tool.category is ToolCategory.HUMAN:
        return (
            AuthorizationAction.ALLOW,
            "people.asked",
            f"`{tool.name}` asks a person itself and needs no approval.",
        )
    trust, danger = agent.rules.trust, tool.danger
    verdict = AuthorizationAction.ASK if _asks(trust, danger) else AuthorizationAction.ALLOW
    then = "a person must approve the call" if verdict is AuthorizationAction.ASK else "no approval is needed"
    ceiling = f" (limited by `max_trust: {agent.max_trust}`)" if agent.max_trust is not None else ""
    reason = f"Agent {agent.name!r} is {trust}{ceiling} and `{tool.name}` is {danger}: {then}."
    return verdict, f"trust.{trust}.{danger}", reason


def _asks(trust: TrustLevel, danger: Danger) -> bool:
    match trust:
        case TrustLevel.SUPERVISED:
            return True
        case TrustLevel.GUIDED:
            return danger is Danger.DANGEROUS
        case TrustLevel.AUTONOMOUS:
            return False
        case _:
            assert_never(trust)


def _by_role(role: WorkspaceRole, tool: ToolMetadata) -> tuple[AuthorizationAction, str, str]:
    reason = f"Calls of people need no approval: `{tool.name}` needs the role {role} or higher."
    return AuthorizationAction.ALLOW, f"role.{role}", reason


@dataclass(frozen=True, slots=True)
class DeniedFile:
    """A file of a batch that would be denied while the others are returned."""

    path: str
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision, explained to a person. ``agent`` is ``None`` when a person calls."""

    tool: str
    agent: str | None
    action: AuthorizationAction
    rule: str
    reason: str
    required_role: WorkspaceRole
    rules_checked: tuple[str, ...]
    denied_files: tuple[DeniedFile, ...]


def explain(caller: Caller, tool: ToolMetadata, effects: Effects) -> Explanation:
    """Explain what the gate would do with a call, and every rule that it would check.

    Uses ``authorize``, so that explanations and decisions never differ.
    """
    decision = authorize(caller, tool, effects)
    return Explanation(
        tool=tool.name,
        agent=caller.agent.name if caller.agent else None,
        action=decision.action,
        rule=decision.rule,
        reason=decision.reason + _view(caller, tool, effects),
        required_role=decision.required_role,
        rules_checked=decision.rules_checked,
        denied_files=_denied_files(PathGuard(caller, tool.name), effects),
    )


def _view(caller: Caller, tool: ToolMetadata, effects: Effects) -> str:
    """Describe what a command would see and change. The names in its text do not show that."""
    permission = permission_for(caller.agent.rules, tool.name) if caller.agent else None
    if effects.command is None or permission is None or permission.paths is None:
        return ""
    return f" It is limited to its paths: {', '.join(permission.paths) or 'nothing'}."


def _denied_files(guard: PathGuard, effects: Effects) -> tuple[DeniedFile, ...]:
    return tuple(
        DeniedFile(str(path), denial.rule, denial.error.message)
        for path in effects.reads_batch
        if (denial := guard.denial(PathAccess.READ, path))
    )

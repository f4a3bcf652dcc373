"""Decides one call before it runs: allow, ask a person, or deny. Also explains a decision without running the call.

``PathGuard`` decides about each path, also while the call runs. Membership is checked elsewhere.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import starmap
from typing import Final

from toolcrib.core.agents import ToolPermission, TrustLevel
from toolcrib.core.callers import Agent, Caller, SessionMode, WorkspaceRole
from toolcrib.core.errors import CallDenied, PermissionDenied, ProtectedPath, ReadOnlyMount, ToolcribError
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.core.tool_calls import Danger, Effects, ToolCategory
from toolcrib.policy.grants import find_grant, ungranted_hosts
from toolcrib.policy.permissions import (
    ToolMetadata,
    has_toolset,
    is_permitted,
    is_read_only,
    path_allowed,
    permission_for,
)
from toolcrib.policy.protected_paths import OUTWARD_LINK, PATTERNS, ProtectedPaths
from toolcrib.policy.trust import asks_before, irreversible_reason

# Only Toolcrib itself writes there.
LOGS = WorkspacePath(Mount.STATE, "/logs")


class PathAccess(StrEnum):
    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Denial:
    """The rule that denies, and the error to raise."""

    rule: str
    error: CallDenied


class PathGuard:
    """Checks one path at a time, for one caller and one tool. Only the mount rules apply to people."""

    def __init__(
        self,
        caller: Caller,
        tool_name: str,
        *,
        granted: Collection[WorkspacePath] = (),
        ask: Callable[[WorkspacePath], None] | None = None,
    ) -> None:
        """Create the guard.

        Args:
            granted: Protected paths that a person approved. All other rules still apply to them.
            ask: Called for each path that needs a person's approval to be written. Without it, such a path is denied.
        """
        self._agent = caller.agent
        self._tool_name = tool_name
        self._granted = granted
        self._ask = ask
        self._permission = permission_for(caller.agent.rules, tool_name) if caller.agent else None
        self._protection = ProtectedPaths(caller.agent.rules.unprotected_paths) if caller.agent else None

    @property
    def asks_about_outward_links(self) -> bool:
        """Whether a person must approve new links that lead out of the workspace. Not of people's own calls."""
        return self._agent is not None and OUTWARD_LINK not in self._agent.rules.unprotected_paths

    def check_read(self, path: WorkspacePath) -> None:
        """Raise if ``path`` may not be read."""
        if denial := self.denial(PathAccess.READ, path):
            raise denial.error

    def check_write(self, path: WorkspacePath) -> None:
        """Raise if ``path`` may not be created, changed, moved or deleted."""
        if denial := self.denial(PathAccess.WRITE, path):
            raise denial.error

    def check_name(self, path: WorkspacePath) -> None:
        """Raise if the name is protected, for a folder on the way to a path that may be written."""
        if denial := self.protected_name(PathAccess.WRITE, path):
            raise denial.error

    def denial(self, access: PathAccess, path: WorkspacePath) -> Denial | None:
        """Return the first rule that denies access, if any."""
        return (
            self.read_only_mount(access, path)
            or self.state_logs(access, path)
            or self.paths(access, path)
            or self.protected_name(access, path)
        )

    def read_only_mount(self, access: PathAccess, path: WorkspacePath) -> Denial | None:
        """Deny writing to a read-only mount."""
        if access is PathAccess.READ or path.mount.writable:
            return None
        message = f"{path} cannot be written: @{path.mount} is read-only. Write to @project or @central."
        return Denial("mount.read-only", ReadOnlyMount(message))

    def state_logs(self, access: PathAccess, path: WorkspacePath) -> Denial | None:
        """Deny writing to Toolcrib's own logs."""
        if access is PathAccess.READ or path.mount is not Mount.STATE or path.parts[:1] != LOGS.parts:
            return None
        message = f"{path} cannot be written: only Toolcrib writes {LOGS}. Write elsewhere in @state."
        return Denial("state.logs", ReadOnlyMount(message))

    def paths(self, access: PathAccess, path: WorkspacePath) -> Denial | None:
        """Deny paths that the agent's permission for the tool does not cover."""
        if self._agent is None or self._permission is None or path_allowed(self._permission, path):
            return None
        tool, globs = self._tool_name, _shown_paths(self._permission) or "none"
        message = (
            f"{self._agent.described} cannot {access} {path} with `{tool}`: its paths are {globs}. "
            "Use a path that they cover, or ask a workspace owner to add one."
        )
        return Denial(f"{self._agent.permissions_rule}.{tool}.paths", PermissionDenied(message))

    def protected_name(self, access: PathAccess, path: WorkspacePath) -> Denial | None:
        """Deny protected paths to agents. Passes paths that only need an approval to ``ask``."""
        if self._protection is None or path in self._granted:
            return None
        glob = self._protection.protects_reading(path)
        if glob is None and access is PathAccess.WRITE:
            glob = self._protection.protects_writing(path)
            if glob is not None and self._ask is not None:
                self._ask(path)
                return None
        if glob is None:
            return None
        message = (
            f"Agents cannot {access} {path}: `{glob}` is protected because it {PATTERNS[glob].why}. "
            f"Work without it; a workspace owner can unprotect `{glob}` for this agent under `unprotected_paths`."
        )
        return Denial(f"protected-name:{glob}", ProtectedPath(message))


PLAN_SUFFIX = ".plan"


def mode_denial(mode: SessionMode, tool: ToolMetadata, effects: Effects) -> str | None:
    """Return why a call is denied in this mode; ``None`` if it is allowed.

    In plan mode, an agent reads, asks and writes plans; nothing else.
    """
    if mode is SessionMode.BUILD:
        return None
    if mode in tool.modes and not tool.plan_files_only:
        return None
    if tool.plan_files_only and effects.writes and all(p.name.endswith(PLAN_SUFFIX) for p in effects.writes):
        return None
    limit = f"writes only *{PLAN_SUFFIX} files" if tool.plan_files_only else "is not available"
    return (
        f"The session is in plan mode: `{tool.name}` {limit}. "
        "Write the plan, ask with `ask_user` whether it is accepted, then call `exit_plan_mode`."
    )


# The rule by which a person must approve writing a protected path.
PROTECTED_NAME: Final = "protected-name"
# No rule but a person's approval of the one call covers these.
ONCE_ONLY: Final = frozenset({PROTECTED_NAME, OUTWARD_LINK})
# The rule by which a call is denied to people without the role that it needs. The database decides that.
MEMBERSHIP: Final = "membership"
# The rule by which a person must approve what a command or a fetch contacts.
UNGRANTED_HOSTS: Final = "hosts.not-granted"
# The rule by which a person must approve what an agent of trust ``review`` could not undo.
IRREVERSIBLE: Final = f"trust.{TrustLevel.REVIEW}.irreversible"


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
        undoable_only: The call is allowed because it can be undone. A person approves an effect that cannot.
    """

    action: AuthorizationAction
    rule: str
    reason: str
    required_role: WorkspaceRole
    error: ToolcribError | None
    rules_checked: tuple[str, ...]
    is_supervised: bool = False
    undoable_only: bool = False


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
    verdict, rule, reason = _by_trust(caller.agent, tool, effects) if caller.agent else _by_role(role, tool)
    if caller.agent and closed:
        # Regardless of trust and grants: an approval of another call does not cover code on a person's machine.
        verdict, rule, reason = AuthorizationAction.ASK, PROTECTED_NAME, _closed(caller.agent, closed[0])
    elif caller.agent and (hosts := ungranted_hosts(caller, tool, effects)):
        # Regardless of trust, which adds no permissions.
        verdict, rule, reason = AuthorizationAction.ASK, UNGRANTED_HOSTS, _ungranted(caller.agent, tool, effects, hosts)
    elif verdict is AuthorizationAction.ASK and (grant := find_grant(caller, tool, effects)):
        rules_checked.append(f"{rule}: {verdict}")
        verdict, rule = AuthorizationAction.ALLOW, f"grant.{'session' if grant.session_id else 'always'}:{grant.id}"
        reason = f"A saved approval covers this call: {rule}."
    trust = caller.agent.rules.trust if caller.agent else None
    rules_checked.append(f"{rule}: {verdict}")
    return Authorization(
        verdict,
        rule,
        reason,
        role,
        None,
        tuple(rules_checked),
        is_supervised=trust is TrustLevel.SUPERVISED,
        undoable_only=trust is TrustLevel.REVIEW and verdict is AuthorizationAction.ALLOW,
    )


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
    read_only = agent.is_read_only or is_read_only(agent.rules)
    # A tool declared as safe may still write: its effects on the tree take precedence.
    acts = bool(effects.writes or effects.command)
    if is_permitted(agent.rules, tool) and not (read_only and acts):
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


def _ungranted(agent: Agent, tool: ToolMetadata, effects: Effects, hosts: tuple[str, ...]) -> str:
    who = f"`{tool.name}`" if effects.command is None else "The command"
    return f"{who} wants to contact {', '.join(hosts)}, which {agent.described} may not do without approval."


def _by_trust(agent: Agent, tool: ToolMetadata, effects: Effects) -> tuple[AuthorizationAction, str, str]:
    if tool.category is ToolCategory.HUMAN:
        return (
            AuthorizationAction.ALLOW,
            "people.asked",
            f"`{tool.name}` asks a person itself and needs no approval.",
        )
    trust, kind, why = agent.rules.trust, str(tool.danger), f"`{tool.name}` is {tool.danger}"
    if trust is TrustLevel.REVIEW and tool.danger is Danger.DANGEROUS:
        lasting = irreversible_reason(agent.rules, tool, effects)
        kind = "undoable" if lasting is None else "irreversible"
        why = f"`{tool.name}` " + ("can be undone" if lasting is None else f"cannot be undone: {lasting}")
    verdict = AuthorizationAction.ASK if asks_before(agent.rules, tool, effects) else AuthorizationAction.ALLOW
    then = "a person must approve the call" if verdict is AuthorizationAction.ASK else "no approval is needed"
    ceiling = f" (limited by `max_trust: {agent.max_trust}`)" if agent.max_trust is not None else ""
    reason = f"Agent {agent.name!r} is {trust}{ceiling} and {why}: {then}."
    return verdict, f"trust.{trust}.{kind}", reason


def _by_role(role: WorkspaceRole, tool: ToolMetadata) -> tuple[AuthorizationAction, str, str]:
    reason = f"Calls of people need no approval: `{tool.name}` needs the role {role} or higher."
    return AuthorizationAction.ALLOW, f"role.{role}", reason


@dataclass(frozen=True, slots=True)
class DeniedFile:
    """A file of a batch that would be denied while the others are returned."""

    path: str
    rule: str
    reason: str


class AskedAbout(StrEnum):
    """What a person is asked about: the call before it runs, or its effect, if it turns out to have one."""

    CALL = "call"
    EFFECT = "effect"


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
    asks_about: AskedAbout | None = None


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
    return f" It is limited to its paths: {_shown_paths(permission) or 'nothing'}."


def _shown_paths(permission: ToolPermission) -> str:
    return " and ".join(", ".join(globs) for globs in permission.path_lists)


def _denied_files(guard: PathGuard, effects: Effects) -> tuple[DeniedFile, ...]:
    return tuple(
        DeniedFile(str(path), denial.rule, denial.error.message)
        for path in effects.reads_batch
        if (denial := guard.denial(PathAccess.READ, path))
    )

"""Which paths a caller may read and write through a tool. ``authorization`` decides about trust."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from toolcrib.core.callers import Caller
from toolcrib.core.errors import CallDenied, PermissionDenied, ProtectedPath, ReadOnlyMount
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.policy.permissions import path_allowed, permission_for
from toolcrib.policy.protected_paths import PATTERNS, ProtectedPaths

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
        tool, globs = self._tool_name, ", ".join(self._permission.paths or ()) or "none"
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

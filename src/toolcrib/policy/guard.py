"""Which places a caller may read and write through a tool. Asks nobody: trust is decided in ``decisions``."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from toolcrib.domain.callers import Caller
from toolcrib.domain.errors import NotPermitted, ProtectedName, ReadOnlyMount, Refused
from toolcrib.domain.places import Mount, Place
from toolcrib.policy.permissions import path_allowed, permission_for
from toolcrib.policy.protected import PATTERNS, Protection

# What Toolcrib itself writes there, and nobody else.
LOGS = Place(Mount.STATE, "/logs")


class Access(StrEnum):
    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Objection:
    """The rule that refuses, and the error to give."""

    rule: str
    error: Refused


class Guard:
    """Judges one place at a time, for one caller and one tool. People are bound by the mounts only."""

    def __init__(self, caller: Caller, tool_name: str, *, granted: Collection[Place] = ()) -> None:
        """``granted`` are places whose names a person has let pass; all else still holds for them."""
        self._agent = caller.agent
        self._tool_name = tool_name
        self._granted = granted
        self._permission = permission_for(caller.agent.rules, tool_name) if caller.agent else None
        self._protection = Protection(caller.agent.rules.unprotect) if caller.agent else None

    def check_read(self, place: Place) -> None:
        """Raise if ``place`` may not be read."""
        if objection := self.objection(Access.READ, place):
            raise objection.error

    def check_write(self, place: Place) -> None:
        """Raise if ``place`` may not be made, changed, moved or deleted."""
        if objection := self.objection(Access.WRITE, place):
            raise objection.error

    def objection(self, access: Access, place: Place) -> Objection | None:
        """What first stands against it, if anything does."""
        return (
            self.read_only_mount(access, place)
            or self.state_logs(access, place)
            or self.paths(access, place)
            or self.protected_name(access, place)
        )

    def read_only_mount(self, access: Access, place: Place) -> Objection | None:
        if access is Access.READ or place.mount.writable:
            return None
        message = f"{place} cannot be written: @{place.mount} is read-only. Write to @project or @central."
        return Objection("mount.read-only", ReadOnlyMount(message))

    def state_logs(self, access: Access, place: Place) -> Objection | None:
        if access is Access.READ or place.mount is not Mount.STATE or place.parts[:1] != LOGS.parts:
            return None
        message = f"{place} cannot be written: only Toolcrib writes {LOGS}. Write elsewhere in @state."
        return Objection("state.logs", ReadOnlyMount(message))

    def paths(self, access: Access, place: Place) -> Objection | None:
        if self._agent is None or self._permission is None or path_allowed(self._permission, place):
            return None
        tool, globs = self._tool_name, ", ".join(self._permission.paths or ()) or "none"
        message = (
            f"Agent {self._agent.name!r} may not {access} {place} with `{tool}`: its paths are {globs}. "
            "Use a path that these cover, or let a workspace owner add one."
        )
        return Objection(f"agent.tool_permissions.{tool}.paths", NotPermitted(message))

    def protected_name(self, access: Access, place: Place) -> Objection | None:
        if self._protection is None or place in self._granted:
            return None
        protection = self._protection
        protects = protection.protects_reading if access is Access.READ else protection.protects_writing
        glob = protects(place)
        if glob is None:
            return None
        message = (
            f"Agents may not {access} {place}: `{glob}` is protected, because it {PATTERNS[glob].why}. "
            f"Do without it; a workspace owner may lift `{glob}` for this agent under `unprotect`."
        )
        return Objection(f"protected-name:{glob}", ProtectedName(message))

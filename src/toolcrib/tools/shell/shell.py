"""Runs a command of a call in the sandbox, on a workspace, and puts its effect into the call's draft.

Joins the sandbox, which knows directories, with the workspace, which knows change sets. Commits nothing: the gate does.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from toolcrib.domain.callers import Caller
from toolcrib.domain.errors import ProtectedName
from toolcrib.domain.files import NodeKind
from toolcrib.domain.ids import WorkspaceId
from toolcrib.domain.places import Mount, Place
from toolcrib.policy.guard import Access, Guard
from toolcrib.policy.permissions import hosts_granted
from toolcrib.policy.protected import Protection
from toolcrib.sandbox.command import Command, CommandResult
from toolcrib.sandbox.effect import Change, Effect, Entry, Kind
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.sandbox.zones import Zone
from toolcrib.tools.context import ToolContext
from toolcrib.tools.shell.staging import Staging
from toolcrib.workspace.adopting import Adopted, adopt
from toolcrib.workspace.base import Base
from toolcrib.workspace.bulk import Bulk
from toolcrib.workspace.hidden import Hidden, Protects
from toolcrib.workspace.mounts import VIEWED
from toolcrib.workspace.residue import Residue
from toolcrib.workspace.threads import in_thread

TOOL_NAME: Final = "bash"
# How many commands run at once: here, and in one workspace.
_AT_ONCE: Final = 16
_IN_ONE: Final = 4
# What stands at the root of every view.
_TAKEN: Final = frozenset({"bin", "dev", "etc", "lib", "lib32", "lib64", "mnt", "proc", "sbin", "sys", "tmp", "usr"})
_KINDS: Final = {Kind.FILE: NodeKind.FILE, Kind.FOLDER: NodeKind.FOLDER, Kind.LINK: NodeKind.LINK}
# Whose commits they are: what git would say of a person is in files that are hidden from agents.
_IDENTITY: Final = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "agent"), ("EMAIL", "agent@toolcrib.invalid"))
}
# Looking at a repository should not change it.
ENVIRONMENT: Final = {**_IDENTITY, "GIT_OPTIONAL_LOCKS": "0"}


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended, and what of its effect is no part of the draft."""

    result: CommandResult
    left_out: tuple[str, ...] = ()
    unkept: tuple[tuple[Place, int], ...] = ()


class Shell:
    """One per server."""

    def __init__(self, sandbox: Sandbox, staging: Path) -> None:
        self._sandbox = sandbox
        self._data = staging.parent.resolve()
        self._staging = Staging(staging)
        self._hidden = Hidden()
        self._off: str | None = None
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._rooms: WeakValueDictionary[WorkspaceId, asyncio.Semaphore] = WeakValueDictionary()

    async def prove(self) -> None:
        """Finds out whether commands can be run here at all."""
        self._off = (await self._sandbox.probe()).reason

    def is_offered(self) -> bool:
        """Whether models are shown the tool; until it is found out, they are."""
        return self._off is None

    @property
    def staging(self) -> Path:
        """A folder of this process's own."""
        return self._staging.folder

    def close(self) -> None:
        self._staging.close()

    async def run(self, text: str, context: ToolContext, *, seconds: float) -> Ran:
        """Runs a command to its end. Whatever it changed is in the draft then, if it ended by itself."""
        isolation = await self._sandbox.probe()
        isolation.require()
        context.remarks.isolation = isolation.level
        # A workspace waits for itself first, so that it cannot fill the server's room with commands that wait.
        async with self._rooms.setdefault(context.caller.workspace_id, asyncio.Semaphore(_IN_ONE)), self._room:
            return await self._run(text, context, seconds=seconds)

    async def _run(self, text: str, context: ToolContext, *, seconds: float) -> Ran:
        base = await Base.now(context.tree)
        # From here on: nothing is masked, or copied, of a tree that is not yet what the command began on.
        zones, _ = await asyncio.gather(self.zones(context), base.over())
        staging = self._staging.folder
        async with self._sandbox.transaction(
            [zone for _, zone in zones], staging, dispose=self._staging.dispose
        ) as view:
            agent = context.caller.agent
            hosts = hosts_granted(agent.rules if agent else None, TOOL_NAME)
            command = Command(text, env=ENVIRONMENT, seconds=seconds, hosts=hosts)
            result = await view.run(command, context.emit)
            context.remarks.contacted += [(f"{one.host}:{one.port}", one.refused) for one in result.contacted]
            if result.timed_out or result.stopped:
                return Ran(result)
            left_out, adopted = await _adopted(
                await view.effect(), {zone.name: root for root, zone in zones}, context, base
            )
        return Ran(result, left_out, adopted.unkept)

    async def zones(self, context: ToolContext) -> list[tuple[Place, Zone]]:
        """The four mounts as the command sees them, the project first: there it starts."""
        roots = await context.tree.roots(Mount)
        agent = context.caller.agent
        protects = Protection(agent.rules.unprotect).protects_reading if agent else None
        masked = await in_thread(self._masked, roots, protects) if protects else {}
        return [
            (place, Zone(mount, root, self._target(mount, root), mount.writable, masked.get(mount, frozenset())))
            for mount, (place, root) in roots.items()
        ]

    def _target(self, mount: Mount, root: Path) -> str:
        """Where a command sees a mount. A person's own directory stays where it is: what is installed there (a virtual
        environment, a build) has its path written into it."""
        is_ours = root.is_relative_to(self._data)
        return VIEWED[mount] if is_ours or root.parts[1:2] == () or root.parts[1] in _TAKEN else str(root)

    def _masked(self, roots: Mapping[Mount, tuple[Place, Path]], protects: Protects) -> dict[Mount, frozenset[str]]:
        return {mount: self._hidden.below(root, place, protects) for mount, (place, root) in roots.items()}

    def closed_names(self, root: Path, place: Place, protects: Protects) -> frozenset[str]:
        """What stands below a mount's root under names that are protected, whatever other names it has."""
        return self._hidden.below(root, place, protects, aliases=False)


async def _adopted(
    effect: Effect, roots: dict[str, Place], context: ToolContext, base: Base
) -> tuple[tuple[str, ...], Adopted]:
    """Puts the effect into the draft; says what of it cannot be taken."""
    taken, left_out = _sorted_out(effect, roots)
    if not taken:
        return left_out, Adopted()
    context.remarks.protected += _judged(context.caller, taken)
    residues = [_residue(effect, entry, place) for entry, place in taken]
    bulk = Bulk({roots[zone].tree: written for zone, written in effect.written.items()})
    return left_out, await adopt(context.tree, context.draft, residues, base, bulk)


def _sorted_out(effect: Effect, roots: dict[str, Place]) -> tuple[list[tuple[Entry, Place]], tuple[str, ...]]:
    taken: list[tuple[Entry, Place]] = []
    left_out: list[str] = []
    for entry in effect:
        root = roots[entry.zone]
        if entry.path == ".":
            left_out.append(f"the mode of {root}, which is a mount's root")
        elif entry.kind is Kind.SPECIAL and entry.change is not Change.DELETED:
            left_out.append(f"{root}/{entry.path}, which is a special file")
        else:
            taken.append((entry, Place(root.mount, f"/{entry.path}", root.scope)))
    return taken, tuple(left_out)


def _judged(caller: Caller, taken: Sequence[tuple[Entry, Place]]) -> Iterator[Place]:
    """The places that only a person can let pass. What nobody can is raised, and nothing of the effect counts."""
    guard = Guard(caller, TOOL_NAME)
    for entry, place in taken:
        objection = guard.objection(Access.WRITE, place)
        if objection is None and not entry.masked:
            continue
        if objection is not None and not isinstance(objection.error, ProtectedName):
            raise objection.error
        yield place


def _residue(effect: Effect, entry: Entry, place: Place) -> Residue:
    gone = entry.change is Change.DELETED
    return Residue(
        place,
        None if gone else _KINDS[entry.kind],
        was_there=entry.change is not Change.MADE,
        mode=entry.mode & 0o777,
        size=entry.size,
        target=entry.target,
        open=partial(effect.open, entry) if entry.body else None,
        was_folder=gone and entry.kind is Kind.FOLDER,
    )

"""Keeps the history true to the disk: books what happened behind its back, takes files in, finishes after a crash."""

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

import structlog

from toolcrib.domain.callers import Role
from toolcrib.domain.changes import EXTERNAL, Change, ChangeSet
from toolcrib.domain.files import File, NodeKind, NodeState
from toolcrib.domain.ids import VersionId
from toolcrib.domain.places import Mount, Place, root_of
from toolcrib.storage import blobs
from toolcrib.storage.background import present_within
from toolcrib.storage.changes import Changes, Settled
from toolcrib.storage.database import Connection, Tenant
from toolcrib.storage.files import below_within, pending_within, version_within
from toolcrib.storage.trash import TrashLimits, put_in_within
from toolcrib.workspace.aftermath import sorted_out, stranded, sweep
from toolcrib.workspace.apply import Step, apply
from toolcrib.workspace.attribution import attributed
from toolcrib.workspace.disk import Disk
from toolcrib.workspace.drift import observed, observed_whole, size_below, still_holds
from toolcrib.workspace.findings import Found, external_change
from toolcrib.workspace.mounts import Disks, Mounts
from toolcrib.workspace.nodes import Node
from toolcrib.workspace.threads import in_thread
from toolcrib.workspace.trash import token_of

log = structlog.get_logger(__name__)


class Sync:
    """Reconciles places, and recovers workspaces."""

    def __init__(self, changes: Changes, mounts: Mounts, *, node: str, trash: TrashLimits | None = None) -> None:
        self._changes = changes
        self._mounts = mounts
        self._node = node
        self._trash = trash or TrashLimits()

    async def reconcile(
        self,
        tenant: Tenant,
        places: Sequence[Place],
        *,
        take_in: bool = False,
        whole: Collection[Place] = (),
        all_were_known: bool = False,
    ) -> tuple[ChangeSet, ...]:
        """Makes the history say what the disk holds at these places; with ``take_in``, of unknown files too.

        Of those in ``whole`` the history shall not keep the content, and folders are taken in with all that is in them.
        Waits for whoever is changing them. A change that is still pending then was left by a crash.
        ``all_were_known``: what is unknown now was made since some process began, and may be its doing. Returns what
        was booked.
        """
        booked: tuple[ChangeSet, ...] = ()
        places = sorted(set(places))
        async with self._changes.locked(tenant, places) as locked:
            seen = await locked.look(places, Role.VIEWER)
            seen.home.require(self._node)
            async with locked.transaction() as connection:
                crashed = seen.any_pending and bool(await pending_within(connection, tenant, places))
                found = Found((), ())
                if not crashed:
                    disk_of = self._mounts.disks_of(tenant.workspace_id, seen.home.tree)
                    found = await in_thread(
                        partial(_observe, disk_of, places, seen.files, take_in=take_in, whole=whole)
                    )
                    found = await _with_lost_children(connection, tenant, found)
                if found.changes:
                    booked = await self._attributed(connection, tenant, found, all_were_known=all_were_known)
                for change_set in booked:
                    await locked.commit(change_set, seen.home, node=self._node)
            await locked.settle(found.settled)
        if crashed:
            await self.recover(tenant)
        return booked

    async def _attributed(
        self, connection: Connection, tenant: Tenant, found: Found, *, all_were_known: bool
    ) -> tuple[ChangeSet, ...]:
        """What was found, by whom: by programs outside, or by a background process that ran at the time."""
        oldest_ns = min(found.dates_ns.values(), default=time.time_ns())
        processes = await present_within(connection, tenant, node=self._node, since_ns=oldest_ns)
        return attributed(found, processes, all_were_known=all_were_known)

    async def finish(self, tenant: Tenant) -> None:
        """Waits until all that was committed so far is on disk, whoever does it; if its process died, does it."""
        async with self._changes.locked(tenant, [], whole=True) as locked:
            # Whoever lives and was changing something is done now: what is still pending was left by a crash.
            crashed = (await locked.look([_ANYWHERE], Role.VIEWER)).any_pending
        if crashed:
            await self.recover(tenant)

    async def recover(self, tenant: Tenant) -> int:
        """Brings every committed change of a workspace to disk that a crash left out. Returns how many files."""
        async with self._changes.locked(tenant, [], whole=True) as locked:
            seen = await locked.look([_ANYWHERE], Role.VIEWER)
            seen.home.require(self._node)
            async with locked.transaction() as connection:
                pending = await pending_within(connection, tenant)
                disk_of = self._mounts.disks_of(tenant.workspace_id, seen.home.tree)
                steps = [await _step(connection, tenant, file) for file in pending]
                await in_thread(sweep, disk_of, steps)
                redo, clashes = await in_thread(sorted_out, disk_of, steps, pending)
                if clashes.changes:
                    log.warning("recovery.external_change", files=[str(p) for c in clashes.changes for p in c.places])
                    found = ChangeSet(EXTERNAL, clashes.changes)
                    await locked.commit(found, seen.home, node=self._node)
                    lying = await in_thread(stranded, disk_of, steps, redo)
                    await put_in_within(
                        connection, tenant, found.id, lying, node=self._node, limits=self._trash, anew=False
                    )
            settled = await in_thread(apply, disk_of, redo)
            await locked.settle([*settled, *clashes.settled])
        return len(pending)


_ANYWHERE = root_of(Mount.PROJECT)


async def _step(connection: Connection, tenant: Tenant, file: File) -> Step:
    """What a pending file still has to go through."""
    before = None
    if file.base_version_id is not None:
        base = await version_within(connection, tenant, file.base_version_id)
        before = None if base.deleted else base.state
    after = None if file.deleted else file.state
    body = None
    if after is not None and after.sha256 is not None:
        body = (await blobs.fetch(connection, tenant, [after.sha256]))[after.sha256]
    # A file that was made and deleted before it ever reached the disk is looked for where it would have been.
    return Step(file.id, file.version_id, before or (file.state if after is None else None), after, body)


async def _with_lost_children(connection: Connection, tenant: Tenant, found: Found) -> Found:
    """A folder that is gone took along what was in it."""
    changes, settled = list(found.changes), list(found.settled)
    gone = [c.before for c in found.changes if c.after is None and c.before and c.before.kind is NodeKind.FOLDER]
    for folder in gone:
        known = {change.file_id for change in changes}
        for file in await below_within(connection, tenant, folder.place):
            if file.id not in known and not file.is_virtual:
                changes.append(external_change(file, None, None))
                settled.append(Settled(file.id, changes[-1].version_id, None))
    return Found(tuple(changes), tuple(settled), found.dates_ns)


def _observe(
    disk_of: Disks,
    places: Sequence[Place],
    files: Sequence[File | None],
    *,
    take_in: bool,
    whole: Collection[Place],
) -> Found:
    changes: list[Change] = []
    settled: list[Settled] = []
    dates_ns: dict[VersionId, int] = {}
    for place, file in zip(places, files, strict=True):
        if file is None and not take_in:
            continue
        if file is not None and file.is_virtual:
            continue
        state, body, node = _found_at(disk_of(place), place, file, whole=place in whole)
        if file is None and state is None:
            continue
        version_id = file.version_id if file else None
        if file is None or state != _comparable(file.state, state):
            change = external_change(file, state, body)
            changes.append(change)
            version_id = change.version_id
            if node is not None:
                dates_ns[version_id] = node.fingerprint.ctime_ns
        assert version_id is not None
        file_id = file.id if file else changes[-1].file_id
        fingerprint = node.fingerprint if node and node.kind is not NodeKind.FOLDER else None
        settled.append(Settled(file_id, version_id, fingerprint))
    return Found(tuple(changes), tuple(settled), dates_ns)


def _found_at(
    disk: Disk, place: Place, file: File | None, *, whole: bool
) -> tuple[NodeState | None, bytes | None, Node | None]:
    if file is not None and token_of(file.state) is not None:
        node = disk.look(place)
        if still_holds(disk, file, node):
            size = size_below(disk, place) if whole and file.state.kind is NodeKind.FOLDER else file.state.size
            return replace(file.state, size=size), None, node
    if not whole:
        return observed(disk, place, file.state if file else None)
    state, node = observed_whole(disk, place)
    return state, None, node


def _comparable(known: NodeState, state: NodeState | None) -> NodeState:
    """A known state without what an observation cannot tell: a link's own mode means nothing."""
    if state is None or state.kind is not NodeKind.LINK:
        return known
    return replace(known, mode=state.mode)

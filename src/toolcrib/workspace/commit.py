"""Commits a change set: locks, base check, one transaction, then the disk. The one way a tool ever changes a tree."""

import asyncio
from collections.abc import Mapping, Sequence

from toolcrib.domain.book import AuditRecord, CallRecord
from toolcrib.domain.callers import Role
from toolcrib.domain.changes import Change, ChangeSet
from toolcrib.domain.errors import BaseChanged, NotOnDisk, ToolFailed
from toolcrib.domain.files import File, NodeKind
from toolcrib.domain.places import Place
from toolcrib.storage.changes import Changes, Settled, touches_folders
from toolcrib.storage.database import Connection, Tenant
from toolcrib.storage.trash import Displaced, TrashLimits, put_in_within, take_out_within
from toolcrib.workspace.apply import Step, apply
from toolcrib.workspace.disk import Disk
from toolcrib.workspace.drift import look_past_links, still_holds
from toolcrib.workspace.mounts import Disks, Mounts
from toolcrib.workspace.paths import shown
from toolcrib.workspace.threads import in_thread, in_thread_if_many
from toolcrib.workspace.trash import Returned, displaced_by, returned_by

# Room that is left to others.
_SPARE = 1_000_000


class Committer:
    """Database first, then redo: what is committed is brought to disk, now or by recovery."""

    def __init__(self, changes: Changes, mounts: Mounts, *, node: str, trash: TrashLimits | None = None) -> None:
        self._changes = changes
        self._mounts = mounts
        self._node = node
        self._trash = trash or TrashLimits()

    async def commit(
        self,
        tenant: Tenant,
        change_set: ChangeSet,
        *,
        needs: Role = Role.MEMBER,
        call: CallRecord | None = None,
        audit: AuditRecord | None = None,
    ) -> None:
        """Commits and applies; ``call`` and ``audit`` are written if and only if the set is.

        BaseChanged if the tree has moved on since the set was planned: plan again.
        """
        # A caller who gives up must not leave a change half applied while others wait for its locks.
        await asyncio.shield(self._commit(tenant, change_set, needs, call, audit))

    async def _commit(
        self,
        tenant: Tenant,
        change_set: ChangeSet,
        needs: Role,
        call: CallRecord | None,
        audit: AuditRecord | None,
    ) -> None:
        places = change_set.places
        watched = sorted({*places, *_parents(change_set)})
        async with self._changes.locked(tenant, places, whole=touches_folders(change_set)) as locked:
            seen = await locked.look(watched, needs)
            found = dict(zip(watched, seen.files, strict=True))
            disk_of = self._mounts.disks_of(tenant.workspace_id, seen.home.tree)
            _check_history(change_set, found)
            try:
                await in_thread_if_many(len(places), _check_disk, change_set, found, disk_of)
            except BaseChanged as error:
                error.drifted = True
                raise
            displaced, returned = displaced_by(change_set), returned_by(change_set)
            if displaced or returned:
                async with locked.transaction() as connection:
                    await locked.commit(change_set, seen.home, node=self._node, call=call, audit=audit)
                    await self._note_trash(connection, tenant, change_set, displaced, returned)
            else:
                await locked.commit(change_set, seen.home, node=self._node, call=call, audit=audit)
            await locked.settle(await self._applied(change_set, disk_of))

    async def _note_trash(
        self,
        connection: Connection,
        tenant: Tenant,
        change_set: ChangeSet,
        displaced: Sequence[Displaced],
        returned: Sequence[Returned],
    ) -> None:
        """Says in the same transaction what goes into the trash and what leaves it."""
        if returned and not await take_out_within(connection, tenant, [one.token for one in returned]):
            raise BaseChanged(f"{shown(returned[0].place)} has left the trash meanwhile.")
        if displaced:
            await put_in_within(connection, tenant, change_set.id, displaced, node=self._node, limits=self._trash)

    async def _applied(self, change_set: ChangeSet, disk_of: Disks) -> list[Settled]:
        try:
            return await in_thread(apply, disk_of, [Step.of(change) for change in change_set.changes])
        except ToolFailed as error:
            # It is history already. The marks stay, and whoever looks next tries again.
            raise NotOnDisk(
                f"The change is committed but could not be put on disk: {error.message} It will be when that is mended."
            ) from error


def _parents(change_set: ChangeSet) -> set[Place]:
    """The folders that must still be there for what is put into them."""
    parents = {change.after.place.parent for change in change_set.changes if change.after is not None}
    return {parent for parent in parents if not parent.is_root}


def _check_history(change_set: ChangeSet, found: Mapping[Place, File | None]) -> None:
    """Every change must still stand on the version it was planned on."""
    freed = {
        c.before.place for c in change_set.changes if c.before and (not c.after or c.after.place != c.before.place)
    }
    made = {c.after.place for c in change_set.changes if c.after}
    for change in change_set.changes:
        if change.before is not None:
            file = found[change.before.place]
            if file is None or file.id != change.file_id or file.version_id != change.base:
                raise _moved_on(change.before.place)
            if file.pending:
                raise BaseChanged(f"An earlier change of {shown(change.before.place)} is not on disk yet.")
        if change.after is None:
            continue
        if _takes_new_place(change) and found[change.after.place] is not None and change.after.place not in freed:
            raise _moved_on(change.after.place)
        parent = change.after.place.parent
        if not parent.is_root and parent not in made and found[parent] is None:
            raise BaseChanged(f"The folder {shown(parent)} is gone.")


def _check_disk(change_set: ChangeSet, found: Mapping[Place, File | None], disk_of: Disks) -> None:
    """The disk must hold what the history says: what someone did behind its back is never overwritten.

    Between this look and the rename a program outside could still write; that gap cannot be closed from here.
    """
    _require_room(change_set, disk_of)
    _require_trash(change_set, disk_of)
    freed = {change.before.place for change in change_set.changes if change.before}
    displaced = [one.place for one in displaced_by(change_set) if one.kind is NodeKind.FOLDER]
    for change in change_set.changes:
        if change.before is not None:
            disk, file = disk_of(change.before.place), found[change.before.place]
            assert file is not None
            if not still_holds(disk, file, disk.look(change.before.place)):
                raise _moved_on(change.before.place)
            if change.after is None and change.before.kind is NodeKind.FOLDER:
                # One that goes into the trash takes along what the history does not know.
                if any(place == change.before.place or change.before.place.is_below(place) for place in displaced):
                    continue
                inside = {change.before.place.child(entry.name) for entry in disk.entries(change.before.place)}
                if not inside <= freed:
                    raise BaseChanged(f"Something was put into {shown(change.before.place)} meanwhile.")
        if change.after is not None and _takes_new_place(change) and change.after.place not in freed:
            node = look_past_links(disk_of(change.after.place), change.after.place)
            if node is not None and not (node.kind is NodeKind.FOLDER is change.after.kind):
                raise _moved_on(change.after.place)


def _require_room(change_set: ChangeSet, disk_of: Disks) -> None:
    """Better to refuse now than to have committed what the disk cannot take."""
    wanted: dict[Disk, int] = {}
    for change in change_set.changes:
        if change.body is not None and change.after is not None:
            disk = disk_of(change.after.place)
            wanted[disk] = wanted.get(disk, 0) + len(change.body)
    for disk, size in wanted.items():
        if disk.room() < size + _SPARE:
            raise ToolFailed(
                f"The disk is full: {size:,} bytes do not fit. Nothing was changed. Make room, then repeat."
            )


def _require_trash(change_set: ChangeSet, disk_of: Disks) -> None:
    """What is displaced must find its way into the trash, and what returns must lie there."""
    for displaced in displaced_by(change_set):
        if not disk_of.trash.reaches(disk_of(displaced.place)):
            raise ToolFailed(
                f"{shown(displaced.place)} is too large for the history and lies on another file system than the "
                "trash, so it could not be brought back. Nothing was changed. Move it away outside Toolcrib."
            )
    for returned in returned_by(change_set):
        if not disk_of.trash.holds(returned.token):
            raise BaseChanged(
                f"What was to stand at {shown(returned.place)} is not in the trash any more. Nothing was changed."
            )


def _takes_new_place(change: Change) -> bool:
    return change.after is not None and (change.before is None or change.before.place != change.after.place)


def _moved_on(place: Place) -> BaseChanged:
    return BaseChanged(f"{shown(place)} was changed by someone else meanwhile. Read it again, then repeat the call.")

"""The tree as one caller sees it: history and disk merged, guarded place by place. What tools read through."""

import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

from toolcrib.domain.callers import Caller, Role
from toolcrib.domain.errors import BadArguments, Conflict, NotFound, Outdated, OutsideMount
from toolcrib.domain.files import File, NodeKind
from toolcrib.domain.ids import VersionId
from toolcrib.domain.places import Mount, Place, root_of
from toolcrib.storage.blobs import digest
from toolcrib.storage.changes import Settled
from toolcrib.storage.database import Tenant
from toolcrib.storage.files import Home, Seen
from toolcrib.storage.trash import Displaced
from toolcrib.workspace.disk import Disk, several_names
from toolcrib.workspace.drift import look_past_links
from toolcrib.workspace.mounts import Disks
from toolcrib.workspace.nodes import Node
from toolcrib.workspace.past import Past
from toolcrib.workspace.paths import is_sayable, parse_relative, shown
from toolcrib.workspace.search.ripgrep import Ripgrep
from toolcrib.workspace.shelves import Guard, Shelves
from toolcrib.workspace.standing import Reading, Standing, author_in_words, is_stale
from toolcrib.workspace.threads import in_thread, in_thread_if_many
from toolcrib.workspace.trash import Trash, token_of

__all__ = ["Shelves", "Tree"]

# Looking again after someone changed the file under our eyes. More often than this is no accident.
_LOOKS = 20
_LISTING_CHUNK = 5_000
_SMALL = 65_536


class Tree:
    """One caller's view of the workspace. ``needs`` is the role that the call asks of whoever answers for it."""

    def __init__(self, shelves: Shelves, caller: Caller, guard: Guard, *, needs: Role = Role.VIEWER) -> None:
        self._shelves = shelves
        self._caller = caller
        self._guard = guard
        self._needs = needs
        self._tenant = Tenant.of(caller)
        # Where the trees lie, as it was when the caller was let in.
        self._home: Home | None = None
        self.past = Past(shelves, self._tenant, guard, self.find_all, needs=needs)

    @property
    def max_file_bytes(self) -> int:
        return self._shelves.max_file_bytes

    async def admit(self) -> None:
        """Forbidden unless the caller belongs here, in a sufficient role. Every look asks the same on its way."""
        self._home = (await self._look([root_of(Mount.PROJECT)])).home

    async def find(self, place: Place) -> Standing:
        """What stands at a place."""
        return (await self.find_all([place]))[0]

    async def find_all(
        self, places: Sequence[Place], *, aliases: bool = False, past_links: bool = False
    ) -> list[Standing]:
        """What stands at each place, after booking what others did to it on disk.

        With ``aliases`` also of files of several names, for one who made sure that none of them is protected. With
        ``past_links`` a link on the way is no error: then nothing stands there.
        """
        wanted = [self.bound(place) for place in places]
        asked_about: set[Place] = set()
        for _ in range(_LOOKS):
            seen = await self._look(wanted)
            look = partial(_look_all, past_links=past_links)
            nodes = await in_thread_if_many(len(wanted), look, self._disks(seen), wanted, seen.files)
            found = [Standing(*row) for row in zip(wanted, seen.files, nodes, strict=True)]
            stale = [s for s in found if is_stale(s, seen, asked_about)]
            if not stale:
                return found
            self._refuse_aliases(() if aliases else stale)
            asked_about.update(s.place for s in stale)
            await self._shelves.sync.reconcile(self._tenant, [s.place for s in stale])
        raise Conflict(f"{shown(places[0])} keeps changing on disk. Stop the program that writes it, then try again.")

    async def read(self, place: Place) -> Reading:
        """A file's content as it is now. In the usual case one trip to the database and one to the disk."""
        self._guard.check_read(place)
        place = self.bound(place)
        asked_about: set[Place] = set()
        for _ in range(_LOOKS):
            seen = await self._look([place])
            file = seen.files[0]
            if file is not None and file.is_virtual:
                return await self._read_virtual(file)
            if file is None or not file.pending:
                reading = await self._read_here_or_in_thread(self._disks(seen)(place), place, file)
                if reading is not None and not is_stale(reading.standing, seen, asked_about):
                    return await self._trusted(reading)
            asked_about.add(place)
            await self._shelves.sync.reconcile(self._tenant, [place])
        raise Conflict(f"{shown(place)} keeps changing on disk. Stop the program that writes it, then try again.")

    async def require_unchanged(self, reading: Reading, last_read_hash: str | None) -> None:
        """Conflict, saying who changed it, unless the content is still what the caller last read."""
        if last_read_hash is None or last_read_hash.lower() == reading.sha256.hex():
            return
        who = "someone outside Toolcrib"
        if reading.standing.file is not None:
            [version] = await self._shelves.files.versions(self._tenant, reading.standing.file.id, before=None, limit=1)
            who = author_in_words(version, self._caller)
        raise Outdated(
            f"{shown(reading.standing.place)} changed since you read it (by {who}). "
            "Read it again, then repeat the edit."
        )

    async def pour(self, place: Place, take: Callable[[bytes], None]) -> Standing:
        """Hands over a file's content piece by piece, so that its size does not matter."""
        self._guard.check_read(place)
        standing = await self.find(place)
        if standing.is_virtual:
            assert standing.file is not None
            take((await self._read_virtual(standing.file)).body)
            return standing
        disk = await self.disk_at(standing.place)
        await in_thread(_pour, disk.pieces(standing.place, hard_links=self.reads_hard_links), take)
        return standing

    async def lines_matching(
        self, text: str, pattern: str, *, ignore_case: bool, seconds: float, limit: int
    ) -> list[int]:
        """The numbers, from 0, of the lines of a text that a regular expression matches."""
        return await self._shelves.regexes.lines(
            self._tenant, text, pattern, ignore_case=ignore_case, seconds=seconds, limit=limit
        )

    async def refuse_link(self, standing: Standing) -> None:
        """A link is never followed: one that leads out of its mount is a violation, any other merely in the way."""
        if standing.kind is NodeKind.LINK:
            raise (await self.disk_at(standing.place)).link_met(standing.place)

    async def located(self, path: str) -> Place:
        """The place of an absolute path of the machine, if it lies in one of the workspace's two zones."""
        seen = await self._look([root_of(Mount.PROJECT)])
        for mount in (Mount.PROJECT, Mount.CENTRAL):
            found = self._shelves.mounts.inside(
                self._caller.workspace_id, seen.home.tree, mount, posixpath.normpath(path)
            )
            if found is not None:
                return replace(parse_relative(found), mount=mount)
        raise OutsideMount(
            f"{path[:80]!r} is outside the workspace: it lies in neither of its zones. "
            "Write it relative to the project, such as src/main.py, or as @central/plan.md."
        )

    async def take_in(self, places: Sequence[Place], *, whole: bool = False, aliases: bool = False) -> list[Standing]:
        """Brings files that are on disk only into the history, with the folders above them.

        With ``whole``, as things whose content the history does not keep, folders with all that is in them. ``aliases``
        as in ``find_all``.
        """
        self._refuse_aliases(await self.find_all(places) if self._caller.is_agent and not aliases else ())
        wanted = [self.bound(place) for place in places]
        everything = {above for place in wanted for above in (*place.ancestors, place)}
        await self._shelves.sync.reconcile(
            self._tenant, sorted(everything), take_in=True, whole=wanted if whole else ()
        )
        return await self.find_all(places, aliases=aliases)

    async def finish(self) -> None:
        """Waits until everything that was changed is on disk, and brings there what a crash left out."""
        await self._shelves.sync.finish(self._tenant)

    async def listing(self, folder: Place, *, recursive: bool, limit: int | None) -> list[Standing]:
        """What a folder holds, folders first, then by path; ``limit`` is applied after sorting."""
        self._guard.check_read(folder)
        standing = await self.find(folder)
        if not standing.exists and not folder.is_root:
            raise NotFound(f"Folder not found: {shown(folder)}")
        if not standing.is_folder:
            raise BadArguments({"path": f"Not a folder: {shown(folder)}. Use `read` for files."})
        folder = standing.place
        disk = self._disks(await self._look([folder]))(folder)
        others = await self._shelves.files.off_disk(self._tenant, folder, recursive=recursive)
        known = {file.state.place.path: file.state.kind for file in others}
        page = await in_thread(partial(_page, disk, folder, known, recursive=recursive, limit=limit))
        return await self.standings(page)

    async def plans(self) -> list[File]:
        """Every plan in @project, as the history knows it. Who reads one is judged when they do."""
        return await self._shelves.files.plans(self._tenant, root_of(Mount.PROJECT).tree)

    async def is_empty(self, folder: Standing) -> bool:
        """Whether nothing at all stands in a folder, be it something that no listing shows."""
        disk = self._disks(await self._look([folder.place]))(folder.place)
        if await in_thread(disk.entries, folder.place):
            return False
        return not await self._shelves.files.off_disk(self._tenant, folder.place, recursive=True)

    async def places_below(self, folder: Place) -> list[Place]:
        """Every place below a folder where something stands on disk, known or not."""
        folder = self.bound(folder)
        disk = self._disks(await self._look([folder]))(folder)
        return [place for place, _ in await in_thread(lambda: list(disk.walk(folder)))]

    async def known_below(self, folder: Place) -> list[File]:
        """Everything in the history under a folder, after booking what others did to it on disk."""
        files = await self._shelves.files.below(self._tenant, self.bound(folder))
        standings = await self.find_all([file.state.place for file in files]) if files else []
        return [standing.file for standing in standings if standing.file is not None]

    def bound(self, place: Place) -> Place:
        """A place with the caller's own scope where its mount has one."""
        if place.mount is Mount.STATE and not place.scope:
            return replace(place, scope=self._caller.state_scope)
        return place

    # For others of this package, who ask the guard themselves

    async def stage(self, staged: Sequence[Displaced]) -> Trash:
        """Writes down what is about to be moved into the trash, until a change brings it into the tree."""
        await self._shelves.trash.stage(self._tenant, staged, node=self._shelves.node)
        return self._shelves.mounts.trash(self._caller.workspace_id)

    async def author_of(self, version_id: VersionId | None) -> str:
        """Who made a version, in words; what has none came of a program outside."""
        if version_id is None:
            return "a program outside Toolcrib"
        return author_in_words(await self._shelves.files.version(self._tenant, version_id), self._caller)

    async def roots(self, mounts: Iterable[Mount]) -> dict[Mount, tuple[Place, Path]]:
        """Each mount's root, as a place of this caller's and as a directory: for programs that work on it."""
        if self._home is None:
            await self.admit()
        assert self._home is not None
        places = {mount: self.bound(root_of(mount)) for mount in mounts}
        workspace_id, tree = self._caller.workspace_id, self._home.tree
        return {m: (place, self._shelves.mounts.root(workspace_id, tree, place)) for m, place in places.items()}

    async def disks(self) -> Disks:
        return self._disks(await self._look([root_of(Mount.PROJECT)]))

    async def disk_at(self, place: Place) -> Disk:
        return self._disks(await self._look([place]))(place)

    async def off_disk(self, folder: Place) -> list[File]:
        """What is below a folder and may not stand on disk: virtual files, and changes still being applied."""
        return await self._shelves.files.off_disk(self._tenant, folder, recursive=True)

    async def stored(self, file: File) -> bytes:
        """The content of a file's head, whatever the disk holds."""
        assert file.state.sha256 is not None
        return await self._shelves.blobs.get(self._tenant, file.state.sha256)

    @property
    def ripgrep(self) -> Ripgrep:
        return self._shelves.ripgrep

    @property
    def is_an_agents(self) -> bool:
        """Whether an agent looks, whom names and rules bind."""
        return self._caller.is_agent

    @property
    def reads_hard_links(self) -> bool:
        """Not for agents: one of a file's other names may be protected."""
        return not self._caller.is_agent

    def check_read(self, place: Place) -> None:
        self._guard.check_read(place)

    def check_write(self, place: Place) -> None:
        self._guard.check_write(place)

    async def check_write_below(self, folder: Place) -> None:
        """The same for all that a folder holds on disk. Only agents are bound by names, so only they wait for it."""
        if not self._caller.is_agent:
            return
        folder = self.bound(folder)
        disk = self._disks(await self._look([folder]))(folder)
        for place in await in_thread(partial(_names, disk, folder, recursive=True)):
            self._guard.check_write(place)

    def _refuse_aliases(self, standings: Sequence[Standing]) -> None:
        """An agent's call takes no file of several names into the history: one of the others may be protected."""
        for standing in standings:
            node = standing.node
            if self._caller.is_agent and node is not None and node.kind is NodeKind.FILE and node.links > 1:
                raise several_names(standing.place)

    async def _look(self, places: Sequence[Place]) -> Seen:
        seen = await self._shelves.files.look(self._tenant, places, self._needs)
        seen.home.require(self._shelves.node)
        return seen

    def _disks(self, seen: Seen) -> Disks:
        return self._shelves.mounts.disks_of(self._caller.workspace_id, seen.home.tree)

    async def _read_here_or_in_thread(self, disk: Disk, place: Place, file: File | None) -> Reading | None:
        # A small file that was just looked up is read in less time than a thread is woken.
        if file is not None and file.state.size <= _SMALL:
            return self._read_disk(disk, place, file)
        return await in_thread(self._read_disk, disk, place, file)

    def _read_disk(self, disk: Disk, place: Place, file: File | None) -> Reading | None:
        """Reads and compares; nothing if the history does not know this content."""
        try:
            body, node = disk.read(place, limit=self.max_file_bytes, hard_links=not self._caller.is_agent)
        except NotFound:
            if file is None:
                raise
            return None
        standing = Standing(place, file, node)
        if file is None:
            return Reading(standing, body, digest(body))
        if file.fingerprint is not None and file.fingerprint.proves(node.fingerprint) and file.state.sha256:
            return Reading(standing, body, file.state.sha256)
        if token_of(file.state) is not None:
            same = file.fingerprint is not None and file.fingerprint.looks_like(node.fingerprint)
            return Reading(standing, body, digest(body)) if same else None
        found = digest(body)
        same = found == file.state.sha256 and node.mode == file.state.mode
        return Reading(standing, body, found) if same else None

    async def _trusted(self, reading: Reading) -> Reading:
        """Remembers a fingerprint that was found right by reading, so that the next look need not read."""
        file, node = reading.standing.file, reading.standing.node
        if file and node and not (file.fingerprint and file.fingerprint.proves(node.fingerprint)):
            seen = Settled(file.id, file.version_id, node.fingerprint)
            await self._shelves.changes.remember(self._tenant, [seen])
        return reading

    async def _read_virtual(self, file: File) -> Reading:
        assert file.state.sha256 is not None
        body = await self._shelves.blobs.get(self._tenant, file.state.sha256)
        return Reading(Standing(file.state.place, file, None), body, file.state.sha256)

    async def standings(self, places: Sequence[Place], *, nodes_of_all: bool = False) -> list[Standing]:
        """What is known of places that were just listed. The disk is asked only of what the history does not know."""
        found: list[Standing] = []
        for start in range(0, len(places), _LISTING_CHUNK):
            chunk = places[start : start + _LISTING_CHUNK]
            seen = await self._look(chunk)
            unknown = [
                None if file and not nodes_of_all else place for place, file in zip(chunk, seen.files, strict=True)
            ]
            nodes = await in_thread(_look_some, self._disks(seen), unknown)
            found += [Standing(*row) for row in zip(chunk, seen.files, nodes, strict=True)]
        # What vanished between the names and the look is simply not there any more.
        return [standing for standing in found if standing.exists]


def _pour(pieces: Iterable[bytes], take: Callable[[bytes], None]) -> None:
    for piece in pieces:
        take(piece)


def _look_all(
    disk_of: Disks, places: Sequence[Place], files: Sequence[File | None], *, past_links: bool
) -> list[Node | None]:
    look = look_past_links if past_links else Disk.look
    return [
        None if file is not None and file.is_virtual else look(disk_of(place), place)
        for place, file in zip(places, files, strict=True)
    ]


def _look_some(disk_of: Disks, places: Sequence[Place | None]) -> list[Node | None]:
    return [None if place is None else disk_of(place).look(place) for place in places]


def _page(disk: Disk, folder: Place, known: dict[str, NodeKind], *, recursive: bool, limit: int | None) -> list[Place]:
    """The first places of a listing, folders first. Only of those is it asked whether they can be named."""
    found = {path: kind for path, _, kind in disk.names(folder, recursive=recursive) if kind is not None}
    kinds = known | found
    folders = sorted(path for path, kind in kinds.items() if kind is NodeKind.FOLDER)
    others = sorted(path for path, kind in kinds.items() if kind is not NodeKind.FOLDER)
    places = (Place(folder.mount, path, folder.scope) for path in chain(folders, others))
    depth = len(folder.parts)
    sayable = (place for place in places if all(map(is_sayable, place.parts[depth:])))
    return list(islice(sayable, min(limit, len(kinds)) if limit else None))


def _names(disk: Disk, folder: Place, *, recursive: bool) -> dict[Place, NodeKind]:
    found = disk.walk(folder) if recursive else ((folder.child(e.name), e) for e in disk.entries(folder))
    # What no path language can say cannot be asked for either: special files, and names that are not text.
    depth = len(folder.parts)
    return {
        place: entry.kind
        for place, entry in found
        if entry.kind is not None and all(map(is_sayable, place.parts[depth:]))
    }

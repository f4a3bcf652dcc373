"""A program's stay on the live tree: the tree is taken in before, and what changed is booked whenever one looks.

Commits as ``Sync`` does, which also decides whose doing a change was. Runs no program and knows none.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from toolcrib.domain.changes import ChangeSet
from toolcrib.domain.errors import TooLarge
from toolcrib.domain.files import File
from toolcrib.domain.places import Mount, Place
from toolcrib.storage.database import Tenant
from toolcrib.storage.files import Files
from toolcrib.workspace.census import Census
from toolcrib.workspace.mounts import Disks
from toolcrib.workspace.nodes import Node
from toolcrib.workspace.standing import looks_different
from toolcrib.workspace.sync import Sync
from toolcrib.workspace.threads import in_thread
from toolcrib.workspace.trash import token_of

# What is taken in before a program may work on a tree: it must be read once, and is held in the database.
MOST_PLACES: Final = 100_000
MOST_BYTES: Final = 1_000_000_000
_AT_ONCE: Final = 1_000
_BYTES_AT_ONCE: Final = 50_000_000


class Stay:
    """The trees below ``roots``, as the history knows them and as they are."""

    def __init__(self, sync: Sync, files: Files, tenant: Tenant, disk_of: Disks, roots: Sequence[Place]) -> None:
        self._sync = sync
        self._files = files
        self._tenant = tenant
        self._disk_of = disk_of
        self._roots = [root for root in roots if root.mount is not Mount.PKG]
        self._census: Census | None = None
        self._looking = asyncio.Lock()

    async def begin(
        self, *, closed: Callable[[Place], bool], max_file_bytes: int, all_were_known: bool = False
    ) -> tuple[Place, ...]:
        """Takes in what the history does not know, so that all can be brought back. Returns what is too large for it.

        What is ``closed`` the program cannot, or may not, change. TooLarge if it is too much. ``all_were_known`` when
        an earlier stay began that came to no good end: then this is its last look.
        """
        files = [file for root in self._roots for file in await self._files.below(self._tenant, root)]
        known = {file.state.place: file for file in files if not file.is_virtual and token_of(file.state) is None}
        # Of what the history does not keep it knows nothing but that it is there.
        whole = {file.state.place for file in files if token_of(file.state) is not None}
        census = self._census = Census(
            self._disk_of,
            self._roots,
            known=known,
            closed=lambda place: place in whole or closed(place),
            max_file_bytes=max_file_bytes,
        )
        counted = await in_thread(census.count)
        different = {place: node for place, node in counted.nodes.items() if _is_news(known.get(place), node)}
        seen = {*counted.nodes, *counted.too_large}
        gone = [place for place in known if place not in seen and not closed(place)]
        _refuse_too_much(different)
        for places in _batches(different):
            await self._sync.reconcile(self._tenant, places, take_in=True, all_were_known=all_were_known)
        for start in range(0, len(gone), _AT_ONCE):
            await self._sync.reconcile(self._tenant, gone[start : start + _AT_ONCE])
        return counted.too_large

    async def look(self) -> tuple[ChangeSet, ...]:
        """Books what changed since the last look. One at a time: each begins where the other ended."""
        assert self._census is not None
        async with self._looking:
            changed = await in_thread(self._census.changed)
            booked: list[ChangeSet] = []
            for start in range(0, len(changed), _AT_ONCE):
                booked += await self._sync.reconcile(
                    self._tenant, changed[start : start + _AT_ONCE], take_in=True, all_were_known=True
                )
            return tuple(booked)


def _is_news(file: File | None, node: Node) -> bool:
    return file is None or looks_different(file, node)


def _refuse_too_much(different: dict[Place, Node]) -> None:
    size = sum(node.fingerprint.size for node in different.values())
    if len(different) > MOST_PLACES or size > MOST_BYTES:
        raise TooLarge(
            f"{len(different):,} files with {size:,} bytes would have to be taken into the history first, so that what "
            f"a background process does can be undone; {MOST_PLACES:,} and {MOST_BYTES:,} are the most. Let a "
            ".gitignore name what can be made again, or run the command with `bash`."
        )


def _batches(different: dict[Place, Node]) -> Iterator[list[Place]]:
    """Few enough at once that their contents fit into memory; folders before what they hold."""
    batch: list[Place] = []
    size = 0
    for place in sorted(different):
        batch.append(place)
        size += different[place].fingerprint.size
        if len(batch) >= _AT_ONCE or size >= _BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch

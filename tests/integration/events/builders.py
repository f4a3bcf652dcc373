"""A session with events, and a subscriber."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.integration.conftest import new_caller
from tests.wait_until import PATIENCE
from toolcrib.core.events import Delta, DeltaType, Event
from toolcrib.core.ids import SessionId, WorkspaceId
from toolcrib.events import Subscription
from toolcrib.settings import Settings
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.events import EventStore
from toolcrib.wiring.tool_runtime import Stores, ToolRuntime, assemble


@dataclass(frozen=True)
class ChatFixture:
    """A session of a new workspace."""

    engine: ToolRuntime
    tenant: Tenant
    session_id: SessionId

    @property
    def database(self) -> Database:
        return self.engine.database

    @property
    def stores(self) -> Stores:
        return self.engine.stores

    @property
    def key(self) -> tuple[WorkspaceId, SessionId]:
        return self.tenant.workspace_id, self.session_id

    async def happens(self, count: int = 1, *, type: str = "message", **payload: Any) -> int:
        """Commit events in one transaction, as the engine does, and return the number of the last."""
        async with self.database.transaction(self.tenant) as connection:
            seq = 0
            for _ in range(count):
                seq = await EventStore.append_within(connection, self.tenant, Event(self.session_id, type, payload))
        return seq

    async def happens_often(self, count: int) -> None:
        """Commit very many events in one statement."""
        async with self.database.transaction(self.tenant) as connection:
            await connection.execute(
                """
                select toolcrib.append_event(%s, %s, 'message', jsonb_build_object('n', n))
                from generate_series(1, %s) n
                """,
                (*self.key, count),
            )

    def says(self, source: str, text: str, *, offset: int = 0, attempt: int = 0) -> Delta:
        return Delta(*self.key, DeltaType.TOOL, source, text, attempt, offset)


async def new_chat_fixture(database: Database, settings: Settings) -> ChatFixture:
    engine = assemble(settings, database)
    tenant = Tenant.of(await new_caller(engine))
    session = await engine.stores.sessions.create(tenant, title="a story")
    return ChatFixture(engine, tenant, session.id)


class Listener:
    """Reads a subscription item by item, with a timeout."""

    def __init__(self, subscription: Subscription) -> None:
        self._items: AsyncIterator[Event | Delta] = aiter(subscription)

    async def next(self) -> Event | Delta:
        async with asyncio.timeout(PATIENCE):
            return await anext(self._items)

    async def take(self, count: int) -> list[Event | Delta]:
        return [await self.next() for _ in range(count)]

    async def until(self, done: Callable[[Event | Delta], bool]) -> list[Event | Delta]:
        """Return every item up to and including the expected one."""
        items = [await self.next()]
        while not done(items[-1]):
            items.append(await self.next())
        return items

    async def seqs(self, count: int) -> list[int | None]:
        return [item.seq for item in await self.take(count) if isinstance(item, Event)]


def has_seq(seq: int) -> Callable[[Event | Delta], bool]:
    return lambda item: isinstance(item, Event) and item.seq == seq


def text_of(items: Sequence[Event | Delta], source: str) -> str:
    """Return what a client shows of a source: each delta at its position."""
    shown = ""
    for item in items:
        if isinstance(item, Delta) and item.source == source:
            assert item.offset <= len(shown), "there is a gap"
            shown = shown[: item.offset] + item.text
    return shown

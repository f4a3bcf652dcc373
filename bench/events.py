"""Live events: how soon subscribers receive them, and how a stalled subscriber affects the others.

usage: python -m bench events [--seconds 5] [--watchers 50]
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

from bench.engines import bench_settings, new_caller
from bench.servers import fresh_database, url_of
from toolcrib.core.events import Delta, DeltaType, Event
from toolcrib.events import EventHub, Subscription
from toolcrib.runs import durable
from toolcrib.settings import Settings
from toolcrib.storage.database import Database, Tenant
from toolcrib.storage.events import EventStore
from toolcrib.storage.sessions import Session, SessionStore
from toolcrib.wiring.tool_runtime import Stores

RATES = (100, 1_000)
# How much later a fast subscriber may receive events beside a slow one.
AIM_MS = 50


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--watchers", type=int, default=50)
    options = parser.parse_args(argv)
    with fresh_database() as name, tempfile.TemporaryDirectory() as folder:
        durable.upgrade(url_of(name))
        asyncio.run(_measure(bench_settings(name, Path(folder)), options.seconds, options.watchers))


async def _measure(settings: Settings, seconds: float, watchers: int) -> None:
    async with Database.open(settings.database_url, settings.system_url) as database, EventHub.open(database) as live:
        stores = Stores(settings, database)
        bench = _Bench(database, stores.sessions, live, Tenant.of(await new_caller(stores)))
        print("| what | rate/s | subscribers | p50 ms | p99 ms | max ms |\n|---|---|---|---|---|---|")
        for rate in RATES:
            _report("deltas", rate, watchers, await bench.deltas(rate, seconds, watchers))
        alone = await bench.events(seconds, with_a_slow_one=False)
        beside = await bench.events(seconds, with_a_slow_one=True)
        _report("events, alone", len(alone) / seconds, 1, alone)
        _report("events, beside a stalled subscriber", len(beside) / seconds, 2, beside)
        later = max(beside) - statistics.median(alone)
        print(f"\nDelay by a stalled subscriber: at most {later:.1f} ms (target: < {AIM_MS} ms)")


class _Bench:
    def __init__(self, database: Database, sessions: SessionStore, live: EventHub, tenant: Tenant) -> None:
        self._database = database
        self._sessions = sessions
        self._live = live
        self._tenant = tenant

    async def deltas(self, rate: int, seconds: float, watchers: int) -> list[float]:
        """Measure from publishing a delta to its arrival at a subscriber. Deltas are joined for 30 ms on their way."""
        session = await self._session()
        waits: list[float] = []
        watching = [asyncio.create_task(self._hear(session, waits)) for _ in range(watchers)]
        await asyncio.sleep(0.5)
        started, offset = time.perf_counter(), 0
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))
            text = f"{time.perf_counter():.6f} "
            self._live.publish_delta(
                Delta(self._tenant.workspace_id, session.id, DeltaType.TEXT, "message", text, offset=offset)
            )
            offset += len(text)
        await asyncio.sleep(0.2)
        for task in watching:
            task.cancel()
        return waits

    async def _hear(self, session: Session, waits: list[float]) -> None:
        async with self._watch(session) as subscription:
            async for item in subscription:
                assert isinstance(item, Delta)
                now = time.perf_counter()
                # The first of the joined deltas waited longest.
                waits.append(1000 * (now - float(item.text.split(" ", 1)[0])))

    async def events(self, seconds: float, *, with_a_slow_one: bool) -> list[float]:
        """Measure from the commit of an event to its arrival at a fast subscriber."""
        session = await self._session()
        waits: list[float] = []
        async with AsyncExitStack() as opened:
            subscription = await opened.enter_async_context(self._watch(session))
            # Receives one event and no more.
            stuck = await opened.enter_async_context(self._watch(session)) if with_a_slow_one else None
            items = aiter(subscription)
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                async with self._database.transaction(self._tenant) as connection:
                    await EventStore.append_within(connection, self._tenant, Event(session.id, "message", {}))
                committed = time.perf_counter()
                self._live.notify(self._tenant.workspace_id, session.id)
                await anext(items)
                waits.append(1000 * (time.perf_counter() - committed))
                if stuck is not None and len(waits) == 1:
                    await anext(aiter(stuck))
        return waits

    def _watch(self, session: Session) -> AbstractAsyncContextManager[Subscription]:
        return self._live.subscribe(self._tenant, session.id, after=0)

    async def _session(self) -> Session:
        return await self._sessions.create(self._tenant)


def _report(what: str, rate: float, watchers: int, waits: list[float]) -> None:
    ordered = sorted(waits)
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    print(f"| {what} | {rate:.0f} | {watchers} | {p50:.1f} | {p99:.1f} | {ordered[-1]:.1f} |")

"""``python -m bench paused_calls``: time from an approval to its commit, while thousands of calls are paused.

usage: python -m bench paused_calls [--rows 10000] [--decisions 400] [--per-second 20]
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import httpx2
import psycopg

from bench.paused_call_rows import fill
from bench.servers import ServerPair, server_pair, url_of

# Target: 99 of 100 approved calls are done within this time.
AIM_MS = 500
RULES = "trust: guided\ntool_permissions: {write: {allowed: true}}"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--decisions", type=int, default=400)
    parser.add_argument("--per-second", type=float, default=20)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, server_pair(Path(folder)) as servers:
        asyncio.run(_measure(servers, options.rows, options.decisions, options.per_second))


async def _measure(servers: ServerPair, rows: int, decisions: int, per_second: float) -> None:
    base = f"http://127.0.0.1:{servers.ours}/api/v1/workspaces/{servers.workspace}"
    headers = {"Authorization": f"Bearer {servers.token}"}
    async with httpx2.AsyncClient(base_url=base, headers=headers, timeout=60, trust_env=False) as person:
        agent = (await person.post("/agents", json={"name": "a", "definition": RULES})).json()["id"]
        key = (await person.post(f"/agents/{agent}/keys", json={"name": "k"})).json()["secret"]
        fill(url_of(servers.database), servers.workspace, rows)
        asked = [await _ask(person, key, number) for number in range(decisions)]
        began = time.perf_counter()
        tasks = []
        for number, approval in enumerate(asked):
            await asyncio.sleep(max(0, began + number / per_second - time.perf_counter()))
            tasks.append(asyncio.create_task(_decide(person, approval)))
        answered = await asyncio.gather(*tasks)
        done = _carried_out_ms(servers, decisions)
        begin = time.perf_counter()
        page = (await person.get("/paused-calls", params={"limit": 100})).json()
        listed = (time.perf_counter() - begin) * 1000
    assert len(page["items"]) == 100
    _report("responded", answered)
    _report("committed", done)
    print(f"A page of 100 of {rows:,} pending: {listed:.0f} ms. Target: p99 committed < {AIM_MS} ms.")


async def _ask(person: httpx2.AsyncClient, key: str, number: int) -> str:
    call = {"tool": "write", "args": {"path": f"/{number}.txt", "content": f"{number}\n"}}
    response = await person.post("/tools", json=call, headers={"Authorization": f"Bearer {key}"})
    assert response.status_code == 202, response.text
    return str(response.json()["result"]["pause_id"])


async def _decide(person: httpx2.AsyncClient, approval: str) -> float:
    shown = (await person.get(f"/paused-calls/{approval}")).json()
    seen = {"approved": True, "arguments_sha256": shown["arguments_sha256"]}
    begin = time.perf_counter()
    response = await person.post(f"/paused-calls/{approval}/decision", json=seen)
    assert response.status_code == 200, response.text
    return (time.perf_counter() - begin) * 1000


def _carried_out_ms(servers: ServerPair, decisions: int) -> list[float]:
    """Measure from the transaction of the decision to the commit of the call, by the database's clock."""
    with psycopg.connect(url_of(servers.database), autocommit=True) as connection:
        for _ in range(600):
            found = connection.execute(
                """
                select extract(epoch from resumed_at - decided_at) * 1000 from toolcrib.paused_calls
                where state = 'approved' and resumed_at is not null
                """
            ).fetchall()
            if len(found) == decisions:
                return [float(row[0]) for row in found]
            time.sleep(0.05)
    raise SystemExit(f"Not all of {decisions} were committed within half a minute of the last decision.")


def _report(what: str, milliseconds: Sequence[float]) -> None:
    cuts = statistics.quantiles(milliseconds, n=100)
    print(f"{what:12} p50 {cuts[49]:6.1f} ms   p99 {cuts[98]:6.1f} ms   worst {max(milliseconds):6.1f} ms")

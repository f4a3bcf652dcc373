"""LangGraph's agent with its PostgreSQL checkpointer, on the same task as ours. Runs in its own virtualenv.

usage: langgraph_peer.py start|resume TASK FOLDER       one task, or the rest of it; its log is FOLDER/TASK
       langgraph_peer.py measure CROWD                  CPU and WAL of CROWD tasks at once, as JSON

The environment sets the database and the model (PEER_DATABASE, PEER_MODEL_URL, PEER_MODEL) and the durability
(PEER_DURABILITY: async, LangGraph's default, or sync).
"""
# mypy: ignore-errors
# Its imports are not in our own virtualenv.

import asyncio
import json
import os
import sys
import time
import uuid

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

BODY = "The quick brown fox jumps over the lazy dog. " * 45
REQUESTS = 21


def reader(log):
    lines = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if log else None

    async def read(path: str) -> str:
        """Reads one of the sample files."""
        if lines is not None:
            os.write(lines, f"{path} {time.monotonic_ns()}\n".encode())
        return BODY

    return tool("read_sample")(read)


async def main(action, *arguments):
    task_id, folder = arguments if action != "measure" else (None, None)
    log = f"{folder}/{task_id}" if folder else None
    model = ChatOpenAI(
        model=os.environ["PEER_MODEL"],
        base_url=os.environ["PEER_MODEL_URL"],
        api_key="x",
        streaming=True,
        stream_usage=True,
        max_retries=0,
        use_responses_api=False,
    )
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(os.environ["PEER_DATABASE"], min_size=4, max_size=20, kwargs=options) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        agent = create_agent(model, [reader(log)], system_prompt="You are careful.", checkpointer=saver)

        async def task(name, *, begun=False):
            config = {"configurable": {"thread_id": name}, "recursion_limit": 200}
            if begun:
                begun = bool((await agent.aget_state(config)).values)
            given = None if begun else {"messages": [("user", "Read the sample files one by one and report.")]}
            state = await agent.ainvoke(given, config, durability=os.environ.get("PEER_DURABILITY", "async"))
            assert state["messages"][-1].content.endswith("w199")

        if action == "measure":
            print(json.dumps(await measured(task, pool, int(arguments[0]))))
            return
        await task(task_id, begun=action == "resume")
        print("done", flush=True)


async def measured(task, pool, crowd):
    await task(uuid.uuid4().hex)
    rounds = 3 if crowd == 1 else 1
    wal, cpu, began = await wal_bytes(pool), time.process_time(), time.perf_counter()
    for _ in range(rounds):
        await asyncio.gather(*(task(uuid.uuid4().hex) for _ in range(crowd)))
    tasks = rounds * crowd
    return {
        "cpu_ms": 1000 * (time.process_time() - cpu) / tasks / REQUESTS,
        "wall_ms": 1000 * (time.perf_counter() - began) / tasks / REQUESTS,
        "wal_kb": (await wal_bytes(pool) - wal) / tasks / 1024,
    }


async def wal_bytes(pool):
    async with pool.connection() as connection:
        row = await (await connection.execute("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn as at")).fetchone()
    return int(row["at"])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""The bare baseline: the same rows and the same files behind a FastAPI route that checks nothing.

``/read`` does one SELECT. ``/write`` does the inserts of a write in one transaction, and writes the file with a
temporary file, fsync, rename and fsync of the folder.
"""

import asyncio
import hashlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import uvicorn
from fastapi import FastAPI
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel

import bench
from toolcrib.core.ids import new_id

DSN, FOLDER, WORKSPACE, USER, PORT = sys.argv[1:6] if len(sys.argv) > 5 else ("", ".", str(UUID(int=0)), "", "0")


# Plain text in one row, as a read-only route would store it.
_TABLE = """
create table bare_files (workspace_id uuid, path text, id uuid, version_id uuid, lines integer, hash text,
                         updated_at timestamptz, body text, primary key (workspace_id, path))
"""
_ROWS = """
insert into bare_files
select %s, '/read/' || n || '.txt', gen_random_uuid(), gen_random_uuid(), 40, md5(n::text), now(), %s
from generate_series(0, 99) as n
"""


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncConnectionPool(
        DSN, min_size=16, max_size=16, open=False, kwargs={"autocommit": True, "prepare_threshold": 1}
    ) as pool:
        app.state.pool = pool
        await pool.wait()
        async with pool.connection() as connection:
            await connection.execute(_TABLE)
            await connection.execute(_ROWS, (WORKSPACE, bench.BODY))
        app.state.folder = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY)
        yield


app = FastAPI(lifespan=lifespan)


class Wanted(BaseModel):
    path: str


class Given(BaseModel):
    path: str
    content: str


@app.post("/read")
async def read(wanted: Wanted) -> dict[str, Any]:
    async with app.state.pool.connection() as connection:
        cursor = await connection.execute(
            """
            select id, version_id, lines, hash, updated_at, body from bare_files
            where workspace_id = %s and path = %s
            """,
            (WORKSPACE, wanted.path),
        )
        row = await cursor.fetchone()
    return {"path": wanted.path, "content": row[5], "hash": row[3], "total_lines": row[2], "synced": True}


@app.post("/write")
async def write(given: Given) -> dict[str, Any]:
    body = given.content.encode()
    digest = hashlib.sha256(body).digest()
    file_id, version_id, set_id, call_id = new_id(), new_id(), new_id(), new_id()
    size, lines = len(body), body.count(b"\n")
    async with app.state.pool.connection() as connection, connection.transaction():
        await connection.execute(
            """insert into toolcrib.blobs (workspace_id, sha256, size, encoding, body) values (%s, %s, %s, 'raw', %s)
               on conflict do nothing""",
            (WORKSPACE, digest, size, body),
        )
        await connection.execute(
            """insert into toolcrib.change_sets (workspace_id, id, state, author_kind, user_id, call_id, committed_at)
               values (%s, %s, 'committed', 'user', %s, %s, now())""",
            (WORKSPACE, set_id, USER, call_id),
        )
        await connection.execute(
            """insert into toolcrib.files (workspace_id, id, mount, path, parent, type, version_id, version_number,
                   kind, mode, sha256, size, line_count, content_kind)
               values (%s, %s, 'project', %s, '/bare', 'document', %s, 1, 'file', 420, %s, %s, %s, 'text')""",
            (WORKSPACE, file_id, "/bare" + given.path, version_id, digest, size, lines),
        )
        await connection.execute(
            """insert into toolcrib.versions (workspace_id, id, file_id, version_number, change_set_id, deleted, mount,
                   path, kind, mode, sha256, size, line_count, content_kind)
               values (%s, %s, %s, 1, %s, false, 'project', %s, 'file', 420, %s, %s, %s, 'text')""",
            (WORKSPACE, version_id, file_id, set_id, "/bare" + given.path, digest, size, lines),
        )
        await connection.execute(
            """insert into toolcrib.tool_calls (workspace_id, id, user_id, tool, arguments, state, result,
                   change_set_id, ended_at) values (%s, %s, %s, 'write', %s, 'done', %s, %s, now())""",
            (WORKSPACE, call_id, USER, Jsonb({"path": given.path}), Jsonb({"path": given.path}), set_id),
        )
        await connection.execute(
            """insert into toolcrib.audit_records (id, workspace_id, created_at, user_id, call_id, via, tool, decision,
                   rule, arguments, outcome, files, duration_us)
               values (%s, %s, now(), %s, %s, 'rest', 'write', 'allow', 'role', %s, 'done', '[]', 1)""",
            (new_id(), WORKSPACE, USER, call_id, Jsonb({"path": given.path})),
        )
    name = given.path.replace("/", "_")
    await asyncio.to_thread(_store, body, name)
    return {"path": given.path, "file_id": str(file_id), "version_id": str(version_id), "hash": digest.hex()}


def _store(body: bytes, name: str) -> None:
    temporary = f".{name}.tmp"
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=app.state.folder)
    try:
        os.write(file, body)
        os.fsync(file)
    finally:
        os.close(file)
    os.rename(temporary, name, src_dir_fd=app.state.folder, dst_dir_fd=app.state.folder)
    os.fsync(app.state.folder)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(PORT), log_level="error", access_log=False)

"""What is kept, what is deleted, and that garbage collection beside writers loses nothing."""

import asyncio
import time
from datetime import timedelta

import pytest

from tests.integration.conftest import Crib
from toolcrib.storage.blobs import RetentionStore, WorkspaceSize
from toolcrib.workspace.retention_worker import RetentionWorker

pytestmark = pytest.mark.req("WS-6", part="growth: retention and collection")

NOW = timedelta(0)


async def size_of(crib: Crib) -> WorkspaceSize:
    return next(s for s in await RetentionStore(crib.database).sizes() if s.workspace_id == crib.caller.workspace_id)


async def leave_unused(crib: Crib, count: int) -> None:
    """Create contents without references, as a deleted version leaves them."""
    async with crib.database.as_system() as connection:
        await connection.execute(
            """
            insert into toolcrib.blobs (workspace_id, sha256, size, encoding, body)
            select %s, sha256(convert_to(n::text, 'UTF8')), 1, 'raw', '\\x00' from generate_series(1, %s) n
            on conflict do nothing
            """,
            (crib.caller.workspace_id, count),
        )


async def test_figures_count_files_versions_and_contents(crib: Crib) -> None:
    await crib.result("write", path="/a", content="one " * 1000)
    await crib.result("edit", path="/a", insert_line=0, insert_content="x")
    await crib.result("write", path="/b", content="two")
    await crib.result("rm", path="/b")

    size = await size_of(crib)

    assert (size.files, size.deleted_files, size.versions, size.blobs, size.calls) == (1, 1, 4, 3, 4)
    assert size.stored_bytes < size.content_bytes
    assert size.pending == 0


async def test_unreferenced_contents_are_deleted_and_all_others_stay(crib: Crib) -> None:
    await crib.result("write", path="/a", content="kept")
    await leave_unused(crib, 50)

    collected = await RetentionWorker(RetentionStore(crib.database), keep=None).collect(grace=NOW)

    assert collected.blobs >= 50
    assert (await size_of(crib)).blobs == 1
    assert (await crib.result("read", path="/a"))["content"] == "kept"


async def test_young_contents_are_kept(crib: Crib) -> None:
    await leave_unused(crib, 5)
    await RetentionWorker(RetentionStore(crib.database), keep=None).collect()
    assert (await size_of(crib)).blobs == 5


async def test_old_versions_are_deleted_but_never_a_head(crib: Crib) -> None:
    file_id = (await crib.result("write", path="/a", content="one"))["file_id"]
    await crib.result("write", path="/a", content="two", overwrite=True)
    await crib.result("write", path="/gone", content="three")
    await crib.result("rm", path="/gone")
    growth = RetentionStore(crib.database)

    await RetentionWorker(growth, keep=NOW).collect(grace=NOW)

    versions = (await crib.result("file_versions", file_id=file_id))["versions"]
    assert [version["number"] for version in versions] == [2]
    assert (await crib.result("read", path="/a"))["content"] == "two"
    assert (await size_of(crib)).blobs == 1


async def test_file_with_deleted_history_still_works(crib: Crib) -> None:
    await crib.result("write", path="/a", content="one")
    await crib.result("write", path="/a", content="two", overwrite=True)
    await RetentionWorker(RetentionStore(crib.database), keep=NOW).collect(grace=NOW)

    result = await crib.result("write", path="/a", content="one", overwrite=True)

    versions = (await crib.result("file_versions", file_id=result["file_id"]))["versions"]
    assert [version["number"] for version in versions] == [3, 2]


async def write_and_collect(crib: Crib, seconds: float) -> None:
    """Writers that use the same few contents again and again, while everything unused is collected at once."""
    until = time.monotonic() + seconds
    written: dict[str, str] = {}

    async def write(number: int) -> None:
        turn = 0
        while time.monotonic() < until:
            turn += 1
            path, content = f"/{number}", f"content {turn % 3}"
            await crib.result("write", path=path, content=content, overwrite=True)
            written[path] = content

    async def collect() -> None:
        collector = RetentionWorker(RetentionStore(crib.database), keep=NOW)
        while time.monotonic() < until:
            await collector.collect(grace=NOW)

    await asyncio.gather(*(write(number) for number in range(4)), collect())
    for path, content in written.items():
        assert (await crib.result("read", path=path))["content"] == content
    async with crib.database.as_system() as connection:
        cursor = await connection.execute(
            """
            select count(*) from toolcrib.versions v where v.workspace_id = %s and v.sha256 is not null
            and not exists (select from toolcrib.blobs b where b.workspace_id = v.workspace_id and b.sha256 = v.sha256)
            """,
            (crib.caller.workspace_id,),
        )
        assert await cursor.fetchone() == (0,)


async def test_collecting_beside_writers_loses_nothing(crib: Crib) -> None:
    await write_and_collect(crib, 5)


@pytest.mark.long
async def test_collecting_for_a_minute_beside_writers_loses_nothing(crib: Crib) -> None:
    await write_and_collect(crib, 60)

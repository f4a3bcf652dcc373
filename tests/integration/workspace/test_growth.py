"""What is kept, what is deleted, and that garbage collection beside writers loses nothing."""

import asyncio
import time
from datetime import timedelta

import pytest

from tests.integration.conftest import WorkspaceFixture
from toolcrib.storage.blobs import WorkspaceSize
from toolcrib.workspace.retention_worker import RetentionWorker

NOW = timedelta(0)


async def size_of(workspace: WorkspaceFixture) -> WorkspaceSize:
    return next(s for s in await workspace.stores.retention.sizes() if s.workspace_id == workspace.caller.workspace_id)


async def leave_unused(workspace: WorkspaceFixture, count: int) -> None:
    """Create contents without references, as a deleted version leaves them."""
    async with workspace.database.as_system() as connection:
        await connection.execute(
            """
            insert into toolcrib.blobs (workspace_id, sha256, size, encoding, body)
            select %s, sha256(convert_to(n::text, 'UTF8')), 1, 'raw', '\\x00' from generate_series(1, %s) n
            on conflict do nothing
            """,
            (workspace.caller.workspace_id, count),
        )


async def test_figures_count_files_versions_and_contents(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a", content="one " * 1000)
    await workspace.result("edit", path="/a", insert_line=0, insert_content="x")
    await workspace.result("write", path="/b", content="two")
    await workspace.result("rm", path="/b")

    size = await size_of(workspace)

    assert (size.files, size.deleted_files, size.versions, size.blobs, size.calls) == (1, 1, 4, 3, 4)
    assert size.stored_bytes < size.content_bytes
    assert size.pending == 0


async def test_unreferenced_contents_are_deleted_and_all_others_stay(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a", content="kept")
    await leave_unused(workspace, 50)

    collected = await RetentionWorker(workspace.stores.retention, keep=None).collect(grace=NOW)

    assert collected.blobs >= 50
    assert (await size_of(workspace)).blobs == 1
    assert (await workspace.result("read", path="/a"))["content"] == "kept"


async def test_young_contents_are_kept(workspace: WorkspaceFixture) -> None:
    await leave_unused(workspace, 5)
    await RetentionWorker(workspace.stores.retention, keep=None).collect()
    assert (await size_of(workspace)).blobs == 5


async def test_old_versions_are_deleted_but_never_a_head(workspace: WorkspaceFixture) -> None:
    file_id = (await workspace.result("write", path="/a", content="one"))["file_id"]
    await workspace.result("write", path="/a", content="two", overwrite=True)
    await workspace.result("write", path="/gone", content="three")
    await workspace.result("rm", path="/gone")
    growth = workspace.stores.retention

    await RetentionWorker(growth, keep=NOW).collect(grace=NOW)

    versions = (await workspace.result("file_versions", file_id=file_id))["versions"]
    assert [version["number"] for version in versions] == [2]
    assert (await workspace.result("read", path="/a"))["content"] == "two"
    assert (await size_of(workspace)).blobs == 1


async def test_file_with_deleted_history_still_works(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a", content="one")
    await workspace.result("write", path="/a", content="two", overwrite=True)
    await RetentionWorker(workspace.stores.retention, keep=NOW).collect(grace=NOW)

    result = await workspace.result("write", path="/a", content="one", overwrite=True)

    versions = (await workspace.result("file_versions", file_id=result["file_id"]))["versions"]
    assert [version["number"] for version in versions] == [3, 2]


async def write_and_collect(workspace: WorkspaceFixture, seconds: float) -> None:
    """Writers that use the same few contents again and again, while everything unused is collected at once."""
    until = time.monotonic() + seconds
    written: dict[str, str] = {}

    async def write(number: int) -> None:
        turn = 0
        while time.monotonic() < until:
            turn += 1
            path, content = f"/{number}", f"content {turn % 3}"
            await workspace.result("write", path=path, content=content, overwrite=True)
            written[path] = content

    async def collect() -> None:
        collector = RetentionWorker(workspace.stores.retention, keep=NOW)
        while time.monotonic() < until:
            await collector.collect(grace=NOW)

    await asyncio.gather(*(write(number) for number in range(4)), collect())
    for path, content in written.items():
        assert (await workspace.result("read", path=path))["content"] == content
    async with workspace.database.as_system() as connection:
        cursor = await connection.execute(
            """
            select count(*) from toolcrib.versions v where v.workspace_id = %s and v.sha256 is not null
            and not exists (select from toolcrib.blobs b where b.workspace_id = v.workspace_id and b.sha256 = v.sha256)
            """,
            (workspace.caller.workspace_id,),
        )
        assert await cursor.fetchone() == (0,)


@pytest.mark.long
async def test_collecting_beside_writers_loses_nothing(workspace: WorkspaceFixture) -> None:
    await write_and_collect(workspace, 5)


@pytest.mark.long
async def test_collecting_for_a_minute_beside_writers_loses_nothing(workspace: WorkspaceFixture) -> None:
    await write_and_collect(workspace, 60)

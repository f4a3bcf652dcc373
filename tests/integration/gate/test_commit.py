"""Between commit and disk: cancelled callers, a workspace that moves to another node, and concurrent writers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import audit_records, rows, trusted
from tests.wait_until import PATIENCE
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.change_sets import Author, ChangeSet, FileChange
from toolcrib.core.errors import Superseded
from toolcrib.core.files import AuthorKind, FileType
from toolcrib.core.ids import FileId, VersionId, new_id
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.workspace.text.content import file_state

A = WorkspacePath(Mount.PROJECT, "/a.txt")


@asynccontextmanager
async def someone_changing(workspace: WorkspaceFixture, path: WorkspacePath) -> AsyncIterator[None]:
    """Hold a path's lock, as a writer does."""
    tenant = workspace.tenant
    async with workspace.stores.changes.lock(tenant, [path]) as locked:
        await locked.lookup([path], WorkspaceRole.MEMBER)
        yield


async def until_someone_waits(workspace: WorkspaceFixture) -> None:
    """Return once a call waits for a lock."""
    async with asyncio.timeout(PATIENCE):
        while True:
            async with workspace.database.as_system() as connection:
                cursor = await connection.execute(
                    """
                    select count(*) from pg_locks
                    where locktype = 'advisory' and not granted
                      and database = (select oid from pg_database where datname = current_database())
                    """
                )
                found = await cursor.fetchone()
            if found and found[0]:
                return


async def until_commits_are_over() -> None:
    """Wait for commits that continue after their callers were cancelled."""
    going = [
        task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__qualname__", "") == "Committer._commit"
    ]
    if going:
        await asyncio.wait(going, timeout=PATIENCE)


async def test_call_cancelled_during_its_commit_completes(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="old\n")
    async with someone_changing(workspace, A):
        call = asyncio.create_task(workspace.call("write", path="/a.txt", content="new\n", overwrite=True))
        await until_someone_waits(workspace)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    await until_commits_are_over()

    assert (workspace.project / "a.txt").read_text() == "new\n"
    read = await workspace.result("read", path="/a.txt")
    assert (read["content"], read["synced"]) == ("new\n", True)
    assert await rows(workspace, "select file_id from toolcrib.pending_applies where workspace_id = %s") == []
    assert [record.outcome for record in await audit_records(workspace) if record.tool == "write"] == ["done", "done"]
    [versions] = await rows(
        workspace,
        "select array_agg(version_number order by version_number) from toolcrib.versions where workspace_id = %s",
    )
    assert versions == ([1, 2],)


async def test_calls_cancelled_at_any_moment_leave_a_consistent_tree(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="0")
    loop = asyncio.get_running_loop()
    for steps in range(24):
        call = asyncio.create_task(workspace.call("write", path="/a.txt", content=str(steps), overwrite=True))
        for _ in range(steps):
            await loop.run_in_executor(None, int)
        call.cancel()
        await asyncio.wait([call])
        await until_commits_are_over()

        on_disk = (workspace.project / "a.txt").read_text()
        assert (await workspace.result("read", path="/a.txt"))["content"] == on_disk
        history = await rows(
            workspace,
            "select author_kind from toolcrib.change_sets where author_kind = 'external' and workspace_id = %s",
        )
        assert history == []
    assert [path.name for path in workspace.project.iterdir()] == ["a.txt"]
    # Every lock was released: the next writer does not wait.
    async with asyncio.timeout(PATIENCE):
        await workspace.result("write", path="/a.txt", content="last", overwrite=True)


@pytest.mark.parametrize("moved", ["home_epoch = home_epoch + 1", "home_node = 'another'"])
async def test_home_that_moves_before_the_commit_fails_it(workspace: WorkspaceFixture, moved: str) -> None:
    tenant, body = workspace.tenant, b"a"
    change = FileChange(FileId(new_id()), VersionId(new_id()), FileType.DOCUMENT, None, None, file_state(A, body), body)
    change_set = ChangeSet(Author(AuthorKind.USER, tenant.user_id), (change,))

    async def commit_late() -> None:
        async with workspace.stores.changes.lock(tenant, [A]) as locked:
            seen = await locked.lookup([A], WorkspaceRole.MEMBER)
            await rows(workspace, f"update toolcrib.workspaces set {moved} where id = %s")
            await locked.commit(change_set, seen.home, node=workspace.settings.node_name)

    with pytest.raises(Superseded):
        await commit_late()

    assert await rows(workspace, "select id from toolcrib.versions where workspace_id = %s") == []
    assert await rows(workspace, "select sha256 from toolcrib.blobs where workspace_id = %s") == []


async def test_of_writers_with_the_same_base_one_succeeds_and_the_others_get_a_conflict(
    workspace: WorkspaceFixture,
) -> None:
    read = await workspace.result("write", path="/a.txt", content="start\n")

    outcomes = await asyncio.gather(
        *(
            workspace.call(
                "edit", path="/a.txt", old_string="start", new_string=f"by {number}", last_read_hash=read["hash"]
            )
            for number in range(8)
        )
    )

    done = [number for number, outcome in enumerate(outcomes) if outcome.succeeded]
    assert len(done) == 1
    assert (workspace.project / "a.txt").read_text() == f"by {done[0]}\n"
    assert {outcome.error.code for outcome in outcomes if outcome.error} == {"CONFLICT"}


async def test_concurrent_edits_of_different_lines_are_all_kept(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/a.txt", content="".join(f"line {n}\n" for n in range(10)))
    agent = await trusted(workspace)

    outcomes = await asyncio.gather(
        *(
            workspace.call("edit", agent, path="/a.txt", old_string=f"line {n}\n", new_string=f"done {n}\n")
            for n in range(10)
        )
    )

    assert all(outcome.succeeded for outcome in outcomes)
    assert (workspace.project / "a.txt").read_text() == "".join(f"done {n}\n" for n in range(10))
    numbers = await rows(workspace, "select version_number from toolcrib.versions where workspace_id = %s")
    assert sorted(number for (number,) in numbers) == list(range(1, 12))

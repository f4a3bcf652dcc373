"""Untracked files: when displaced they go to the trash, and undo restores them or reports why it cannot."""

import asyncio
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from typer.testing import CliRunner

from tests.integration.conftest import WorkspaceFixture, new_caller, new_workspace
from toolcrib.cli import db
from toolcrib.core.callers import Caller
from toolcrib.core.errors import NotFound, TooLarge
from toolcrib.core.files import ContentKind
from toolcrib.core.ids import CallId, new_id
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.policy.authorization import PathGuard
from toolcrib.settings import Settings
from toolcrib.storage.database import Database, Tenant
from toolcrib.wiring.tool_runtime import trash_limits
from toolcrib.workspace.changes.commit import Committer
from toolcrib.workspace.changes.draft import Draft
from toolcrib.workspace.retention_worker import RetentionWorker, TrashCollector
from toolcrib.workspace.sync.path_state import MOST_BYTES
from toolcrib.workspace.tree import WorkspaceTree

LARGE = MOST_BYTES + 1
HEAD = b"the first of very many bytes"


def large(path: Path, head: bytes = HEAD, size: int = LARGE) -> None:
    """Create a sparse file that is too large for the history."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)


def holds(path: Path, head: bytes = HEAD, size: int = LARGE) -> bool:
    with path.open("rb") as file:
        return file.read(len(head)) == head and path.stat().st_size == size


def trash(workspace: WorkspaceFixture) -> list[Path]:
    folder = workspace.project.parent / "trash"
    return sorted(folder.iterdir()) if folder.exists() else []


async def done(workspace: WorkspaceFixture, tool: str, **arguments: object) -> str:
    outcome = await workspace.call(tool, **arguments)
    assert outcome.succeeded, outcome.error
    return str(outcome.call_id)


def bin_of(workspace: WorkspaceFixture) -> TrashCollector:
    return TrashCollector(
        workspace.engine.workspace_services.trash,
        workspace.engine.workspace_services.mounts,
        node=workspace.settings.node_name,
    )


async def expire_all(workspace: WorkspaceFixture) -> None:
    await let_expire(workspace)
    await bin_of(workspace).empty()


async def let_expire(workspace: WorkspaceFixture) -> None:
    async with workspace.database.as_system() as connection:
        await connection.execute(
            "update toolcrib.trash set expires_at = now() where workspace_id = %s", (workspace.caller.workspace_id,)
        )


async def small_trash(database: Database, settings: Settings, most: int) -> WorkspaceFixture:
    """A workspace on its own node, whose trash has a given size."""
    here = settings.model_copy(update={"trash_max_bytes": most})
    return await new_workspace(database, here)


async def test_deleted_file_too_large_for_the_history_is_restored(workspace: WorkspaceFixture) -> None:
    large(workspace.project / "big.bin")
    (workspace.project / "big.bin").chmod(0o640)

    call = await done(workspace, "rm", path="/big.bin")
    assert not (workspace.project / "big.bin").exists()
    assert len(trash(workspace)) == 1
    shown = await workspace.result("undo", calls=[call], dry_run=True)
    result = await workspace.result("undo", calls=[call])

    assert holds(workspace.project / "big.bin")
    assert (workspace.project / "big.bin").stat().st_mode & 0o777 == 0o640
    assert trash(workspace) == []
    assert shown["changes"] == result["changes"]
    assert [(change["path"], change["change"]) for change in result["changes"]] == [("/big.bin", "created")]


async def test_overwritten_file_is_restored_and_displaced_again_by_redo(workspace: WorkspaceFixture) -> None:
    large(workspace.project / "big.bin")

    call = await done(workspace, "write", path="/big.bin", content="small\n", overwrite=True)
    assert (workspace.project / "big.bin").read_text() == "small\n"
    undone = await workspace.result("undo", calls=[call])
    assert holds(workspace.project / "big.bin")
    redone = await workspace.result("undo", calls=[undone["call_id"]])
    assert (workspace.project / "big.bin").read_text() == "small\n"
    await workspace.result("undo", calls=[redone["call_id"]])

    assert holds(workspace.project / "big.bin")
    assert trash(workspace) == []


async def test_moving_touching_and_deleting_it_is_undone_at_once(workspace: WorkspaceFixture) -> None:
    large(workspace.project / "d" / "big.bin")
    calls = [
        await done(workspace, "mkdir", path="/e"),
        await done(workspace, "mv", source="/d/big.bin", destination="/e/moved.bin"),
        await done(workspace, "touch", path="/e/moved.bin"),
        await done(workspace, "mv", source="/e", destination="/f"),
        await done(workspace, "rm", path="/f/moved.bin"),
        await done(workspace, "write", path="/d/big.bin", content="in its place"),
    ]

    result = await workspace.result("undo", calls=calls)

    assert result["conflicts"] == []
    assert holds(workspace.project / "d" / "big.bin")
    assert sorted(path.name for path in workspace.project.rglob("*")) == ["big.bin", "d"]


async def test_two_swapped_files_are_swapped_back(workspace: WorkspaceFixture) -> None:
    large(workspace.project / "a", b"A")
    large(workspace.project / "b", b"B")
    calls = [
        await done(workspace, "mv", source="/a", destination="/t"),
        await done(workspace, "mv", source="/b", destination="/a"),
        await done(workspace, "mv", source="/t", destination="/b"),
    ]
    assert holds(workspace.project / "a", b"B")

    await workspace.result("undo", calls=calls)

    assert holds(workspace.project / "a", b"A")
    assert holds(workspace.project / "b", b"B")
    assert trash(workspace) == []


async def test_folder_that_replaces_another_keeps_its_contents(workspace: WorkspaceFixture) -> None:
    large(workspace.project / "b" / "b", b"B")
    large(workspace.project / "c" / "b" / "a", b"A")
    for path in ("/b/b", "/c/b/a"):
        await done(workspace, "touch", path=path)
    calls = [
        await done(workspace, "mv", source="/c/b", destination="/a"),
        await done(workspace, "mv", source="/b", destination="/c/b"),
    ]

    for _ in range(2):
        undone = await done(workspace, "undo", calls=calls)
        assert holds(workspace.project / "b" / "b", b"B")
        assert holds(workspace.project / "c" / "b" / "a", b"A")

        calls = [await done(workspace, "undo", calls=[undone])]
        assert holds(workspace.project / "c" / "b" / "b", b"B")
        assert holds(workspace.project / "a" / "a", b"A")


async def test_tracked_file_that_grew_too_large_is_still_found_and_deleted(workspace: WorkspaceFixture) -> None:
    await done(workspace, "write", path="/log", content="first\n")
    large(workspace.project / "log")

    info = await workspace.result("file_info", path="/log")
    call = await done(workspace, "rm", path="/log")
    await workspace.result("undo", calls=[call])

    assert info["size"] == LARGE
    assert holds(workspace.project / "log")


async def test_later_change_by_others_is_a_conflict(workspace: WorkspaceFixture) -> None:
    large(workspace.project / "big.bin")
    call = await done(workspace, "mv", source="/big.bin", destination="/moved.bin")
    large(workspace.project / "moved.bin", b"another")

    result = await workspace.result("undo", calls=[call])

    assert [conflict["reason"] for conflict in result["conflicts"]] == ["Changed by someone else."]
    assert holds(workspace.project / "moved.bin", b"another")


async def test_deleted_file_is_listed_and_restored_by_its_id(workspace: WorkspaceFixture) -> None:
    large(workspace.project / "big.bin")
    await done(workspace, "rm", path="/big.bin")

    [deleted] = (await workspace.result("deleted_files"))["files"]
    await workspace.result("file_restore", file_id=deleted["file_id"])

    assert holds(workspace.project / "big.bin")


async def test_undo_reports_an_expired_trash_entry(workspace: WorkspaceFixture) -> None:
    large(workspace.project / "big.bin")
    call = await done(workspace, "rm", path="/big.bin")
    other = await done(workspace, "write", path="/a", content="x")
    await expire_all(workspace)
    assert trash(workspace) == []

    shown = await workspace.result("undo", calls=[call, other], dry_run=True)
    result = await workspace.result("undo", calls=[call, other], force=True)

    assert shown["conflicts"] == result["conflicts"]
    [conflict] = result["conflicts"]
    assert conflict["path"] == "/big.bin"
    assert "has expired" in conflict["reason"]
    assert [change["path"] for change in result["changes"]] == ["/a"]
    [deleted] = [f for f in (await workspace.result("deleted_files"))["files"] if f["path"] == "/big.bin"]
    outcome = await workspace.call("file_restore", file_id=deleted["file_id"])
    assert isinstance(outcome.error, NotFound)
    assert "has expired" in outcome.error.message


async def test_undo_reports_a_manually_emptied_trash(workspace: WorkspaceFixture) -> None:
    large(workspace.project / "big.bin")
    call = await done(workspace, "rm", path="/big.bin")
    trash(workspace)[0].unlink()

    result = await workspace.result("undo", calls=[call])

    assert [conflict["reason"] for conflict in result["conflicts"]] == [
        "Its content is neither in the history nor in the trash."
    ]


async def test_oldest_entries_are_deleted_when_the_trash_is_full(database: Database, settings: Settings) -> None:
    workspace = await small_trash(database, settings, 2 * LARGE)
    calls = []
    for name in ("1", "2", "3"):
        large(workspace.project / name, name.encode())
        calls.append(await done(workspace, "rm", path=f"/{name}"))

    await bin_of(workspace).empty()
    result = await workspace.result("undo", calls=calls)

    assert [conflict["path"] for conflict in result["conflicts"]] == ["/1"]
    assert holds(workspace.project / "2", b"2")
    assert holds(workspace.project / "3", b"3")


@pytest.mark.parametrize("tool", ["rm", "write"])
async def test_file_larger_than_the_trash_stays_at_its_path(database: Database, settings: Settings, tool: str) -> None:
    workspace = await small_trash(database, settings, LARGE - 1)
    large(workspace.project / "big.bin")

    outcome = await workspace.call(
        tool, path="/big.bin", **({} if tool == "rm" else {"content": "x", "overwrite": True})
    )

    assert isinstance(outcome.error, TooLarge)
    assert "could not be restored" in outcome.error.message
    assert holds(workspace.project / "big.bin")
    await done(workspace, "mv", source="/big.bin", destination="/elsewhere.bin")
    assert holds(workspace.project / "elsewhere.bin")


async def test_entries_with_a_shorter_retention_do_not_evict_others(database: Database, settings: Settings) -> None:
    """Only kept entries count: an expired entry, or one that was never kept, takes no space from others."""
    workspace = await small_trash(database, settings, LARGE)
    large(workspace.project / "big.bin")
    call = await done(workspace, "rm", path="/big.bin")
    huge = workspace.project / "ignored" / "huge"
    large(huge, size=2 * LARGE)
    other = await displace(workspace, "/ignored")

    await bin_of(workspace).empty()
    result = await workspace.result("undo", calls=[call, other])

    assert holds(workspace.project / "big.bin")
    [conflict] = result["conflicts"]
    assert conflict["path"] == "/ignored"
    assert "too large for the trash, so it was not stored" in conflict["reason"]


# Ignored files


async def displace(workspace: WorkspaceFixture, *paths: str) -> str:
    """Do what the shell does with ignored files that a command deleted: no tool does it by itself."""
    caller = replace(workspace.caller, call_id=CallId(new_id()))
    tree = WorkspaceTree(workspace.engine.workspace_services, caller, PathGuard(caller, "bash"))
    draft = Draft(tree)
    for path in paths:
        await draft.move_to_trash(await tree.lookup(WorkspacePath(Mount.PROJECT, path)))
    await committer(workspace).commit(Tenant.of(caller), draft.change_set(caller))
    return str(caller.call_id)


def committer(workspace: WorkspaceFixture) -> Committer:
    workspace_services, settings = workspace.engine.workspace_services, workspace.settings
    return Committer(
        workspace_services.changes,
        workspace_services.mounts,
        workspace_services.sync.trees,
        node=settings.node_name,
        trash=trash_limits(settings),
    )


async def test_what_the_same_call_did_to_a_path_counts_when_it_is_moved_to_the_trash(
    workspace: WorkspaceFixture,
) -> None:
    await done(workspace, "write", path="/a.txt", content="a")
    caller = replace(workspace.caller, call_id=CallId(new_id()))
    tree = WorkspaceTree(workspace.engine.workspace_services, caller, PathGuard(caller, "bash"))
    old, new, folder = (WorkspacePath(Mount.PROJECT, path) for path in ("/a.txt", "/b.txt", "/made"))

    created = Draft(tree)
    await created.write(await created.lookup(folder.child("in.txt")), b"x", content=ContentKind.TEXT)
    await created.move_to_trash(await created.lookup(folder))
    moved = Draft(tree)
    await moved.move(await moved.lookup(old), await moved.lookup(new))
    with pytest.raises(NotFound):
        await moved.move_to_trash(await moved.lookup(old))
    [kept] = moved.change_set(caller).changes
    await moved.move_to_trash(await moved.lookup(new))
    [gone] = moved.change_set(caller).changes

    assert created.change_set(caller).changes == ()
    assert [state.path for state in kept.states] == [old, new]
    assert [state.path for state in gone.states] == [old]


async def test_ignored_folder_is_displaced_and_restored_completely(workspace: WorkspaceFixture) -> None:
    modules = workspace.project / "node_modules"
    for name in ("a/index.js", "a/b/c.js", "d.js"):
        (modules / name).parent.mkdir(parents=True, exist_ok=True)
        (modules / name).write_text(name)
    (modules / "bin").symlink_to("a/index.js")
    modules.chmod(0o750)
    await done(workspace, "read", path="/node_modules/d.js")
    await done(workspace, "write", path="/node_modules/a/known.js", content="known")

    call = await displace(workspace, "/node_modules")
    assert not modules.exists()
    result = await workspace.result("undo", calls=[call])

    assert result["conflicts"] == []
    assert (modules / "a/b/c.js").read_text() == "a/b/c.js"
    assert (modules / "a/known.js").read_text() == "known"
    assert (modules / "bin").is_symlink()
    assert modules.stat().st_mode & 0o777 == 0o750
    redone = await workspace.result("undo", calls=[result["call_id"]])
    assert not modules.exists()
    await workspace.result("undo", calls=[redone["call_id"]])
    assert (modules / "a/b/c.js").read_text() == "a/b/c.js"
    assert trash(workspace) == []


async def test_ignored_file_is_displaced_unread_and_can_be_edited_after_restore(workspace: WorkspaceFixture) -> None:
    (workspace.project / ".cache").write_text("one\n")
    call = await displace(workspace, "/.cache")
    assert await stored(workspace) == 0

    await workspace.result("undo", calls=[call])
    assert (await workspace.result("read", path="/.cache"))["content"] == "one\n"
    edited = await done(workspace, "edit", path="/.cache", old_string="one", new_string="two")
    assert (workspace.project / ".cache").read_text() == "two\n"
    await workspace.result("undo", calls=[edited])

    assert (workspace.project / ".cache").read_text() == "one\n"


async def stored(workspace: WorkspaceFixture) -> int:
    sizes = await workspace.stores.retention.sizes()
    return next(size.blobs for size in sizes if size.workspace_id == workspace.caller.workspace_id)


async def test_expired_folder_is_deleted_although_it_is_not_accessible(workspace: WorkspaceFixture) -> None:
    closed = workspace.project / "closed"
    (closed / "in").mkdir(parents=True)
    (closed / "in" / "file").write_text("x")
    (closed / "out").symlink_to("/etc")
    (closed / "in").chmod(0o000)
    await displace(workspace, "/closed")

    await expire_all(workspace)

    assert trash(workspace) == []


# Garbage collection


async def test_versions_of_files_in_the_trash_are_kept(workspace: WorkspaceFixture) -> None:
    large(workspace.project / "big.bin")
    call = await done(workspace, "rm", path="/big.bin")

    await RetentionWorker(workspace.stores.retention, keep=timedelta(0), bin=bin_of(workspace)).collect(
        grace=timedelta(0)
    )
    await workspace.result("undo", calls=[call])

    assert holds(workspace.project / "big.bin")


async def test_operator_empties_the_trash_by_hand(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The command empties the trash of a whole node.
    workspace = await new_workspace(database, settings.model_copy(update={"node_name": f"node-{new_id()}"}))
    large(workspace.project / "big.bin")
    await done(workspace, "rm", path="/big.bin")
    await let_expire(workspace)
    settings = workspace.settings
    for name, value in {
        "DATABASE_URL": settings.database_url,
        "SYSTEM_DATABASE_URL": settings.system_url,
        "JWT_SECRET": settings.jwt_secret.get_secret_value(),
        "AUDIT_SEAL_KEY": "x" * 48,
        "DATA_DIR": str(settings.data_dir),
        "NODE_NAME": settings.node_name,
    }.items():
        monkeypatch.setenv(f"TOOLCRIB_{name}", value)

    said = await asyncio.to_thread(CliRunner().invoke, db.app, ["gc"], catch_exceptions=False)

    assert "and 1 expired trash entries" in said.output
    assert trash(workspace) == []


async def test_undo_to_a_deleted_version_is_rejected_and_deletes_nothing(workspace: WorkspaceFixture) -> None:
    await done(workspace, "write", path="/a", content="one")
    call = await done(workspace, "write", path="/a", content="two", overwrite=True)
    await RetentionWorker(workspace.stores.retention, keep=timedelta(0)).collect(grace=timedelta(0))

    result = await workspace.result("undo", calls=[call])

    assert [conflict["reason"] for conflict in result["conflicts"]] == ["The previous version has expired."]
    assert (workspace.project / "a").read_text() == "two"


async def test_crash_of_the_collector_leaves_nothing_behind(workspace: WorkspaceFixture) -> None:
    large(workspace.project / "big.bin")
    await done(workspace, "rm", path="/big.bin")
    async with workspace.database.as_system() as connection:
        await connection.execute(
            "update toolcrib.trash set expired_at = now() where workspace_id = %s", (workspace.caller.workspace_id,)
        )

    await bin_of(workspace).empty()

    assert trash(workspace) == []
    assert await bin_of(workspace).empty() == 0


@pytest.mark.long
async def test_collecting_beside_writers_loses_nothing_in_the_trash(workspace: WorkspaceFixture) -> None:
    """Each writer displaces and restores its own large file again and again, while the collector deletes all it may."""
    until = time.monotonic() + 4

    async def work(number: int) -> None:
        path, head = workspace.project / f"{number}", f"file {number}".encode()
        large(path, head)
        while time.monotonic() < until:
            call = await done(workspace, "rm", path=f"/{number}")
            await workspace.result("undo", calls=[call])
            assert holds(path, head)

    async def collect() -> None:
        collector = RetentionWorker(workspace.stores.retention, keep=timedelta(0), bin=bin_of(workspace))
        while time.monotonic() < until:
            await collector.collect(grace=timedelta(0))

    await asyncio.gather(*(work(number) for number in range(3)), collect())
    assert trash(workspace) == []


async def test_other_workspaces_do_not_see_the_trash(workspace: WorkspaceFixture) -> None:
    large(workspace.project / "big.bin")
    call = await done(workspace, "rm", path="/big.bin")
    stranger: Caller = await new_caller(workspace.engine)

    outcome = await workspace.call("undo", stranger, calls=[call])
    found = await workspace.engine.workspace_services.trash.find(
        Tenant.of(stranger), [UUID(path.name) for path in trash(workspace)]
    )

    assert isinstance(outcome.error, NotFound)
    assert found == {}

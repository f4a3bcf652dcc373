"""The tree: folders that move, timestamps, listings of any size, and names that cannot be stored."""

import asyncio
import os
from datetime import UTC, datetime

import pytest

from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.builders import audit_records, rows
from tests.integration.workspace.drift_builders import authors, history
from toolcrib.core.callers import WorkspaceRole
from toolcrib.core.events import Event
from toolcrib.storage.events import EventStore


async def test_folder_moves_with_its_tracked_and_untracked_files(workspace: WorkspaceFixture) -> None:
    known = await workspace.result("write", path="/d/e/known.txt", content="known\n")
    (workspace.project / "d" / "e" / "unknown.txt").write_text("unknown\n")
    (workspace.project / "d" / "loose").mkdir()
    (workspace.project / "d" / "loose" / "x.bin").write_bytes(b"\0\1")
    inode = (workspace.project / "d" / "e" / "known.txt").stat().st_ino

    await workspace.result("mv", source="/d", destination="/moved")

    assert [path.name for path in workspace.project.iterdir()] == ["moved"]
    moved = workspace.project / "moved"
    assert (moved / "e" / "known.txt").stat().st_ino == inode
    assert (moved / "e" / "unknown.txt").read_text() == "unknown\n"
    assert (moved / "loose" / "x.bin").read_bytes() == b"\0\1"
    read = await workspace.result("read", path="/moved/e/known.txt")
    assert (read["content"], read["synced"]) == ("known\n", True)
    assert [version["path"] for version in await history(workspace, known["file_id"])] == [
        "/d/e/known.txt",
        "/moved/e/known.txt",
    ]
    assert await authors(workspace, known["file_id"]) == ["user", "user"]
    assert (await workspace.call("ls", path="/d")).error is not None


async def test_untracked_folder_moves_with_its_contents(workspace: WorkspaceFixture) -> None:
    (workspace.project / "d" / "e").mkdir(parents=True)
    (workspace.project / "d" / "e" / "a.txt").write_text("a\n")

    await workspace.result("mv", source="/d", destination="/f")

    assert (workspace.project / "f" / "e" / "a.txt").read_text() == "a\n"
    listed = (await workspace.result("ls", recursive=True))["entries"]
    assert [entry["path"] for entry in listed] == ["/f", "/f/e", "/f/e/a.txt"]


async def test_child_changed_on_disk_is_tracked_before_its_folder_moves(workspace: WorkspaceFixture) -> None:
    child = await workspace.result("write", path="/d/a.txt", content="mine\n")
    (workspace.project / "d" / "a.txt").write_text("theirs\n")

    await workspace.result("mv", source="/d", destination="/e")

    assert await authors(workspace, child["file_id"]) == ["user", "external", "user"]
    assert (await workspace.result("read", path="/e/a.txt"))["content"] == "theirs\n"


async def test_folder_is_not_moved_into_itself_or_onto_another(workspace: WorkspaceFixture) -> None:
    await workspace.result("write", path="/d/a.txt", content="a")
    await workspace.result("mkdir", path="/e/d")

    for destination in ("/d/x", "/d/", "/e/"):
        outcome = await workspace.call("mv", source="/d", destination=destination)
        assert outcome.error is not None, destination
    assert (workspace.project / "d" / "a.txt").read_text() == "a"


async def test_touch_updates_a_files_time_and_creates_a_version_of_the_same_content(
    workspace: WorkspaceFixture,
) -> None:
    made = await workspace.result("write", path="/a.txt", content="a\n")
    path = workspace.project / "a.txt"
    os.utime(path, (0, 0))

    touched = await workspace.result("touch", path="/a.txt")

    assert touched["file_id"] == made["file_id"]
    assert path.stat().st_mtime == pytest.approx(datetime.now(UTC).timestamp(), abs=60)
    assert path.read_text() == "a\n"
    assert {version["hash"] for version in await history(workspace, made["file_id"])} == {made["hash"]}
    *_, record = [record for record in await audit_records(workspace) if record.tool == "touch"]
    assert [file["change"] for file in record.files] == ["touched"]


async def test_touch_creates_an_empty_file_and_updates_a_folders_time(workspace: WorkspaceFixture) -> None:
    await workspace.result("touch", path="/d/e/new.txt")
    os.utime(workspace.project / "d", (0, 0))
    await workspace.result("touch", path="/d")

    assert (workspace.project / "d" / "e" / "new.txt").read_bytes() == b""
    assert (workspace.project / "d").stat().st_mtime > 0
    assert (await workspace.call("touch", path="/")).error is not None


async def test_folder_of_five_thousand_entries_is_listed_up_to_the_limit(workspace: WorkspaceFixture) -> None:
    many = workspace.project / "many"
    many.mkdir()
    for number in range(5_000):
        (many / f"{number:04}.txt").touch()
    await workspace.result("write", path="/many/0001.txt", content="known", overwrite=True)
    await workspace.result("mkdir", path="/many/zz")

    short = (await workspace.result("ls", path="/many"))["entries"]
    some = (await workspace.result("ls", path="/many", limit=200))["entries"]
    whole = (await workspace.result("ls", path="/many", limit=0))["entries"]

    assert [entry["name"] for entry in short] == ["zz", *(f"{number:04}.txt" for number in range(49))]
    assert [entry["synced"] for entry in short[:4]] == [True, False, True, False]
    assert (len(some), len(whole)) == (200, 5_001)
    assert len({entry["path"] for entry in whole}) == 5_001


UNSAYABLE = [
    b"not \xff utf-8",
    b"\xed\xa0\x80 surrogate",
    b"new\nline",
    b"esc\x1b[31m",
    b"del\x7f",
    b"c1\xc2\x85",
    b" led by a blank",
    b"back\\slash",
]


@pytest.mark.parametrize("recursive", [False, True])
async def test_unstorable_names_do_not_break_a_listing(workspace: WorkspaceFixture, recursive: bool) -> None:
    root = os.fsencode(workspace.project)
    for name in UNSAYABLE:
        os.mkdir(os.path.join(root, name))
        with open(os.path.join(root, name, b"inside"), "wb"):
            pass
    os.mkfifo(os.path.join(root, b"fifo"))
    os.symlink(b"target \xff", os.path.join(root, b"link"))
    (workspace.project / "plain.txt").write_text("plain\n")

    listed = (await workspace.result("ls", recursive=recursive))["entries"]

    assert {"/plain.txt", "/link"} <= {entry["path"] for entry in listed}
    assert all(entry["path"].isprintable() for entry in listed)
    assert not [entry for entry in listed if entry["name"] == "inside"]
    assert (await workspace.result("read", path="/plain.txt"))["content"] == "plain\n"


async def test_folder_with_an_unstorable_name_is_moved_completely_and_not_deleted(workspace: WorkspaceFixture) -> None:
    await workspace.result("mkdir", path="/d")
    with open(os.path.join(os.fsencode(workspace.project), b"d", b"\xff"), "wb") as file:
        file.write(b"theirs")

    removed = await workspace.call("rm", path="/d")
    await workspace.result("mv", source="/d", destination="/e")

    assert removed.error is not None
    assert removed.error.code == "CONFLICT"
    assert os.listdir(os.fsencode(workspace.project / "e")) == [b"\xff"]


async def test_usage_counters_equal_what_is_stored(workspace: WorkspaceFixture) -> None:
    made = await workspace.result("write", path="/d/a.txt", content="twelve bytes")
    await workspace.result("write", path="/b.txt", content="twelve bytes")
    await workspace.result("write", path="/b.txt", content="twelve bytes", overwrite=True)
    await workspace.result("write", path="/c.txt", content="other")
    (workspace.project / "disk.txt").write_text("from the disk")
    await workspace.result("touch", path="/disk.txt")
    await workspace.result("rm", path="/d/a.txt")
    await workspace.result("rm", path="/c.txt")
    await workspace.result("file_restore", file_id=made["file_id"])
    await workspace.result("mv", source="/d", destination="/e")
    (workspace.project / "b.txt").unlink()
    await workspace.call("read", path="/b.txt")

    [counted] = await rows(
        workspace,
        "select sum(files)::bigint, sum(versions)::bigint, sum(bytes)::bigint from toolcrib.usage_counters "
        "where workspace_id = %s",
    )
    [(files,)] = await rows(workspace, "select count(*) from toolcrib.files where not deleted and workspace_id = %s")
    [(versions,)] = await rows(workspace, "select count(*) from toolcrib.versions where workspace_id = %s")
    [(stored,)] = await rows(workspace, "select sum(size)::bigint from toolcrib.blobs where workspace_id = %s")
    assert (counted[0], counted[1]) == (files, versions)
    assert counted[2] == stored


async def test_concurrent_events_are_numbered_without_gaps(workspace: WorkspaceFixture) -> None:
    tenant, sessions = workspace.tenant, workspace.stores.sessions
    session = (await sessions.create(tenant, title="talk")).id

    async def write(number: int) -> int | None:
        event = Event(session, "text", {"number": number})
        try:
            async with workspace.database.transaction(tenant, WorkspaceRole.MEMBER) as connection:
                seq = await EventStore.append_within(connection, tenant, event)
                if number % 5 == 0:
                    # Its fact was rolled back, so the event and its number were too.
                    raise LookupError
        except LookupError:
            return None
        return seq

    given = await asyncio.gather(*(write(number) for number in range(50)))

    kept = {seq: number for number, seq in enumerate(given) if seq is not None}
    assert sorted(kept) == list(range(1, 41))
    events = await sessions.events_after(tenant, session, 0, limit=100)
    assert [(event.seq, event.payload["number"]) for event in events] == sorted(kept.items())
    later = await sessions.events_after(tenant, session, 30, limit=5)
    assert [event.seq for event in later] == [31, 32, 33, 34, 35]

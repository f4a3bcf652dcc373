"""The confined disk: what each call does, with openat2 and with the component walk."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import pytest

from tests.wait_until import PATIENCE
from toolcrib.core.errors import (
    BadArguments,
    Conflict,
    NotFound,
    PathOutsideMount,
    SymlinkNotFollowed,
    TooLarge,
    ToolFailed,
)
from toolcrib.core.files import EntryKind
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.workspace.fs.confined_open import has_openat2
from toolcrib.workspace.fs.mount_writer import DirEntry, MountWriter

STRAY = ".~toolcrib-0123456789abcdef.tmp"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    root.mkdir()
    return root


@pytest.fixture(params=[True, False], ids=["openat2", "walk"])
def disk(request: pytest.FixtureRequest, root: Path) -> Iterator[MountWriter]:
    with MountWriter(root, openat2=request.param) as disk:
        yield disk


def at(path: str) -> WorkspacePath:
    return WorkspacePath(Mount.PROJECT, path)


def temporaries(root: Path) -> list[Path]:
    return list(root.rglob(".~toolcrib-*"))


# Reading


def test_stat_of_an_absent_path_is_none(disk: MountWriter, root: Path) -> None:
    (root / "file").touch()

    assert disk.stat(at("/absent")) is None
    assert disk.stat(at("/absent/below")) is None
    assert disk.stat(at("/file/below")) is None


def test_stat_returns_kind_mode_size_and_time(disk: MountWriter, root: Path) -> None:
    (root / "a").write_bytes(b"four")
    (root / "a").chmod(0o640)
    os.utime(root / "a", ns=(0, 1_500_000_000_123_456_789))

    node = disk.stat(at("/a"))

    assert node is not None
    assert (node.kind, node.mode, node.links, node.target) == (EntryKind.FILE, 0o640, 1, None)
    assert node.fingerprint.size == 4
    assert node.fingerprint.inode == (root / "a").stat().st_ino
    assert node.fingerprint.mtime_ns == 1_500_000_000_123_456_789
    assert node.mtime == datetime(2017, 7, 14, 2, 40, 0, 123456, tzinfo=UTC)


def test_stat_distinguishes_a_folder_a_link_and_a_special_file(disk: MountWriter, root: Path) -> None:
    (root / "link").symlink_to("anywhere")
    os.mkfifo(root / "fifo")
    folder, link, fifo = disk.stat(at("/")), disk.stat(at("/link")), disk.stat(at("/fifo"))

    assert folder is not None
    assert folder.kind is EntryKind.FOLDER
    assert link is not None
    assert (link.kind, link.target) == (EntryKind.LINK, "anywhere")
    assert fifo is not None
    assert fifo.kind is None


def test_a_fingerprint_taken_late_enough_proves_that_nothing_changed(disk: MountWriter, root: Path) -> None:
    node = disk.stat(at("/"))
    again = disk.stat(at("/"))

    assert node is not None
    assert again is not None
    fingerprint = node.fingerprint
    assert fingerprint.is_proof_of(again.fingerprint) is (fingerprint.ctime_ns + 20_000_000 < fingerprint.checked_ns)


def test_a_time_beyond_64_bits_is_clamped(disk: MountWriter, root: Path) -> None:
    (root / "future").touch()
    os.utime(root / "future", (0, 14_000_000_000))

    node = disk.stat(at("/future"))

    assert node is not None
    assert node.fingerprint.mtime_ns == 2**63 - 1
    assert node.mtime.year == 2262


def test_a_link_in_the_path_is_named(disk: MountWriter, root: Path) -> None:
    (root / "real").mkdir()
    (root / "real/file").touch()
    (root / "link").symlink_to("real")

    for act in (disk.stat, disk.entries, lambda path: disk.read(path, limit=9)):
        with pytest.raises(SymlinkNotFollowed, match=r"^/link is a symbolic link; links are not followed"):
            act(at("/link/file"))


def test_read_returns_the_bytes_and_the_entry(disk: MountWriter, root: Path) -> None:
    (root / "a").write_bytes(b"\xff\x00\r\n")

    body, node = disk.read(at("/a"), limit=4)

    assert body == b"\xff\x00\r\n"
    assert node.fingerprint.size == 4


def test_reading_an_empty_file_returns_no_bytes(disk: MountWriter, root: Path) -> None:
    (root / "a").touch()

    assert disk.read(at("/a"), limit=0)[0] == b""


def test_reading_more_than_the_limit_reports_size_and_limit(disk: MountWriter, root: Path) -> None:
    (root / "a").write_bytes(b"x" * 5000)

    with pytest.raises(TooLarge, match=r"/a has 5,000 bytes; the limit is 4,999"):
        disk.read(at("/a"), limit=4999)


def test_reading_a_path_that_is_no_file_reports_its_kind(disk: MountWriter, root: Path) -> None:
    (root / "folder").mkdir()
    (root / "file").touch()

    with pytest.raises(NotFound, match="File not found: /absent"):
        disk.read(at("/absent"), limit=9)
    with pytest.raises(NotFound, match="File not found: /file/below"):
        disk.read(at("/file/below"), limit=9)
    with pytest.raises(BadArguments) as refused:
        disk.read(at("/folder"), limit=9)
    assert refused.value.fields == {"path": "Cannot read a folder: /folder"}


def test_entries_lists_a_folder_without_our_temporary_files(disk: MountWriter, root: Path) -> None:
    (root / "file").touch()
    (root / "folder").mkdir()
    (root / "link").symlink_to("file")
    os.mkfifo(root / "fifo")
    (root / STRAY).touch()
    (root / ".~toolcrib-notes.tmp").touch()

    assert sorted(disk.entries(at("/")), key=lambda entry: entry.name) == [
        DirEntry(".~toolcrib-notes.tmp", EntryKind.FILE),
        DirEntry("fifo", None),
        DirEntry("file", EntryKind.FILE),
        DirEntry("folder", EntryKind.FOLDER),
        DirEntry("link", EntryKind.LINK),
    ]


def test_entries_of_a_path_that_is_no_folder_is_an_error(disk: MountWriter, root: Path) -> None:
    (root / "file").touch()

    with pytest.raises(NotFound, match="Folder not found: /absent"):
        disk.entries(at("/absent"))
    with pytest.raises(NotFound, match="Folder not found: /file/below"):
        disk.entries(at("/file/below"))
    with pytest.raises(BadArguments) as refused:
        disk.entries(at("/file"))
    assert refused.value.fields == {"path": "Not a folder: /file"}


def test_walk_lists_every_entry_with_folders_before_their_contents(disk: MountWriter, root: Path) -> None:
    (root / "a/b/c").mkdir(parents=True)
    (root / "a/b/c/file").touch()
    (root / "a/up").symlink_to("..")
    (root / "z").touch()

    paths = [path.path for path, _ in disk.walk(at("/"))]

    assert sorted(paths) == ["/a", "/a/b", "/a/b/c", "/a/b/c/file", "/a/up", "/z"]
    assert paths.index("/a") < paths.index("/a/b") < paths.index("/a/b/c") < paths.index("/a/b/c/file")


def test_walk_of_an_absent_folder_fails_at_once(disk: MountWriter) -> None:
    with pytest.raises(NotFound):
        disk.walk(at("/absent"))


def test_a_tree_deeper_than_path_max_is_walked_and_removed(disk: MountWriter) -> None:
    deepest = at("/" + "/".join(["x" * 200] * 30))
    disk.write(deepest.child("file"), b"deep", mode=0o644)

    found = [path for path, _ in disk.walk(at("/"))]

    assert len(found) == 31
    assert disk.read(deepest.child("file"), limit=4)[0] == b"deep"
    for path in reversed(found):
        disk.remove(path)
    assert disk.entries(at("/")) == []


# Writing


def test_write_creates_a_file_with_its_mode_and_its_parent_folders(disk: MountWriter, root: Path) -> None:
    previous = os.umask(0o077)
    try:
        node = disk.write(at("/a/b/file"), b"body", mode=0o664)
    finally:
        os.umask(previous)

    assert (root / "a/b/file").read_bytes() == b"body"
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0o755
    found = disk.stat(at("/a/b/file"))
    assert found is not None
    assert found.fingerprint == replace(node.fingerprint, checked_ns=found.fingerprint.checked_ns)
    assert (node.kind, node.mode) == (EntryKind.FILE, 0o664)
    assert not temporaries(root)


def test_write_replaces_the_file_and_open_readers_keep_the_old_one(disk: MountWriter, root: Path) -> None:
    (root / "file").write_bytes(b"old")
    with (root / "file").open("rb") as reader:
        disk.write(at("/file"), b"new", mode=0o600)

        assert reader.read() == b"old"
    assert (root / "file").read_bytes() == b"new"


def test_write_breaks_a_hard_link_instead_of_writing_through_it(disk: MountWriter, root: Path) -> None:
    (root / "one").write_bytes(b"old")
    os.link(root / "one", root / "two")

    disk.write(at("/one"), b"new", mode=0o644)

    assert (root / "two").read_bytes() == b"old"


def test_write_over_a_folder_conflicts(disk: MountWriter, root: Path) -> None:
    (root / "folder").mkdir()

    with pytest.raises(Conflict, match="/folder is a directory"):
        disk.write(at("/folder"), b"", mode=0o644)
    assert not temporaries(root)


def test_write_below_a_file_conflicts(disk: MountWriter, root: Path) -> None:
    (root / "file").touch()

    for path in ("/file/x", "/file/x/y"):
        with pytest.raises(Conflict, match="in the way of a directory"):
            disk.write(at(path), b"", mode=0o644)


def test_the_root_itself_cannot_be_written_moved_or_removed(disk: MountWriter) -> None:
    for act in (
        lambda: disk.write(at("/"), b"", mode=0o644),
        lambda: disk.remove(at("/")),
        lambda: disk.make_link(at("/"), "x"),
        lambda: disk.rename(at("/"), at("/x")),
    ):
        with pytest.raises(Conflict):
            act()


def test_a_name_reserved_for_temporary_files_cannot_be_written(disk: MountWriter) -> None:
    for path in (f"/{STRAY}", f"/a/{STRAY}/b"):
        with pytest.raises(BadArguments):
            disk.write(at(path), b"", mode=0o644)


def test_a_failed_write_leaves_the_old_content_and_no_temporary_file(disk: MountWriter, root: Path) -> None:
    (root / "file").write_bytes(b"old")

    with pytest.raises(TypeError):
        disk.write(at("/file"), "not bytes", mode=0o644)  # type: ignore[arg-type]

    assert (root / "file").read_bytes() == b"old"
    assert not temporaries(root)


def test_make_folder_creates_it_and_its_parents(disk: MountWriter, root: Path) -> None:
    node = disk.make_folder(at("/a/b"), mode=0o700)

    assert (node.kind, node.mode) == (EntryKind.FOLDER, 0o700)
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0o755


def test_make_folder_leaves_an_existing_one_unchanged(disk: MountWriter, root: Path) -> None:
    (root / "a").mkdir(mode=0o750)
    (root / "a").chmod(0o750)

    assert disk.make_folder(at("/a"), mode=0o700).mode == 0o750
    assert disk.make_folder(at("/"), mode=0o700).kind is EntryKind.FOLDER


def test_make_folder_over_a_file_conflicts(disk: MountWriter, root: Path) -> None:
    (root / "file").touch()

    with pytest.raises(Conflict):
        disk.make_folder(at("/file"), mode=0o755)


def test_a_new_folder_keeps_the_group_it_inherits(disk: MountWriter, root: Path) -> None:
    root.chmod(0o2755)

    disk.make_folder(at("/a"), mode=0o755)
    disk.set_mode(at("/a"), 0o775)

    assert stat.S_IMODE((root / "a").stat().st_mode) == 0o2775


def test_make_link_creates_a_link_and_replaces_one(disk: MountWriter, root: Path) -> None:
    disk.make_link(at("/a/link"), "../elsewhere")
    node = disk.make_link(at("/a/link"), "/etc/passwd")

    assert (node.kind, node.target) == (EntryKind.LINK, "/etc/passwd")
    assert os.readlink(root / "a/link") == "/etc/passwd"
    assert not temporaries(root)


def test_make_link_over_a_folder_conflicts(disk: MountWriter) -> None:
    disk.make_folder(at("/a"), mode=0o755)

    with pytest.raises(Conflict):
        disk.make_link(at("/a"), "x")


def test_rename_moves_a_folder_with_its_contents(disk: MountWriter, root: Path) -> None:
    disk.write(at("/a/b/file"), b"body", mode=0o644)

    disk.rename(at("/a/b"), at("/c/d"))

    assert (root / "c/d/file").read_bytes() == b"body"
    assert disk.stat(at("/a/b")) is None


def test_rename_moves_a_link_and_not_its_target(disk: MountWriter, root: Path) -> None:
    (root / "file").touch()
    (root / "link").symlink_to("file")

    disk.rename(at("/link"), at("/moved"))

    assert os.readlink(root / "moved") == "file"
    assert (root / "file").exists()


def test_rename_replaces_nothing(disk: MountWriter, root: Path) -> None:
    (root / "one").write_bytes(b"1")
    (root / "two").write_bytes(b"2")

    with pytest.raises(Conflict, match="/two already exists"):
        disk.rename(at("/one"), at("/two"))
    with pytest.raises(Conflict):
        disk.rename(at("/one"), at("/one"))
    assert (root / "two").read_bytes() == b"2"


def test_rename_of_an_absent_path_is_not_found_and_creates_no_folder(disk: MountWriter, root: Path) -> None:
    with pytest.raises(NotFound, match="File not found: /absent"):
        disk.rename(at("/absent"), at("/new/place"))

    assert not (root / "new").exists()


def test_rename_of_a_folder_into_itself_conflicts(disk: MountWriter) -> None:
    disk.make_folder(at("/a"), mode=0o755)

    with pytest.raises(Conflict, match="cannot be moved into itself"):
        disk.rename(at("/a"), at("/a/b"))


def test_set_mode_changes_even_a_file_without_permissions(disk: MountWriter) -> None:
    disk.write(at("/file"), b"", mode=0o000)

    assert disk.set_mode(at("/file"), 0o640).mode == 0o640
    assert disk.set_mode(at("/file"), 0o4755).mode == 0o755


def test_set_times_sets_the_current_time(disk: MountWriter, root: Path) -> None:
    (root / "file").touch()
    os.utime(root / "file", (0, 0))
    before = datetime.now(UTC)

    node = disk.set_times(at("/file"))

    assert abs((node.mtime - before).total_seconds()) < 60


def test_set_mode_and_set_times_fail_for_a_path_that_is_no_file(disk: MountWriter, root: Path) -> None:
    (root / "inside").symlink_to("file")
    (root / "outside").symlink_to("/etc/passwd")
    os.mkfifo(root / "fifo")

    for act in (lambda path: disk.set_mode(path, 0o777), disk.set_times):
        with pytest.raises(NotFound):
            act(at("/absent"))
        with pytest.raises(SymlinkNotFollowed):
            act(at("/inside"))
        with pytest.raises(PathOutsideMount):
            act(at("/outside"))
        with pytest.raises(Conflict):
            act(at("/fifo"))


def test_remove_deletes_a_file_a_link_a_special_file_and_an_empty_folder(disk: MountWriter, root: Path) -> None:
    (root / "file").touch()
    (root / "link").symlink_to("file")
    (root / "folder").mkdir()
    os.mkfifo(root / "fifo")

    for path in ("/link", "/file", "/folder", "/fifo"):
        disk.remove(at(path))

    assert list(root.iterdir()) == []


def test_removing_an_absent_path_is_no_error(disk: MountWriter, root: Path) -> None:
    (root / "file").touch()

    for path in ("/absent", "/absent/below", "/file/below"):
        disk.remove(at(path))


def test_removing_a_folder_that_is_not_empty_conflicts(disk: MountWriter) -> None:
    disk.write(at("/a/b"), b"", mode=0o644)

    with pytest.raises(Conflict, match="The directory /a is not empty"):
        disk.remove(at("/a"))


def test_sweep_removes_temporary_files_directly_in_a_folder_and_nothing_else(disk: MountWriter, root: Path) -> None:
    (root / "a").mkdir()
    for name in (STRAY, ".~toolcrib-notes.tmp", "file", f"a/{STRAY}"):
        (root / name).touch()

    assert disk.sweep(at("/")) == 1
    assert disk.sweep(at("/")) == 0
    assert disk.sweep(at("/absent")) == 0
    assert disk.sweep(at("/file")) == 0
    assert sorted(path.name for path in root.rglob("*")) == [STRAY, ".~toolcrib-notes.tmp", "a", "file"]


# Errors of the operating system


@pytest.mark.parametrize("openat2", [True, False], ids=["openat2", "walk"])
def test_denied_access_is_reported_with_the_remedy_and_without_the_path_on_disk(root: Path, openat2: bool) -> None:
    """In a user namespace without privileges, so that permissions apply even if root runs the tests."""
    (root / "closed/folder").mkdir(parents=True)
    (root / "unread").touch(mode=0o200)
    (root / "closed").chmod(0o000)
    script = f"""
        from pathlib import Path
        import pytest
        from toolcrib.core.errors import ToolFailed
        from toolcrib.core.paths import Mount, WorkspacePath
        from toolcrib.workspace.fs.mount_writer import MountWriter

        def at(path):
            return WorkspacePath(Mount.PROJECT, path)

        disk = MountWriter(Path({str(root)!r}), openat2={openat2})
        for place, act in [
            (at("/closed/folder"), disk.stat),
            (at("/closed"), disk.entries),
            (at("/unread"), lambda place: disk.read(place, limit=99)),
            (at("/closed/new"), lambda place: disk.write(place, b"x", mode=0o644)),
            (at("/closed/folder"), disk.remove),
        ]:
            with pytest.raises(ToolFailed, match=f"denies access to {{place.path}}. Correct its owner") as told:
                act(place)
            assert {str(root)!r} not in str(told.value)
        assert sorted(place.path for place, _ in disk.walk(at("/"))) == ["/closed", "/unread"]
    """
    ran = subprocess.run(
        ["unshare", "-U", sys.executable, "-c", dedent(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    (root / "closed").chmod(0o700)
    assert ran.returncode == 0, ran.stderr


# The writer itself


def test_a_path_that_is_not_normalized_is_outside(disk: MountWriter) -> None:
    for path in ("/..", "/../x", "/a/../b", "/a/./b", "//etc", "/a/", "etc", "/a\0b", ""):
        with pytest.raises(PathOutsideMount):
            disk.stat(at(path))
        with pytest.raises(PathOutsideMount):
            disk.write(at(path), b"", mode=0o644)


def test_a_closed_writer_opens_nothing(root: Path) -> None:
    for openat2 in (True, False):
        disk = MountWriter(root, openat2=openat2)
        disk.close()
        disk.close()

        with pytest.raises(OSError, match="closed"):
            disk.stat(at("/"))


def test_no_descriptor_is_left_open(disk: MountWriter, root: Path) -> None:
    (root / "link").symlink_to("/etc")
    (root / "folder").mkdir()
    before = os.listdir("/proc/self/fd")

    disk.write(at("/a/b/c"), b"body", mode=0o644)
    disk.read(at("/a/b/c"), limit=9)
    disk.rename(at("/a/b"), at("/d/b"))
    disk.set_mode(at("/d"), 0o700)
    disk.make_link(at("/other"), "d")
    assert list(disk.walk(at("/")))
    for refused in (
        lambda: disk.read(at("/link/passwd"), limit=9),
        lambda: disk.write(at("/folder"), b"", mode=0o644),
        lambda: disk.read(at("/folder"), limit=9),
        lambda: disk.write(at("/other/x"), b"", mode=0o644),
    ):
        with pytest.raises((ToolFailed, PathOutsideMount)):
            refused()

    assert os.listdir("/proc/self/fd") == before


def test_openat2_is_available_and_the_default(root: Path) -> None:
    assert has_openat2()
    with MountWriter(root) as disk:
        assert disk.stat(at("/")) is not None

"""Cases 43 to 50: special files, endless files, and full disks."""

import os
import socket
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from threading import Event, Thread

import pytest

from tests.wait_until import PATIENCE
from toolcrib.core.errors import Conflict, TooLarge, ToolFailed
from toolcrib.core.files import EntryKind
from toolcrib.core.paths import Mount, WorkspacePath, is_valid_name
from toolcrib.workspace.fs.mount_writer import MountWriter

WAYS = pytest.mark.parametrize("openat2", [True, False], ids=["openat2", "walk"])


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


def test_case_43_fifo_read_returns_promptly(disk: MountWriter, root: Path) -> None:
    os.mkfifo(root / "fifo")
    errors: list[Exception] = []

    def read() -> None:
        try:
            disk.read(at("/fifo"), limit=99)
        except ToolFailed as error:
            errors.append(error)

    # In a thread, since a read that hangs must fail the test and not block it.
    reader = Thread(target=read, daemon=True)
    reader.start()
    reader.join(timeout=PATIENCE)

    assert not reader.is_alive()
    assert "not a regular file" in str(errors[0])


def test_case_43_fifo_is_not_written_to(disk: MountWriter, root: Path) -> None:
    os.mkfifo(root / "fifo")

    with pytest.raises(Conflict, match="special file"):
        disk.write(at("/fifo"), b"x", mode=0o644)

    assert stat.S_ISFIFO((root / "fifo").stat().st_mode)


@WAYS
def test_case_44_device(openat2: bool) -> None:
    with MountWriter(Path("/dev"), writable=False, openat2=openat2) as disk:
        for path in ("/null", "/zero"):
            node = disk.stat(at(path))
            assert node is not None
            assert node.kind is None
            with pytest.raises(ToolFailed, match="not a regular file"):
                disk.read(at(path), limit=99)


def test_case_45_socket(disk: MountWriter, root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        folder = os.open(root, os.O_PATH)
        # By its descriptor, since a socket address is short and this path may be long.
        listener.bind(f"/proc/self/fd/{folder}/socket")
        os.close(folder)

        with pytest.raises(ToolFailed, match="not a regular file"):
            disk.read(at("/socket"), limit=99)
        with pytest.raises(Conflict, match="special file"):
            disk.write(at("/socket"), b"x", mode=0o644)
        assert [entry.kind for entry in disk.entries(at("/"))] == [None]


def test_case_46_sparse_terabyte(disk: MountWriter, root: Path) -> None:
    with (root / "sparse").open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(TooLarge, match=r"1,099,511,627,776 bytes; the limit is 1,048,576"):
        disk.read(at("/sparse"), limit=1 << 20)


@WAYS
def test_case_47_file_larger_than_its_reported_size_is_read_up_to_the_limit(openat2: bool) -> None:
    """Like every file in /proc: its size is 0, its content is not."""
    with MountWriter(Path("/proc"), writable=False, openat2=openat2) as disk:
        tracemalloc.start()
        with pytest.raises(TooLarge, match="more than 8 bytes"):
            disk.read(at("/version"), limit=8)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 100_000

        body, node = disk.read(at("/version"), limit=1 << 20)

    assert (body, node.fingerprint.size) == (Path("/proc/version").read_bytes(), 0)


def test_case_47_growing_while_read(disk: MountWriter, root: Path) -> None:
    limit = 1 << 20
    done = Event()

    def grow() -> None:
        with (root / "log").open("ab", buffering=0) as log:
            while not done.is_set():
                if log.write(b"x" * 4096) and log.tell() > 2 * limit:
                    log.truncate(0)

    (root / "log").touch()
    writer = Thread(target=grow)
    writer.start()
    try:
        for _ in range(500):
            try:
                body, _node = disk.read(at("/log"), limit=limit)
                assert len(body) <= limit
            except TooLarge:
                pass
    finally:
        done.set()
        writer.join()


@pytest.mark.parametrize(
    "body", [b"\xff\xfe\x00", b"\xef\xbb\xbftext\r\n", b"\xc3\x28", b"\xed\xa0\x80", bytes(range(256))]
)
def test_case_48_bytes_are_kept_unchanged(disk: MountWriter, body: bytes) -> None:
    disk.write(at("/file"), body, mode=0o644)

    assert disk.read(at("/file"), limit=999)[0] == body


def test_case_48_name_that_is_not_unicode_is_listed_and_can_be_deleted(disk: MountWriter, root: Path) -> None:
    (Path(os.fsdecode(bytes(root) + b"/bad\xff\nname"))).touch()

    (entry,) = disk.entries(at("/"))
    assert entry.kind is EntryKind.FILE
    assert not is_valid_name(entry.name)
    disk.remove(at("/").child(entry.name))
    assert disk.entries(at("/")) == []


@pytest.mark.gate_cases(1)
def test_case_49_hundred_thousand_entries(disk: MountWriter, root: Path) -> None:
    folder = os.open(root, os.O_PATH)
    for number in range(100_000):
        os.mknod(f"file-{number}", 0o600 | stat.S_IFREG, dir_fd=folder)
    os.close(folder)

    entries = disk.entries(at("/"))

    assert len(entries) == len({entry.name for entry in entries}) == 100_000
    assert sum(1 for _ in disk.walk(at("/"))) == 100_000


@WAYS
def test_case_50_disk_full(root: Path, openat2: bool) -> None:
    """On a megabyte of memory, mounted in its own namespace, where an ordinary user may mount."""
    script = f"""
        import os, subprocess
        from pathlib import Path
        import pytest
        from toolcrib.core.errors import ToolFailed
        from toolcrib.core.paths import Mount, WorkspacePath
        from toolcrib.workspace.fs.mount_writer import MountWriter

        root = Path({str(root)!r})
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=20", "none", root], check=True)
        file = WorkspacePath(Mount.PROJECT, "/folder/file")
        with MountWriter(root, openat2={openat2}) as disk:
            disk.write(file, b"old", mode=0o640)

            with pytest.raises(ToolFailed, match="The disk is full; /folder/file was not changed. Free some"):
                disk.write(file, b"x" * 2_000_000, mode=0o644)
            assert os.listdir(root / "folder") == ["file"]

            with pytest.raises(ToolFailed, match="The disk is full"):
                for number in range(30):
                    disk.make_folder(WorkspacePath(Mount.PROJECT, f"/{{number}}"), mode=0o755)
            with pytest.raises(ToolFailed, match="The disk is full"):
                disk.write(file, b"new", mode=0o644)

            body, node = disk.read(file, limit=99)
            assert (body, node.mode) == (b"old", 0o640)
            assert os.listdir(root / "folder") == ["file"]
    """
    ran = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", dedent(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr

"""Disk operations of the dialects and the journal: reading files in chunks and appending to logs, below the root."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from toolcrib.core.errors import (
    BadArguments,
    NotFound,
    PathOutsideMount,
    ProtectedPath,
    ReadOnlyMount,
    SymlinkNotFollowed,
    ToolFailed,
)
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.workspace.fs.mount_writer import MountWriter


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def disk(root: Path) -> Iterator[MountWriter]:
    with MountWriter(root) as opened:
        yield opened


def at(path: str) -> WorkspacePath:
    return WorkspacePath(Mount.STATE, path)


def test_file_is_read_in_chunks_that_make_the_complete_content(disk: MountWriter, root: Path) -> None:
    body = os.urandom(2_500_000)
    (root / "a").write_bytes(body)

    pieces = list(disk.pieces(at("/a")))

    assert b"".join(pieces) == body
    assert max(map(len, pieces)) <= 1 << 20
    assert len(pieces) >= 3


def test_only_regular_files_inside_the_root_are_read_in_chunks(disk: MountWriter, root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "file").write_text("x")
    (root / "in").symlink_to("file")
    (root / "folder").mkdir()
    os.mkfifo(root / "pipe")

    for path, error in {
        "/out": PathOutsideMount,
        "/in": SymlinkNotFollowed,
        "/none": NotFound,
        "/folder": BadArguments,
        "/pipe": ToolFailed,
    }.items():
        with pytest.raises(error):
            list(disk.pieces(at(path)))


def test_hard_linked_file_is_read_only_if_hard_links_are_allowed(disk: MountWriter, root: Path) -> None:
    (root / "a").write_text("x")
    os.link(root / "a", root / "b")

    assert list(disk.pieces(at("/a"))) == [b"x"]
    with pytest.raises(ProtectedPath):
        list(disk.pieces(at("/a"), hard_links=False))


def test_log_is_created_appended_to_and_returns_its_length(disk: MountWriter, root: Path) -> None:
    assert disk.append(at("/logs/a.jsonl"), b"one\n") == 4
    assert disk.append(at("/logs/a.jsonl"), b"two\n") == 8
    assert (root / "logs" / "a.jsonl").read_bytes() == b"one\ntwo\n"


def test_lines_of_concurrent_writers_do_not_mix(disk: MountWriter, root: Path) -> None:
    lines = [bytes([65 + number]) * 3_000 + b"\n" for number in range(26)]

    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda line: disk.append(at("/log"), line), lines * 4))

    assert sorted((root / "log").read_bytes().splitlines(keepends=True)) == sorted(lines * 4)


def test_nothing_is_appended_through_links_to_pipes_or_to_read_only_paths(
    disk: MountWriter, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "target").write_text("as it was")
    (root / "link").symlink_to(tmp_path / "target")
    (root / "folder").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")

    for path in ("/link", "/pipe"):
        with pytest.raises(OSError):  # noqa: PT011 - ELOOP and ENXIO, which only the journal sees
            disk.append(at(path), b"x")
    with pytest.raises(PathOutsideMount):
        disk.append(at("/folder/target"), b"x")
    with MountWriter(root, writable=False) as read_only, pytest.raises(ReadOnlyMount):
        read_only.append(at("/log"), b"x")
    assert (tmp_path / "target").read_text() == "as it was"

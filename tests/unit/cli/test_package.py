"""Packs a folder as a package archive."""

from pathlib import Path

import pytest

from toolcrib.cli.package import packed
from toolcrib.core.errors import BadArguments
from toolcrib.workspace.packages.package_archive import read_archive_parts


def test_a_folder_is_packed_without_hidden_files(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "demo", "version": "1"}')
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/guide.md").write_text("# Guide")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("secret")
    (tmp_path / ".env").write_text("secret")

    assert [path for path, _ in read_archive_parts(packed(tmp_path))["files"]] == ["docs/guide.md", "package.json"]


@pytest.mark.parametrize("name", ["link", "docs/link"])
def test_a_link_is_rejected_not_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / name).symlink_to("/etc")

    with pytest.raises(BadArguments, match=r".*"):
        packed(tmp_path)

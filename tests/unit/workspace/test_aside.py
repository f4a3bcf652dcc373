"""Trees that were put aside are kept for their retention, then within bounds, the oldest deleted first."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from toolcrib.core.ids import WorkspaceId, new_id
from toolcrib.workspace.fs.aside import AsideDirectory

NOW = datetime.now(UTC)
SIZE = 100_000


def put(data_dir: Path, *, days: float, size: int = SIZE) -> Path:
    """Put a tree aside some days ago."""
    workspace_id = WorkspaceId(new_id())
    tree = data_dir / "workspaces" / str(workspace_id)
    (tree / "project").mkdir(parents=True)
    (tree / "project/ignored.bin").write_bytes(b"x" * size)
    AsideDirectory(data_dir).put(tree, workspace_id)
    [path] = AsideDirectory(data_dir).of(workspace_id)
    dated = f"{workspace_id}-{NOW - timedelta(days=days):%Y%m%dT%H%M%SZ}-{path.name[-8:]}"
    assert len(dated) == len(path.name)
    return path.rename(path.with_name(dated))


def test_old_trees_are_deleted(tmp_path: Path) -> None:
    put(tmp_path, days=29)
    older, old = put(tmp_path, days=40), put(tmp_path, days=31)
    (tmp_path / "aside/notes-of-an-operator").mkdir()

    assert AsideDirectory(tmp_path).expired(NOW) == [older, old]


def test_oldest_trees_are_deleted_while_they_are_too_large(tmp_path: Path) -> None:
    middle, oldest, newest = put(tmp_path, days=15), put(tmp_path, days=20), put(tmp_path, days=10)

    assert AsideDirectory(tmp_path, most_bytes=10 * SIZE).expired(NOW) == []
    assert AsideDirectory(tmp_path, most_bytes=int(2.5 * SIZE)).expired(NOW) == [oldest]
    assert AsideDirectory(tmp_path, most_bytes=0).expired(NOW) == [oldest, middle, newest]


def test_nothing_is_deleted_within_its_retention(tmp_path: Path) -> None:
    for days in (0, 3, 6.9):
        put(tmp_path, days=days)
    kept = put(tmp_path, days=40)

    assert AsideDirectory(tmp_path, most_bytes=0, keep=timedelta(days=60)).expired(NOW) == []
    assert AsideDirectory(tmp_path, most_bytes=0).expired(NOW) == [kept]


def test_no_tree_is_no_error(tmp_path: Path) -> None:
    aside = AsideDirectory(tmp_path)
    aside.put(tmp_path / "workspaces" / "missing", WorkspaceId(new_id()))

    assert aside.expired(NOW) == aside.of(WorkspaceId(new_id())) == []

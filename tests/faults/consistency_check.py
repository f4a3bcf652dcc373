"""Checks from the outside that history and disk of a workspace agree: by SQL as the owner, and by the file system.

Nothing of the program is used here, so that its own view cannot hide what it did.
"""

import zlib
from collections import defaultdict
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import class_row

TEMPORARY = ".~toolcrib-*.tmp"


@dataclass(frozen=True)
class Row:
    """A version, or a file at its head; ``id`` is the version's."""

    file_id: UUID
    id: UUID
    version_number: int
    deleted: bool
    path: str
    kind: str
    mode: int
    sha256: bytes | None
    parent_id: UUID | None = None
    change_set_id: UUID | None = None
    author_kind: str = ""


@dataclass(frozen=True)
class Workspace:
    """One workspace, by its rows and by its tree."""

    owner_url: str
    id: UUID
    project: Path

    def rows(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.owner_url) as connection:
            return connection.execute(query, {"workspace": self.id, **parameters}).fetchall()

    def heads(self) -> list[Row]:
        """Return every file, deleted ones too, at its head."""
        return self._read(
            """
            select id as file_id, version_id as id, version_number, deleted, path, kind, mode, sha256
            from toolcrib.files where workspace_id = %(workspace)s and mount = 'project' order by path
            """
        )

    def versions(self, path: str | None = None) -> list[Row]:
        """Return every version in order; with ``path``, those of the live file at that path."""
        return self._read(
            """
            select v.file_id, v.id, v.version_number, v.deleted, v.path, v.kind, v.mode, v.sha256, v.parent_id,
                   v.change_set_id, c.author_kind
            from toolcrib.versions v
            join toolcrib.change_sets c on c.workspace_id = v.workspace_id and c.id = v.change_set_id
            where v.workspace_id = %(workspace)s
              and (%(path)s::text is null or v.file_id in (
                  select f.id from toolcrib.files f
                  where f.workspace_id = %(workspace)s and f.mount = 'project' and f.path = %(path)s and not f.deleted))
            order by v.file_id, v.version_number
            """,
            path=path,
        )

    def content(self, digest: bytes) -> bytes:
        [(encoding, body)] = self.rows(
            "select encoding, body from toolcrib.blobs where workspace_id = %(workspace)s and sha256 = %(digest)s",
            digest=digest,
        )
        return zlib.decompress(body) if encoding == "zlib" else bytes(body)

    def live(self) -> dict[str, bytes | None]:
        """Return paths in the history with the hash of their content; None for folders."""
        return {row.path: row.sha256 for row in self.heads() if not row.deleted}

    def assert_true(self, *, external: bool = False) -> None:
        """Check that the history is complete and equals the disk. ``external``: others may have written, too."""
        self._assert_nothing_left_over()
        self._assert_history_is_whole()
        self._assert_change_sets_are_whole()
        self._assert_disk_is_history()
        foreign = [row for row in self.versions() if row.author_kind == "external"]
        assert external or not foreign, f"Booked as someone else's: {foreign}"

    def assert_nothing_twice(self) -> None:
        """Check that each call has at most one record of its success, and one event with its result."""
        twice = self.rows(
            """
            select call_id, count(*) from toolcrib.audit_records
            where workspace_id = %(workspace)s and outcome = 'done' group by 1 having count(*) > 1
            """
        )
        events = self.rows(
            """
            select payload ->> 'toolId', count(*) from toolcrib.events
            where workspace_id = %(workspace)s and type = 'tool-result' group by 1 having count(*) > 1
            """
        )
        assert (twice, events) == ([], [])

    def _assert_nothing_left_over(self) -> None:
        marks = self.rows("select file_id from toolcrib.pending_applies where workspace_id = %(workspace)s")
        strays = list(self.project.rglob(TEMPORARY))
        assert not marks, f"Still to be brought to disk: {marks}"
        assert not strays, f"Left behind: {strays}"

    def _assert_history_is_whole(self) -> None:
        histories: dict[UUID, list[Row]] = defaultdict(list)
        for version in self.versions():
            histories[version.file_id].append(version)
        for head in self.heads():
            history = histories.pop(head.file_id)
            assert [version.version_number for version in history] == list(range(1, len(history) + 1))
            assert history[0].parent_id is None
            for earlier, later in pairwise(history):
                assert later.parent_id == earlier.id
            last = history[-1]
            assert (last.id, last.version_number, last.deleted, last.path, last.kind, last.mode, last.sha256) == (
                head.id, head.version_number, head.deleted, head.path, head.kind, head.mode, head.sha256,
            )  # fmt: skip
        assert histories == {}

    def _assert_change_sets_are_whole(self) -> None:
        """Check that the audit log, the calls and the history agree on every change set: they were written together."""
        result = {
            change_set_id: sorted(((file["path"].removeprefix("@project"), file["after"]) for file in files), key=str)
            for change_set_id, files in self.rows(
                """
                select t.change_set_id, a.files from toolcrib.tool_calls t
                join toolcrib.audit_records a on a.workspace_id = t.workspace_id and a.call_id = t.id
                where t.workspace_id = %(workspace)s and t.change_set_id is not null
                  -- That someone else tried the same and came too late stands in the book, too.
                  and a.files <> '[]'
                """
            )
        }
        found: dict[UUID | None, list[tuple[str, str | None]]] = defaultdict(list)
        for version in self.versions():
            if version.author_kind != "external":
                after = version.sha256.hex() if version.sha256 and not version.deleted else None
                found[version.change_set_id].append((version.path, after))
        wrong = {
            k: (found.get(k), result.get(k)) for k in {*found, *result} if sorted(found[k], key=str) != result.get(k)
        }
        assert not wrong, f"In the history, and in the book: {wrong}"

    def _assert_disk_is_history(self) -> None:
        expected = {row.path: _said(row) for row in self.heads() if not row.deleted}
        found = {f"/{path.relative_to(self.project)}": _seen(path) for path in self.project.rglob("*")}
        wrong = {p: (found.get(p), expected.get(p)) for p in found | expected if found.get(p) != expected.get(p)}
        assert not wrong, f"On disk, and in the history: {wrong}"

    def _read(self, query: str, **parameters: Any) -> list[Row]:
        with psycopg.connect(self.owner_url) as connection, connection.cursor(row_factory=class_row(Row)) as cursor:
            return cursor.execute(query, {"workspace": self.id, **parameters}).fetchall()


def _said(row: Row) -> tuple[str, int, str | None]:
    return row.kind, row.mode, row.sha256.hex() if row.sha256 else None


def _seen(path: Path) -> tuple[str, int, str | None]:
    mode = path.lstat().st_mode & 0o777
    if path.is_dir():
        return "folder", mode, None
    return "file", mode, sha256(path.read_bytes()).hexdigest()

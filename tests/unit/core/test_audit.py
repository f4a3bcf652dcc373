"""What an audit record keeps of a call: everything except contents."""

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.audit import CONTENT_ARGUMENTS, audit_files, redact_content
from toolcrib.core.change_sets import Author, ChangeSet, FileChange
from toolcrib.core.files import AuthorKind, EntryKind, EntryState, FileType
from toolcrib.core.ids import FileId, VersionId, new_id
from toolcrib.core.paths import Mount, WorkspacePath

WORDS = "the launch code is 0000"
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def measured(text: str) -> dict[str, Any]:
    body = text.encode("utf-8", "surrogatepass")
    return {"bytes": len(body), "sha256": sha256(body).hexdigest()}


@pytest.mark.parametrize("name", sorted(CONTENT_ARGUMENTS))
def test_content_becomes_its_size_and_hash(name: str) -> None:
    kept = redact_content({"path": "/a", name: "héllo"})

    assert kept == {"path": "/a", name: measured("héllo")}
    assert kept[name]["bytes"] == 6


def test_the_content_arguments_are_those_of_the_requirement() -> None:
    assert {"content", "old_string", "new_string", "insert_content"} == CONTENT_ARGUMENTS


def test_content_at_any_depth_is_replaced() -> None:
    edits = {"edits": [{"old_string": "a", "new_string": "b"}, {"file": {"content": "c"}}]}

    assert redact_content(edits) == {
        "edits": [{"old_string": measured("a"), "new_string": measured("b")}, {"file": {"content": measured("c")}}]
    }


def test_content_that_is_absent_stays_absent() -> None:
    assert redact_content({"old_string": None, "content": ""}) == {"old_string": None, "content": measured("")}


@pytest.mark.parametrize("value", ["\0", "\ud800", "\ufeff", {"a": ["\ud800"]}, [1, None], 10**30, float("nan")])
def test_content_of_any_type_can_be_hashed(value: object) -> None:
    kept = redact_content({"content": value})["content"]

    assert set(kept) == {"bytes", "sha256"}
    assert kept["bytes"] > 0


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "arguments",
    [
        lambda: {"content": deep(100_000)},
        lambda: {"x": deep(100_000)},
        lambda: {"content": 10**5_000},
        lambda: {"x": [10**200_000]},
    ],
    ids=["deep content", "deep argument", "huge content", "huge argument"],
)
def test_oversized_arguments_are_summarized(arguments: Callable[[], dict[str, Any]]) -> None:
    assert len(json.dumps(redact_content(arguments()))) < 500


@given(values, st.sampled_from(sorted(CONTENT_ARGUMENTS)))
def test_no_part_of_a_content_is_kept(value: Any, name: str) -> None:
    kept = json.dumps(redact_content({"args": [{name: [WORDS, value]}]}))

    assert WORDS not in kept


@given(st.dictionaries(st.sampled_from(["path", "limit", "paths"]), values))
def test_other_arguments_are_kept_unchanged(arguments: dict[str, Any]) -> None:
    assert redact_content(arguments) == arguments


def test_a_record_has_each_files_hashes_before_and_after() -> None:
    a, b = (
        EntryState(WorkspacePath(Mount.PROJECT, path), EntryKind.FILE, 0o644, path.encode() * 16)
        for path in ("/a", "/b")
    )
    folder = EntryState(WorkspacePath(Mount.CENTRAL, "/c"), EntryKind.FOLDER, 0o755)

    def change(before: EntryState | None, after: EntryState | None) -> FileChange:
        return FileChange(FileId(new_id()), VersionId(new_id()), FileType.DOCUMENT, None, before, after)

    changes = (change(None, a), change(a, replace(b, path=a.path)), change(b, None), change(None, folder))

    one, other = (b"/a" * 16).hex(), (b"/b" * 16).hex()
    assert audit_files(ChangeSet(Author(AuthorKind.USER), changes)) == [
        {"path": "@project/a", "change": "created", "before": None, "after": one},
        {"path": "@project/a", "change": "modified", "before": one, "after": other},
        {"path": "@project/b", "change": "deleted", "before": other, "after": None},
        {"path": "@central/c", "change": "created", "before": None, "after": None},
    ]

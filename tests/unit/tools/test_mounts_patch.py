"""Frontmatter changed in place: other fields stay, byte for byte where possible."""

from typing import Any

import pytest

from toolcrib.core.errors import InvalidFrontmatter
from toolcrib.tools.dialects.mounts_dialect import FrontmatterUpdate
from toolcrib.workspace.text.frontmatter_patch import patched

DOCUMENT = """\
---
# Kept by the runtime.
title: "Build it"   # quoted, with care
stepsCompleted:
  - plan
  # the next one took long
  - design
variables:
  team: core
  zeta: 1
currentNodeId: design
updatedAt: 2026-01-03T10:00:00Z
long: a line that goes on and on and on and on and on and on and on and on and on and on and on and on and on
---
# Body

---
stepsCompleted: not this one
"""


def updated(document: str | bytes, **update: Any) -> str:
    given = document.encode() if isinstance(document, str) else document
    return patched(given, FrontmatterUpdate.model_validate(update).plain).decode()


def test_comments_order_quotes_and_the_body_stay() -> None:
    changed = updated(DOCUMENT, stepsCompleted={"append": ["build"]}, currentNodeId={"set": "build"})

    assert changed == DOCUMENT.replace("  - design\n", "  - design\n  - build\n").replace(
        "currentNodeId: design", "currentNodeId: build"
    )


@pytest.mark.parametrize("key", ["stepsCompleted", "artifacts"])
def test_texts_are_appended_once(key: str) -> None:
    document = f"---\n{key}:\n- a\n- b\n---\n"

    assert updated(document, **{key: {"append": ["b", "c", "c", "a"]}}) == f"---\n{key}:\n- a\n- b\n- c\n---\n"


def test_objects_are_appended_every_time() -> None:
    entry = {"choice": "a", "why": "it works"}

    changed = updated("---\nother: 1\n---\n", decisionLog={"append": [entry, entry]})

    assert changed == (
        "---\nother: 1\ndecisionLog:\n  - choice: a\n    why: it works\n  - choice: a\n    why: it works\n---\n"
    )


def test_variables_are_merged_shallowly() -> None:
    document = "---\nvariables:\n  a: {deep: 1}\n  b: 2\n---\n"

    changed = updated(document, variables={"set": {"a": {"other": 2}, "c": [1]}})

    assert changed == "---\nvariables:\n  a:\n    other: 2\n  b: 2\n  c:\n    - 1\n---\n"


def test_an_update_without_changes_keeps_every_byte() -> None:
    document = b"\xef\xbb\xbf---\r\nstepsCompleted:   [ plan ]\r\nvariables: {a:   1}\r\n---\r\nbody\xff\r\n"

    update = {"stepsCompleted": {"append": ["plan"]}, "variables": {"set": {"a": 1}}}

    assert patched(document, update) == document


def test_line_ends_the_byte_order_mark_and_a_binary_body_survive() -> None:
    document = b"\xef\xbb\xbf---\r\na: 1\r\n---\r\nbody \xff\x00\n"

    changed = patched(document, {"updatedAt": {"set": "now"}})

    assert changed == b"\xef\xbb\xbf---\r\na: 1\r\nupdatedAt: now\r\n---\r\nbody \xff\x00\n"


@pytest.mark.parametrize("document", ["", "# Title\n", "text --- text\n"])
def test_a_document_without_frontmatter_gets_it(document: str) -> None:
    assert updated(document, currentNodeId={"set": "n1"}) == f"---\ncurrentNodeId: n1\n---\n{document}"


def test_a_text_that_looks_like_another_type_stays_a_text() -> None:
    changed = updated("---\na: 1\n---\n", updatedAt={"set": "2026-01-03T10:00:00Z"}, currentNodeId={"set": "no"})

    assert updated(changed, updatedAt={"set": "2026-01-03T10:00:00Z"}, currentNodeId={"set": "no"}) == changed


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("a: [1\n", "line "),
        ("a: 1\na: 2\n", "duplicate key"),
        ("- a list\n", "not a mapping of"),
        ("just words\n", "not a mapping of"),
        ("a: " + "[" * 100 + "]" * 100 + "\n", "levels deep"),
        ("a: " + "x" * 70_000 + "\n", "70,004 characters"),
        ("stepsCompleted: one\n", "`stepsCompleted` is not a list"),
        ("variables: [1]\n", "`variables` is not a mapping"),
    ],
)
def test_frontmatter_that_cannot_be_parsed_or_changed_is_an_error_with_a_reason(head: str, words: str) -> None:
    with pytest.raises(InvalidFrontmatter, match=words.replace("[", r"\[")):
        updated(f"---\n{head}---\n", stepsCompleted={"append": ["x"]}, variables={"set": {"a": 1}})


def test_unclosed_frontmatter_is_reported() -> None:
    with pytest.raises(InvalidFrontmatter, match="not closed"):
        updated("---\na: 1\n", currentNodeId={"set": "x"})


def test_frontmatter_that_is_not_text_is_reported() -> None:
    with pytest.raises(InvalidFrontmatter, match="not UTF-8"):
        updated(b"---\na: \xff\n---\n", currentNodeId={"set": "x"})


def nested(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", [nested(5_000), 10**5_000], ids=["nested too deeply", "too many digits"])
def test_a_value_that_yaml_cannot_represent_is_rejected(value: Any) -> None:
    with pytest.raises(InvalidFrontmatter, match="cannot be encoded"):
        updated("---\na: 1\n---\n", variables={"set": {"x": value}})

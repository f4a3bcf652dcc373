"""Plan files: frontmatter is parsed and changed, and everything else stays unchanged."""

import json
import re
from datetime import UTC, datetime
from itertools import chain, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.core.errors import BadArguments, InvalidFrontmatter
from toolcrib.core.paths import Mount, WorkspacePath
from toolcrib.policy.protected_paths import ProtectedPaths
from toolcrib.workspace.text import frontmatter
from toolcrib.workspace.text.plans import (
    MOODS,
    THINGS,
    UNDERTAKINGS,
    PlanStatus,
    composed,
    drawn,
    parsed,
    path_of,
    require_plan_name,
)

NOW = datetime(2025, 1, 15, 10, 30, tzinfo=UTC)
BY_HAND = b"""---
# Ada decides.
owner:   ada        # ask her first
title: 'The old title'  # shown in lists
tags:
    - a
    - "b"
status: draft
due: 2025-02-01
---

# Overview
"""


# Reading


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("closing", [b"---", b"...", b"---  "])
def test_frontmatter_and_body_are_separated(mark: bytes, end: bytes, closing: bytes) -> None:
    head = mark + end.join([b"---", b"title: T", closing, b""])

    plan = parsed(head + b"body\n---\nmore")

    assert (plan.head, plan.metadata, plan.body) == (head, {"title": "T"}, b"body\n---\nmore")


@pytest.mark.parametrize("content", [b"", b"# Overview\n", b"--- \t x\n---\n", b"----\n", b" ---\ntitle: T\n---\n"])
def test_a_plan_without_frontmatter_has_no_metadata(content: bytes) -> None:
    plan = parsed(content)

    assert (plan.head, plan.metadata, plan.body) == (b"", None, content)


def test_values_are_returned_as_written_or_as_json() -> None:
    plan = parsed(
        b"---\ncreated_at: 2025-01-15T10:30:00Z\ndue: 2025-02-01\nn: 1\nbig: 0xffffffffffffffffffff\nnan: .nan\n"
        b"yes: true\nnothing:\n2: two\nlist: [a, {b: c}]\n---\n"
    )

    assert plan.metadata == {
        "created_at": "2025-01-15T10:30:00Z",
        "due": "2025-02-01",
        "n": 1,
        "big": "0xffffffffffffffffffff",
        "nan": "nan",
        "yes": True,
        "nothing": None,
        "2": "two",
        "list": ["a", {"b": "c"}],
    }


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"---\ntitle: T\n", "no later line is `---`"),
        (b"---\ntitle: T\n  status: draft\n---\n", "line 3, column 9"),
        (b"---\ntitle: [a\n---\n", "line 3, column 1: expected ',' or ']'"),
        (b"---\n- a\n- b\n---\n", "expected fields"),
        (b"---\njust words\n---\n", "expected fields"),
        (b"---\ntitle: a\ntitle: b\n---\n", "duplicate key"),
        (b"---\na: &x [1]\nb: *x\n---\n", "aliases"),
        (b"---\na: " + b"[" * 50 + b"]" * 50 + b"\n---\n", "levels deep"),
        (b"---\na: \xff\n---\n", "not UTF-8"),
        (b"---\na: \0\n---\n", "not text"),
        (b'---\na: "\\ud800"\n---\n', "surrogate"),
        (b"---\na: \x07\n---\n", "not YAML"),
        (b"---\na: " + b"9" * 5_000 + b"\n---\n", "not YAML"),
        (b"---\n" + b"#" * 40_000 + b"\n---\n", "the limit is"),
        (b"---\n!!python/object:os.system {}\n---\n", "line 2"),
    ],
)
def test_broken_frontmatter_is_reported_with_the_reason(content: bytes, why: str) -> None:
    with pytest.raises(InvalidFrontmatter) as caught:
        parsed(content)

    assert why in caught.value.message


@given(st.binary(max_size=60).map(lambda inside: b"---\n" + inside + b"\n---\nbody"))
def test_any_frontmatter_is_parsed_or_reported_as_broken(content: bytes) -> None:
    try:
        plan = parsed(content)
    except InvalidFrontmatter:
        return
    assert plan.with_body(plan.body) == content
    json.dumps(plan.metadata, allow_nan=False).encode()


@pytest.mark.parametrize(
    ("said", "when"),
    [
        ("2025-01-15T10:30:00Z", NOW),
        ("2025-01-15 11:30:00+01:00", NOW),
        ("2025-01-15T10:30:00", NOW),
        ("2025-01-15", datetime(2025, 1, 15, tzinfo=UTC)),
        ("yesterday", None),
        ("17", None),
    ],
)
def test_the_creation_time_is_parsed_where_possible(said: str, when: datetime | None) -> None:
    assert parsed(f"---\ncreated_at: {said}\n---\n".encode()).created_at == when


# Writing


def test_a_new_plan_has_title_status_and_time() -> None:
    plan = composed(None, title="Feature Plan", status=PlanStatus.DRAFT, body=b"# Overview", now=NOW)

    assert plan.with_body(plan.body) == (
        b"---\ntitle: Feature Plan\nstatus: draft\ncreated_at: 2025-01-15T10:30:00Z\n---\n# Overview"
    )
    assert plan.metadata == {"title": "Feature Plan", "status": "draft", "created_at": "2025-01-15T10:30:00Z"}


def test_comments_order_and_other_fields_are_kept_byte_for_byte() -> None:
    plan = composed(parsed(BY_HAND), title="New: title", status=PlanStatus.APPROVED, body=b"x", now=NOW)

    assert plan.head == (
        BY_HAND.partition(b"---\n\n")[0]
        .replace(b"'The old title'", b'"New: title"')
        .replace(b"status: draft", b"status: approved")
        + b"created_at: 2025-01-15T10:30:00Z\n---\n"
    )


def test_the_creation_time_survives_a_rewrite() -> None:
    first = composed(None, title="T", status=PlanStatus.DRAFT, body=b"", now=datetime(2024, 1, 1, tzinfo=UTC))

    again = composed(first, title="T", status=PlanStatus.DRAFT, body=b"", now=NOW)

    assert again.head == first.head


def test_a_plan_without_frontmatter_gets_it_when_written() -> None:
    plan = composed(parsed(b"# Old\n"), title="T", status=PlanStatus.ARCHIVED, body=b"# New\n", now=NOW)

    assert plan.metadata == {"title": "T", "status": "archived", "created_at": "2025-01-15T10:30:00Z"}


@pytest.mark.parametrize(
    "before",
    [
        "title:\nstatus: draft\n",
        "title:   # none yet\nstatus: draft\n",
        "title: |\n  a\n  b\nstatus: draft\n",
        "title: >-\n  a\n  b\n\nstatus: draft\n",
        "title: a\n  b\nstatus: draft\n",
        "title: &x a\nstatus: draft\n",
        "status: draft",
        '"title": a\nstatus: draft\n',
        "title: {a: b}\nstatus: draft\n",
        "title:\n  - a\nstatus: draft\n",
        "",
        "# nothing yet\n",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_title_is_replaced_in_every_yaml_style(before: str, end: str) -> None:
    head = f"---\n{before}---\n" if before.endswith("\n") or not before else f"---\n{before}\n---\n"

    after = frontmatter.changed(head.replace("\n", end).encode(), {"title": "T"})

    assert frontmatter.fields_of(after)["title"] == "T"
    assert frontmatter.fields_of(after).get("status") == ("draft" if "draft" in before else None)
    assert after.count(b"\n") == after.count(end.encode())


def test_frontmatter_in_an_unsupported_form_is_an_error_and_unchanged() -> None:
    with pytest.raises(InvalidFrontmatter, match="line"):
        frontmatter.changed(b"---\n{a: b}\n---\n", {"title": "T"})


titles = st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.text(
    st.sampled_from("ab:#'\"\\-? &*!|>%@`{}[],~\n\t\r\x85\u2028\ufeff\0"), min_size=1, max_size=6
)


@settings(deadline=None, max_examples=50)
@given(titles)
def test_any_title_round_trips(title: str) -> None:
    assert frontmatter.fields_of(frontmatter.made({"title": title, "status": "draft"})) == {
        "title": title,
        "status": "draft",
    }
    changed = frontmatter.changed(BY_HAND[: BY_HAND.index(b"\n# Overview")], {"title": title})
    assert frontmatter.fields_of(changed)["title"] == title
    assert all(comment in changed for comment in (b"# Ada decides.\n", b" # ask her first\n", b"  # shown in lists\n"))


def test_a_body_after_a_fence_without_a_line_end_starts_on_a_new_line() -> None:
    assert parsed(b"---\ntitle: T\n---").with_body(b"x") == b"---\ntitle: T\n---\nx"
    assert parsed(b"---\ntitle: T\n---").with_body(b"") == b"---\ntitle: T\n---"


# Names


def test_names_are_three_words() -> None:
    for _ in range(100):
        assert re.fullmatch(r"[a-z]+-[a-z]+-[a-z]+", drawn())


def test_there_are_many_words_and_none_is_protected() -> None:
    lists = (MOODS, THINGS, UNDERTAKINGS)

    assert len(set(chain(*lists))) == sum(map(len, lists)) == 192
    for words in product(MOODS[:4], THINGS, UNDERTAKINGS):
        path = path_of("-".join(words))
        assert ProtectedPaths().protects_writing(path) is None


@pytest.mark.parametrize("path", ["/plans/implementation.md", "/a.plan.txt", "/plans", "/.plan", "/"])
def test_a_plan_ends_with_plan(path: str) -> None:
    with pytest.raises(BadArguments):
        require_plan_name(WorkspacePath(Mount.PROJECT, path))


def test_the_path_of_a_plan_follows_from_its_name() -> None:
    assert path_of("a-b-c") == path_of("a-b-c.plan") == WorkspacePath(Mount.PROJECT, "/plans/a-b-c.plan")

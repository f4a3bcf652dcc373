"""Hunks: any of them can be reverted alone, and those of others are told apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.workspace.text.content import line_count
from toolcrib.workspace.text.hunks import revert_hunks, split_hunks

_LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n", b"\xff\n", b"long line\r\n"]), max_size=30)
_TEXTS = st.builds(lambda lines, end: b"".join(lines) + end, _LINES, st.sampled_from([b"", b"no newline"]))


@given(_TEXTS, _TEXTS)
def test_reverting_every_hunk_gives_the_text_before_and_none_the_text_after(before: bytes, after: bytes) -> None:
    ids = [hunk.id for hunk in split_hunks(before, after)]
    assert len(set(ids)) == len(ids)
    assert revert_hunks(before, after, ids) == before
    assert revert_hunks(before, after, []) == after


@given(_TEXTS, _TEXTS, st.data())
def test_any_hunks_can_be_reverted_and_the_others_stay(before: bytes, after: bytes, data: st.DataObject) -> None:
    hunks = split_hunks(before, after)
    chosen = data.draw(st.lists(st.sampled_from([one.id for one in hunks]), unique=True)) if hunks else []
    merged = revert_hunks(before, after, chosen)
    kept = [hunk for hunk in hunks if hunk.id not in chosen]
    # The same lines as if only the kept hunks had been applied to the text before.
    assert line_count(merged) == line_count(before) + sum(one.added - one.removed for one in kept)
    left = split_hunks(before, merged)
    assert revert_hunks(before, merged, [one.id for one in left]) == before
    remaining = merged.replace(b"\r", b"").split(b"\n")
    for hunk in kept:
        added = [line[1:] for line in hunk.text.splitlines() if line.startswith("+")]
        # Bytes that no text can hold are shown escaped.
        assert all(line.encode() in remaining for line in added if "\\x" not in line and line)


def test_distant_changes_are_separate_hunks_with_their_context() -> None:
    before = b"".join(b"line %d\n" % n for n in range(30))
    after = before.replace(b"line 3\n", b"three\n").replace(b"line 20\n", b"")
    first, second = split_hunks(before, after)
    assert first.text == "@@ -1,7 +1,7 @@\n line 0\n line 1\n line 2\n-line 3\n+three\n line 4\n line 5\n line 6\n"
    assert (first.added, first.removed, second.added, second.removed) == (1, 1, 0, 1)
    assert revert_hunks(before, after, [second.id]) == before.replace(b"line 3\n", b"three\n")


def test_an_unknown_hunk_is_refused() -> None:
    with pytest.raises(KeyError):
        revert_hunks(b"a\n", b"b\n", ["0" * 16])


def test_hunks_of_a_person_are_told_apart_from_the_agents() -> None:
    before = b"1\n2\n3\n4\n5\n"
    agent = b"1\nTWO\n3\n4\n5\n"
    person = b"1\nTWO\n3\nFOUR\n5\n"
    hunks = split_hunks(before, person, [(agent, True), (person, False)])
    assert [hunk.author for hunk in hunks] == ["agent", "others"]
    assert revert_hunks(before, person, [hunks[0].id], [(agent, True), (person, False)]) == b"1\n2\n3\nFOUR\n5\n"


def test_lines_that_both_changed_belong_to_both() -> None:
    steps = [(b"1\nTWO\n3\n", True), (b"1\nTWO!\n3\n", False)]
    [hunk] = split_hunks(b"1\n2\n3\n", b"1\nTWO!\n3\n", steps)
    assert hunk.author == "both"
    steps = [(b"1\nTWO\n3\n", False), (b"1\nagain\n3\n", True)]
    [hunk] = split_hunks(b"1\n2\n3\n", b"1\nagain\n3\n", steps)
    assert hunk.author == "both"


def test_a_line_that_the_agent_removed_beside_a_persons_line_is_the_agents() -> None:
    steps = [(b"1\n3\n4\n", True), (b"1\n3\nfour\n", False)]
    authors = [hunk.author for hunk in split_hunks(b"1\n2\n3\n4\n", b"1\n3\nfour\n", steps)]
    assert authors == ["agent", "others"]

"""Fingerprints: what they prove and what they do not."""

from dataclasses import replace

import pytest

from toolcrib.core.files import FILE_MODE, ContentKind, EntryKind, EntryState, FileType, Fingerprint
from toolcrib.core.paths import Mount, WorkspacePath

NOW = 1_700_000_000_000_000_000
TICK = 20_000_000


def taken(*, after_ns: int) -> Fingerprint:
    """A fingerprint taken this long after the entry's last change."""
    return Fingerprint(inode=7, size=5, mtime_ns=NOW, ctime_ns=NOW, checked_ns=NOW + after_ns)


def test_an_equal_fingerprint_taken_long_after_the_change_proves_no_change() -> None:
    kept = taken(after_ns=10 * TICK)

    assert kept.is_proof_of(replace(kept, checked_ns=NOW + 1_000 * TICK))


@pytest.mark.parametrize("field", ["inode", "size", "mtime_ns", "ctime_ns"])
def test_any_difference_disproves_it(field: str) -> None:
    kept = taken(after_ns=10 * TICK)
    now = replace(kept, **{field: getattr(kept, field) + 1})

    assert not kept.matches(now)
    assert not kept.is_proof_of(now)


@pytest.mark.parametrize(
    ("after_ns", "proved"),
    [(-TICK, False), (0, False), (1, False), (TICK - 1, False), (TICK, False), (TICK + 1, True)],
)
def test_a_fingerprint_taken_within_a_tick_of_the_change_proves_nothing(after_ns: int, proved: bool) -> None:
    kept = taken(after_ns=after_ns)

    assert kept.matches(kept)
    assert kept.is_proof_of(kept) is proved


def test_the_time_of_the_fingerprint_is_no_difference() -> None:
    assert taken(after_ns=0).matches(taken(after_ns=TICK))


STATE = EntryState(WorkspacePath(Mount.PROJECT, "/a"), EntryKind.FILE, FILE_MODE, b"x" * 32, 5, 1)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (replace(STATE, path=WorkspacePath(Mount.CENTRAL, "/b")), True),
        (replace(STATE, content_kind=ContentKind.JSON), True),
        (replace(STATE, kind=EntryKind.LINK), False),
        (replace(STATE, mode=0o755), False),
        (replace(STATE, sha256=b"y" * 32), False),
        (replace(STATE, link_target="b"), False),
    ],
)
def test_two_states_are_equal_if_bytes_mode_and_kind_agree(other: EntryState, same: bool) -> None:
    assert STATE.holds_same_as(other) is same


def test_there_are_eight_file_types() -> None:
    assert " ".join(FileType) == "document folder canvas chat whiteboard agent skill plan"

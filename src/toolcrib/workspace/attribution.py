"""Whose doing it was that the disk changed behind the history's back. Decides by dates and who ran; looks at nothing.

The disk tells when a node was last changed, and not by whom. So what bears a date at which background processes ran is
theirs; a program outside that worked at the same time cannot be told apart from them. Where processes of several owners
ran, nobody can say which it was, and the change is booked as one from outside.
"""

from collections.abc import Sequence

from toolcrib.domain.background import BackgroundProcess
from toolcrib.domain.changes import EXTERNAL, Author, Change, ChangeKind, ChangeSet
from toolcrib.workspace.findings import Found
from toolcrib.workspace.trash import token_of


def attributed(found: Found, processes: Sequence[BackgroundProcess], *, all_were_known: bool) -> tuple[ChangeSet, ...]:
    """What was found as change sets, one for each author. ``processes`` are those that may be, the latest first.

    Something that the history did not know is a process's only if ``all_were_known`` when it began.
    """
    shares: dict[Author, list[Change]] = {}
    for change in found.changes:
        theirs = all_were_known or change.kind is not ChangeKind.MADE
        author = _author(processes, found.dates_ns.get(change.version_id)) if theirs and _is_kept(change) else EXTERNAL
        shares.setdefault(author, []).append(change)
    return tuple(ChangeSet(author, tuple(changes)) for author, changes in shares.items())


def _author(processes: Sequence[BackgroundProcess], date_ns: int | None) -> Author:
    """Who ran at a date; of what is gone there is none, so it is whoever runs now."""
    there = [process for process in processes if (process.is_running if date_ns is None else process.ran_at(date_ns))]
    if len({process.belongs_to for process in there}) != 1:
        return EXTERNAL
    return there[0].author


def _is_kept(change: Change) -> bool:
    """Whether undo could bring back what stood there before: else it must not seem so."""
    return token_of(change.before) is None and token_of(change.after) is None

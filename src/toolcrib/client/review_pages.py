"""Puts the pages of a long review together, and checks that all of it was shown."""

import re
from typing import Final

from toolcrib.core.errors import Conflict
from toolcrib.schemas.reviews import ReviewFileOut, ReviewHunkOut, ReviewOut

_HEADER: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")
_MOST_NAMED: Final = 20


def with_more_lines(file: ReviewFileOut, page: ReviewFileOut) -> ReviewFileOut:
    """Return the file with the lines of its next page. A hunk that goes on there is continued."""
    hunks, more = list(file.hunks), list(page.hunks)
    if hunks and more and hunks[-1].id == more[0].id:
        hunks[-1] = _joined(hunks[-1], more.pop(0))
    return file.model_copy(update={"hunks": [*hunks, *more], "next_line": page.next_line})


def require_all_shown(review: ReviewOut) -> None:
    """Raise ``Conflict`` if something in the review was not shown, so that it is not kept unseen."""
    flawed = [one for one in review.files if one.flaw is not None]
    missing = review.total - len(review.files)
    if not flawed and missing <= 0:
        return
    named = ", ".join(one.path for one in flawed[:_MOST_NAMED])
    more = f" and {len(flawed) - _MOST_NAMED} more" if len(flawed) > _MOST_NAMED else ""
    parts = [f"the changes of {named}{more} could not be shown ({flawed[0].flaw})"] if flawed else []
    parts += [f"{missing:,} files are not listed"] if missing > 0 else []
    raise Conflict(f"Not everything was kept: {'; '.join(parts)}. Look again, or keep files by their paths.")


def _joined(hunk: ReviewHunkOut, more: ReviewHunkOut) -> ReviewHunkOut:
    one, other = _HEADER.match(hunk.diff), _HEADER.match(more.diff)
    assert one is not None and other is not None
    sides = zip((one.group(1, 2), one.group(3, 4)), (other.group(1, 2), other.group(3, 4)), strict=True)
    old, new = (_range(*first, *second) for first, second in sides)
    return hunk.model_copy(update={"diff": f"@@ -{old} +{new} @@\n{hunk.diff[one.end() :]}{more.diff[other.end() :]}"})


def _range(start: str, count: str | None, next_start: str, next_count: str | None) -> str:
    lines, others = int(count or 1), int(next_count or 1)
    # A range without lines names the line before it.
    first = start if lines or not others else next_start
    return first if lines + others == 1 else f"{first},{lines + others}"

"""Puts the pages of a long review or approval together, and checks that all of it was shown."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from toolcrib.core.errors import Conflict
from toolcrib.schemas.paused_calls import ApprovalOut, ChangesPageOut, PreviewChangeOut
from toolcrib.schemas.reviews import ReviewFileOut, ReviewHunkOut, ReviewOut

_HEADER: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")
_FIRST_HUNK: Final = re.compile(r"^@@ ", re.MULTILINE)
_MOST_NAMED: Final = 20


def with_more_lines(file: ReviewFileOut, page: ReviewFileOut) -> ReviewFileOut:
    """Return the file with the lines of its next page. A hunk that goes on there is continued.

    Raises:
        Conflict: The page is of another version of the file.
    """
    if page.version != file.version:
        raise Conflict(f"{file.path} changed since it was shown. Look at the review again.")
    hunks, more = list(file.hunks), list(page.hunks)
    if hunks and more and hunks[-1].id == more[0].id:
        hunks[-1] = _joined(hunks[-1], more.pop(0))
    return file.model_copy(update={"hunks": [*hunks, *more], "next_line": page.next_line, "flaw": page.flaw})


def with_more_files(review: ReviewOut, page: ReviewOut) -> ReviewOut:
    """Return the review with its next page of files. A decision about all still names the first page."""
    files = [*review.files, *page.files]
    sums = {"added": sum(one.added or 0 for one in files), "removed": sum(one.removed or 0 for one in files)}
    return review.model_copy(update={"files": files, "next_offset": page.next_offset, **sums})


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


def lacks_lines(approval: ApprovalOut) -> bool:
    """Return whether pages have changes, or lines of them, that the approval itself is too long for."""
    return any(map(_is_elsewhere, approval.changes))


def whole_approval(approval: ApprovalOut, page_of: Callable[[int, int], ChangesPageOut]) -> ApprovalOut:
    """Return an approval with the lines that it is too long for.

    Args:
        page_of: Loads a page: from which change on, and from which of its lines.
    """
    if not lacks_lines(approval):
        return approval
    loaded: dict[int, PreviewChangeOut] = {}
    first: int | None = 0
    from_line = 0
    while first is not None:
        page = page_of(first, from_line)
        for number, change in enumerate(page.changes, start=first):
            goes_on = number == first and from_line > 0
            loaded[number] = _with_more_diff(loaded[number], change) if goes_on else change
        # Only the first change of a page can have more lines than fit.
        next_line = page.changes[0].next_line if page.changes else None
        first, from_line = (page.next, 0) if next_line is None else (first, next_line)
    return _with_loaded(approval, loaded)


def _with_more_diff(change: PreviewChangeOut, page: PreviewChangeOut) -> PreviewChangeOut:
    # After the names of the file, which the first page has.
    lines = _FIRST_HUNK.search(page.diff or "")
    rest = page.diff[lines.start() :] if page.diff and lines else ""
    return change.model_copy(update={"diff": f"{change.diff or ''}{rest}", "next_line": page.next_line})


def _with_loaded(approval: ApprovalOut, loaded: Mapping[int, PreviewChangeOut]) -> ApprovalOut:
    """Return the approval with the changes of pages, by their numbers. What it shows itself stays."""
    listed = [one for one in approval.changes if one.change != "omitted"]
    left = sum(one.count or 0 for one in approval.changes if one.change == "omitted")
    changes = [loaded.get(at, one) if _is_elsewhere(one) else one for at, one in enumerate(listed)]
    while (more := loaded.get(len(changes))) is not None:
        changes.append(more)
        left -= 1
    if left > 0:
        changes.append(PreviewChangeOut(path=None, change="omitted", count=left))
    return approval.model_copy(update={"changes": changes})


def _is_elsewhere(change: PreviewChangeOut) -> bool:
    return change.change == "omitted" or bool(change.diff_omitted) or change.no_diff in ("large", "unread")


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

"""The panel of a review: files and hunks, each kept or reverted with one key."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from rich.console import Group
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.geometry import Region
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from toolcrib.cli.review import Choice, ReviewChoices, file_head, hunk_lines, inside_lines, review_summary
from toolcrib.cli.terminal_text import HangingLine, Line, counted
from toolcrib.client import FileDecisionIn, ReviewFileOut, ReviewHunkOut, ReviewOut
from toolcrib.client.review_pages import with_more_files, with_more_lines

_MARKS = {"keep": "keep  ", "revert": "REVERT", None: "      "}
_KEYS = "↑↓ choose   k keep   r revert   K/R all   {more}Enter decide   Esc close"
_INDENT = " " * 9


class ReviewRow(Static):
    """The head of a file or of a hunk, with what is chosen for it. Its lines are a widget of their own below it."""

    def __init__(self, file: ReviewFileOut, hunk: ReviewHunkOut | None, head: Text, lines: Sequence[Line] = ()) -> None:
        super().__init__(classes="review-row")
        self.file = file
        self.hunk = hunk
        self.body = _body(lines) if lines else None
        self._head = head

    def draw(self, choices: ReviewChoices, *, is_current: bool) -> None:
        is_chosen = self.hunk is None or self.hunk.author != "others"
        mark = _MARKS[choices.of(self.file, self.hunk) if is_chosen else None]
        head = Text.assemble("▸ " if is_current else "  ", (mark, "bold"), " ", self._head)
        if is_current:
            head.stylize("reverse")
        # Every mark has the same width, so nothing moves. Laying out thousands of lines for each key would make the
        # screen lag behind the keys, and a key would act on what is not shown yet.
        self.update(head, layout=not self.is_mounted)


class FileRows(Vertical):
    """The rows of one file, and how many of its lines are missing."""

    def __init__(self, file: ReviewFileOut) -> None:
        super().__init__(classes="review-file")
        self.file = file
        inside = inside_lines(file)
        self.rows = [ReviewRow(file, None, file_head(file), inside), *map(self._hunk_row, file.hunks)]
        self._rest = Static(classes="review-rest")

    def compose(self) -> ComposeResult:
        for row in self.rows:
            yield from _widgets(row)
        yield self._rest

    def on_mount(self) -> None:
        self._show_rest()

    async def add(self, page: ReviewFileOut) -> list[ReviewRow]:
        """Adds the lines of the next page. Returns the new rows: the last hunk may only go on.

        Raises:
            Conflict: The page is of another version of the file.
        """
        last = self.rows[-1].hunk
        self.file = with_more_lines(self.file, page)
        added = list[Widget]()
        hunks = list(page.hunks)
        if last is not None and hunks and hunks[0].id == last.id:
            added.append(_body(_indented(hunk_lines(hunks.pop(0))[1:])))
        rows = [self._hunk_row(hunk) for hunk in hunks]
        for row in rows:
            added += _widgets(row)
        self.rows += rows
        for row in self.rows:
            row.file = self.file
        await self.mount_all(added, before=self._rest)
        self._show_rest()
        return rows

    def _hunk_row(self, hunk: ReviewHunkOut) -> ReviewRow:
        header, *lines = hunk_lines(hunk)
        return ReviewRow(self.file, hunk, header.text, _indented(lines))

    def _show_rest(self) -> None:
        at = self.file.next_line
        self._rest.display = at is not None
        if at is not None:
            left = f"{_INDENT}… {self.file.lines - at:,} more lines of this file: m shows more"
            self._rest.update(Text(left, style="yellow"))


class ReviewPanel(Vertical, can_focus=True):
    """Shows a review. Nothing is sent before Enter; files without a choice stay open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("k", "choose('keep')", show=False),
        Binding("r", "choose('revert')", show=False),
        Binding("K", "choose_all('keep')", show=False),
        Binding("R", "choose_all('revert')", show=False),
        Binding("m", "more", show=False),
        Binding("enter", "decide", show=False),
        Binding("escape", "cancel", show=False),
    ]

    @dataclass
    class Decided(Message):
        """What to send. Without decisions the person closed the panel."""

        shown: ReviewOut
        decisions: list[FileDecisionIn]

    @dataclass
    class Lacking(Message):
        """Asks for the next page of the lines of a file, or of the files of the review."""

        panel: "ReviewPanel"
        shown: ReviewOut
        file: ReviewFileOut | None

    def __init__(self, shown: ReviewOut) -> None:
        super().__init__(classes="panel")
        self.border_title = "Review"
        self._shown = shown
        self._choices = ReviewChoices(shown)
        self._files = {file.path: FileRows(file) for file in shown.files}
        self._rows = [row for file in self._files.values() for row in file.rows]
        self._current = 0
        self._reading = VerticalScroll(classes="reading", can_focus=False)
        # The paths of files that were on the screen; and whether the person was told which ones were not.
        self._seen: set[str] = set()
        self._was_told = False

    def compose(self) -> ComposeResult:
        with self._reading:
            yield Static(review_summary(self._shown), classes="review-summary")
            yield from self._files.values()
            yield Static(self._missing(), classes="review-rest review-end")
        with Vertical(classes="foot"):
            yield Static(Text(self._keys), classes="keys")

    def on_mount(self) -> None:
        self._draw(self._rows)
        self.watch(self._reading, "scroll_y", self._note_seen_later)
        self.call_after_refresh(self._note_seen)

    async def add_lines(self, page: ReviewOut) -> None:
        """Adds the next lines of a file.

        Raises:
            Conflict: The file has changed since it was shown.
        """
        for part in page.files:
            rows = self._files[part.path]
            last = self._rows.index(rows.rows[-1])
            self._rows[last + 1 : last + 1] = await rows.add(part)
            files = [one.file for one in self._files.values()]
            self._choices.shown = self._shown = self._shown.model_copy(update={"files": files})
            self._draw(rows.rows)
        self._say()

    async def add_files(self, page: ReviewOut) -> None:
        """Adds the next files of the review."""
        self._choices.shown = self._shown = with_more_files(self._shown, page)
        added = {file.path: FileRows(file) for file in page.files if file.path not in self._files}
        self._files |= added
        self._rows += [row for file in added.values() for row in file.rows]
        await self._reading.mount_all(added.values(), before=self.query_one(".review-end"))
        self._draw([row for file in added.values() for row in file.rows])
        self.query_one(".review-summary", Static).update(review_summary(self._shown))
        self.query_one(".review-end", Static).update(self._missing())
        self._say()

    def action_move(self, by: int) -> None:
        before = self._row
        self._current = min(max(self._current + by, 0), len(self._rows) - 1)
        self._draw([before, self._row])
        at, body = self._row.virtual_region.translate(self._files[self._row.file.path].virtual_region.offset), 0
        if self._row.body is not None:
            body = self._row.body.size.height
        region = Region(at.x, at.y, at.width, at.height + body)
        # A hunk that does not fit begins at the top, so that a person sees what a key acts on.
        self._reading.scroll_to_region(region, top=region.height > self._reading.size.height, animate=False)

    def action_page(self, pages: int) -> None:
        self._reading.scroll_relative(y=pages * self._reading.size.height, animate=False)

    def action_choose(self, choice: Choice) -> None:
        row = self._row
        if row.hunk is not None and row.hunk.author != "others":
            if self._choices.is_whole(row.file) and row.file.next_line is not None:
                self._say("Not all changes of this file are shown yet. Press m first, or k or r at its head.")
                return
            self._choices.mark(row.file, choice, row.hunk)
        elif row.hunk is None:
            self._choices.mark(row.file, choice)
        self._was_told = False
        self._draw(self._files[row.file.path].rows)
        self._say()
        self.action_move(1)

    def action_choose_all(self, choice: Choice) -> None:
        # What was not shown whole is kept by itself only.
        left = [file for file in self._shown.files if choice == "keep" and not _is_whole(file)]
        for file in self._shown.files:
            if file not in left:
                self._choices.mark(file, choice)
        self._was_told = False
        self._draw(self._rows)
        self._say(f"Not marked: {counted(len(left))} whose lines are not all shown. k marks one." if left else "")

    def action_more(self) -> None:
        file = self._row.file
        if file.next_line is not None:
            self._say("Loading …")
            self.post_message(self.Lacking(self, self._shown, file))
        elif self._shown.next_offset is not None:
            self._say("Loading …")
            self.post_message(self.Lacking(self, self._shown, None))
        else:
            self._say("All lines of this file are shown.")

    def action_decide(self) -> None:
        decisions = self._choices.decisions()
        unseen = [one for one in decisions if one.decision == "keep" and not self._was_seen(one.path)]
        if not decisions:
            self._say("Choose first.")
        elif unseen and not self._was_told:
            self._was_told = True
            self._say(f"You keep {counted(len(unseen))} of which not all was on the screen. Enter again keeps them.")
        else:
            self.post_message(self.Decided(self._shown, decisions))

    def action_cancel(self) -> None:
        self.post_message(self.Decided(self._shown, []))

    def show_flaw(self, text: str) -> None:
        """Says why nothing more was loaded."""
        self._say(text)

    @property
    def _row(self) -> ReviewRow:
        return self._rows[self._current]

    @property
    def _keys(self) -> str:
        lacks = self._shown.next_offset is not None or any(one.next_line is not None for one in self._shown.files)
        return _KEYS.format(more="m more   " if lacks else "")

    def _draw(self, rows: Sequence[ReviewRow]) -> None:
        for row in rows:
            row.draw(self._choices, is_current=row is self._row)

    def _say(self, text: str = "") -> None:
        self.query_one(".keys", Static).update(Text(f"{text}\n{self._keys}" if text else self._keys))

    def _was_seen(self, path: str) -> bool:
        return path in self._seen and _is_whole(self._files[path].file)

    def _note_seen_later(self) -> None:
        self.call_after_refresh(self._note_seen)

    def _note_seen(self) -> None:
        """Notes the files whose last line has been on the screen."""
        top = self._reading.scroll_y
        bottom = top + self._reading.size.height
        self._seen |= {
            path for path, rows in self._files.items() if top < rows.virtual_region.bottom <= bottom and rows.is_mounted
        }

    def _missing(self) -> Text:
        left = self._shown.total - len(self._shown.files)
        return Text(f"… {left:,} more files: m shows more" if left > 0 else "", style="yellow")


def _is_whole(file: ReviewFileOut) -> bool:
    """Returns whether all of a file's changes are shown."""
    return file.flaw is None and file.next_line is None


def _widgets(row: ReviewRow) -> Iterator[Static]:
    yield row
    if row.body is not None:
        yield row.body


def _body(lines: Sequence[Line]) -> Static:
    return Static(Group(*lines), classes="review-body")


def _indented(lines: Sequence[HangingLine]) -> list[HangingLine]:
    return [replace(line, gutter=_INDENT + line.gutter) for line in lines]

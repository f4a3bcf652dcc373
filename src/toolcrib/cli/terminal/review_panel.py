"""The panel of a review: files and hunks, each kept or reverted with one key."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from rich.console import Group
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import Static

from toolcrib.cli.review import Choice, ReviewChoices, file_head, hunk_lines, review_summary
from toolcrib.cli.terminal_text import HangingLine
from toolcrib.client import FileDecisionIn, ReviewFileOut, ReviewHunkOut, ReviewOut

_MARKS = {"keep": "keep  ", "revert": "REVERT", None: "      "}
_KEYS = "↑↓ choose   k keep   r revert   K/R all   Enter decide   Esc close"


class ReviewRow(Static):
    """One file or one hunk, with what is chosen for it."""

    def __init__(self, file: ReviewFileOut, hunk: ReviewHunkOut | None) -> None:
        super().__init__(classes="review-row")
        self.file = file
        self.hunk = hunk

    def draw(self, choices: ReviewChoices, *, is_current: bool) -> None:
        mark = _MARKS[choices.of(self.file, self.hunk)]
        if self.hunk is None:
            first, rest = file_head(self.file), list[HangingLine]()
        else:
            header, *rest = hunk_lines(self.hunk)
            first = header.text
            mark = mark if self.hunk.author != "others" else _MARKS[None]
        head = Text.assemble("▸ " if is_current else "  ", (mark, "bold"), " ", first)
        if is_current:
            head.stylize("reverse")
        self.update(Group(head, *(replace(line, gutter=" " * 9 + line.gutter) for line in rest)))


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
        Binding("enter", "decide", show=False),
        Binding("escape", "cancel", show=False),
    ]

    @dataclass
    class Decided(Message):
        """What to send. Without decisions the person closed the panel."""

        shown: ReviewOut
        decisions: list[FileDecisionIn]

    def __init__(self, shown: ReviewOut) -> None:
        super().__init__(classes="panel")
        self.border_title = "Review"
        self._shown = shown
        self._choices = ReviewChoices(shown)
        self._rows = list(_rows(shown))
        self._current = 0

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="reading", can_focus=False):
            yield Static(review_summary(self._shown))
            yield from self._rows
        with Vertical(classes="foot"):
            yield Static(Text(_KEYS), classes="keys")

    def on_mount(self) -> None:
        self._draw()

    def action_move(self, by: int) -> None:
        self._current = min(max(self._current + by, 0), len(self._rows) - 1)
        self._draw()
        self._rows[self._current].scroll_visible(animate=False)

    def action_page(self, pages: int) -> None:
        reading = self.query_one(".reading", VerticalScroll)
        reading.scroll_relative(y=pages * reading.size.height, animate=False)

    def action_choose(self, choice: Choice) -> None:
        row = self._rows[self._current]
        if row.hunk is None or row.hunk.author != "others":
            self._choices.mark(row.file, choice, row.hunk)
        self.action_move(1)

    def action_choose_all(self, choice: Choice) -> None:
        for file in self._shown.files:
            # What could not be shown is kept by itself only.
            if file.flaw is None or choice == "revert":
                self._choices.mark(file, choice)
        self._draw()

    def action_decide(self) -> None:
        if decisions := self._choices.decisions():
            self.post_message(self.Decided(self._shown, decisions))
        else:
            self.query_one(".keys", Static).update(Text(f"Choose first. {_KEYS}"))

    def action_cancel(self) -> None:
        self.post_message(self.Decided(self._shown, []))

    def _draw(self) -> None:
        for number, row in enumerate(self._rows):
            row.draw(self._choices, is_current=number == self._current)


def _rows(shown: ReviewOut) -> Iterator[ReviewRow]:
    """Yields a row for each file, and one for each of its hunks."""
    for file in shown.files:
        yield ReviewRow(file, None)
        yield from (ReviewRow(file, hunk) for hunk in file.hunks)

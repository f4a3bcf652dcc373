"""Shows the blocks of a conversation. Mounts only the end of a long one, until a person scrolls up."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import Click, Key
from textual.message import Message
from textual.reactive import reactive
from textual.selection import Selection
from textual.strip import Strip
from textual.widgets import Static

from toolcrib.cli.message_context import split_attached
from toolcrib.cli.terminal.streamed_markdown import StreamedMarkdown
from toolcrib.cli.terminal.transcript import AgentBlock, Block, CallBlockState, NoticeBlock, ToolCallBlock, UserBlock
from toolcrib.cli.terminal_text import (
    HangingLine,
    Line,
    about,
    call_failure,
    one_line,
    plain,
    prose,
    shown_diff,
    styled,
)
from toolcrib.core.approval_text import ShownLine, argument_lines, change_head

# An icon and its colour.
_ICONS = {
    CallBlockState.RUNNING: ("●", "cyan"),
    CallBlockState.WAITING: ("?", "yellow"),
    CallBlockState.DONE: ("✓", "green"),
    CallBlockState.FAILED: ("✗", "red"),
}
# Maximum lines of output: while a call runs, and unfolded after it has ended.
_LIVE_LINES = 10
_MAX_LINES = 200
_MAX_INPUT_LINES = 40
_HEAD_WIDTH = 60
# Leaves room for why it failed.
_FAILED_HEAD_WIDTH = 24


def widget_for(block: Block) -> "BlockWidget":
    match block:
        case UserBlock():
            return FixedText(_said(block), classes="said")
        case AgentBlock():
            return AgentBlockWidget(block)
        case ToolCallBlock():
            return ToolCallWidget(block)
        case NoticeBlock(text=str(text)):
            return FixedText(Text(text, style="red" if block.is_bad else "dim"), classes="remark")
        case NoticeBlock(text=lines):
            return FixedText(Group(*lines), classes="remark")


def _said(block: UserBlock) -> Text:
    """Formats a person's message. Of what is attached, only the size is shown."""
    words, attached = split_attached(block.text)
    line = Text(f"> {prose(words)}")
    if attached:
        line.append(f"\n  + {attached.count(chr(10)) + 1:,} lines attached", style="dim not bold")
    return line


class FixedText(Static):
    """A person's message, or a notice."""

    async def show(self) -> None:
        """Does nothing: it does not change."""


class AgentBlockWidget(StreamedMarkdown):
    """The agent's text as Markdown, while it streams."""

    def __init__(self, block: AgentBlock) -> None:
        self._block = block
        super().__init__(prose(block.text), classes="spoken")

    async def show(self) -> None:
        await self.show_text(prose(self._block.text))


class CallBody(Static):
    """The lines of a call. Selected as they are shown: the renderer of hanging lines knows no selection."""

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        if (selection := self.text_selection) is not None and (span := selection.get_span(y)) is not None:
            start, end = span[0], strip.cell_length if span[1] < 0 else span[1]
            selected = strip.crop(start, end).apply_style(self.selection_style)
            strip = Strip.join([strip.crop(0, start), selected, strip.crop(end)])
        return strip.apply_offsets(0, y)

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        rows = (self.render_line(y).text.rstrip() for y in range(self.size.height))
        return selection.extract("\n".join(rows)), "\n"


class ToolCallWidget(Vertical, can_focus=True):
    """A call: unfolded while it runs, folded when it ends. A person can toggle it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "fold", "Fold", show=False)]

    unfolded = reactive(default=True)

    def __init__(self, block: ToolCallBlock) -> None:
        super().__init__(classes="call")
        self.block = block
        self._head = Static(classes="call-head")
        self._body = CallBody(classes="call-body")
        self._was_open = block.is_open
        self.set_reactive(ToolCallWidget.unfolded, block.is_open or block.is_own)

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._body

    def on_mount(self) -> None:
        self._draw()

    async def show(self) -> None:
        if self._was_open and not self.block.is_open:
            self.unfolded = self.block.is_own
        self._was_open = self.block.is_open
        self._draw()

    def watch_unfolded(self) -> None:
        self._draw()

    def on_click(self, event: Click) -> None:
        event.stop()
        self.action_fold()

    def action_fold(self) -> None:
        self.unfolded = not self.unfolded

    def _draw(self) -> None:
        self._head.update(_head(self.block, unfolded=self.unfolded))
        body = _body(self.block) if self.unfolded else []
        self._body.display = bool(body)
        self._body.update(Group(*body))


BlockWidget = FixedText | AgentBlockWidget | ToolCallWidget


def _head(call: ToolCallBlock, *, unfolded: bool) -> Text:
    """Formats the icon, name, summary, state and duration."""
    seconds = call.seconds
    if seconds is None and call.state is CallBlockState.RUNNING and call.began is not None:
        seconds = time.monotonic() - call.began
    state = "" if call.state is CallBlockState.DONE else f"  {call.state}"
    says_why = call.state is CallBlockState.FAILED and not unfolded and bool(call.output.strip())
    if says_why:
        state += f": {call_failure(call.output)}"
    took = "" if seconds is None or call.state is CallBlockState.WAITING else f"  {seconds:.1f} s"
    return Text.assemble(
        "▾ " if unfolded else "▸ ",
        _ICONS[call.state],
        " ",
        (one_line(call.tool, 40), "bold"),
        f" {one_line(about(call.given), _FAILED_HEAD_WIDTH if says_why else _HEAD_WIDTH)}".rstrip(),
        (f"{took}{state}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _body(call: ToolCallBlock) -> list[Line]:
    if call.tool == "ask_user" and call.state is not CallBlockState.FAILED:
        return [*_answers(call)]
    lines: list[Line] = [*_input_lines(call)]
    if call.state is not CallBlockState.WAITING:
        # Before that, the panel shows the changes.
        for change in call.changes:
            lines.append(styled(ShownLine("change", "  ", ((change_head(change), False),))))
            lines += shown_diff(str(change.get("diff") or ""), _MAX_LINES)
    most = _LIVE_LINES if call.is_open else _MAX_LINES
    # The result of a change has only ids; the diff is enough.
    is_said = call.output.strip() and not (call.changes and call.state is CallBlockState.DONE and call.tool != "bash")
    text = plain(call.output).strip("\n").split("\n") if is_said else []
    if (more := len(text) - most) > 0:
        lines.append(Text(f"    … {more:,} earlier lines", style="dim"))
    style = "red" if call.state is CallBlockState.FAILED else ""
    return [*lines, *(HangingLine("    ", Text(line, style=style)) for line in text[-most:])]


def _answers(call: ToolCallBlock) -> list[HangingLine]:
    """Formats the answers by the names of their questions. Before, the panel shows the questions."""
    try:
        return [styled(line) for line in argument_lines(json.loads(call.output))] if call.output else []
    except ValueError:
        return [HangingLine("    ", Text(plain(call.output)))]


def _input_lines(call: ToolCallBlock) -> list[HangingLine]:
    """Formats the input, unless the head already shows all of it."""
    if not isinstance(call.given, dict) or call.changes:
        return []
    shown = about(call.given)
    if len(call.given) < 2 and cell_len(shown) <= _HEAD_WIDTH and shown in call.given.values():
        return []
    lines = [styled(line) for line in argument_lines(call.given)]
    if (more := len(lines) - _MAX_INPUT_LINES) > 0:
        lines[_MAX_INPUT_LINES:] = [HangingLine("  ", Text(f"… {more:,} more lines", style="dim"))]
    return lines


# More widgets than this make typing slow. The oldest are unmounted in groups, and mounted again on scrolling up.
_MAX_WIDGETS = 120
_AT_A_TIME = 40


class TranscriptView(VerticalScroll, can_focus=True):
    """Shows blocks as they grow, and follows the end unless the person has scrolled up."""

    class WantsEarlier(Message):
        """The person has scrolled to the top of the loaded blocks."""

    @dataclass
    class Typed(Message):
        """The person types a message while a block or the view has the focus."""

        character: str

    def __init__(self) -> None:
        super().__init__(id="conversation")
        self._blocks: list[Block] = []
        self._first = 0
        self._widgets: dict[Block, BlockWidget] = {}
        self._top = Static("", id="earlier")
        self.has_earlier = False
        # Until the person scrolls up, the end stays visible, whatever the size of the content and of the view.
        self._follows = True

    def on_mount(self) -> None:
        self.mount(self._top)
        self._say_what_is_above()
        self.set_interval(1.0, self._tick)

    async def show(self, blocks: Sequence[Block]) -> None:
        """Shows blocks that are new or have changed."""
        for block in dict.fromkeys(blocks):
            if block in self._widgets:
                await self._widgets[block].show()
            elif block not in self._blocks[: self._first]:
                self._blocks.append(block)
                await self.mount(self._made(block))
        if self._follows:
            if len(self._widgets) > _MAX_WIDGETS:
                await self._take_off()
            self.scroll_end(animate=False)

    async def put_before(self, blocks: Sequence[Block], *, more: bool) -> None:
        """Inserts earlier blocks at the top. ``more``: there are still earlier ones on the server."""
        self.has_earlier = more
        self._blocks[:0] = blocks
        self._first += len(blocks)
        await self._put_back()

    async def begin_anew(self) -> None:
        """Removes all blocks, for another session."""
        for widget in self._widgets.values():
            await widget.remove()
        self._blocks, self._widgets, self._first = [], {}, 0
        self._follows = True
        self._say_what_is_above()

    def on_resize(self) -> None:
        if self._follows:
            self.scroll_end(animate=False)

    def on_key(self, event: Key) -> None:
        if event.character is not None and event.is_printable:
            event.stop()
            self.post_message(self.Typed(event.character))

    @property
    def last_call(self) -> ToolCallWidget | None:
        """The widget of the newest call."""
        shown = (self._widgets.get(block) for block in reversed(self._blocks))
        return next((widget for widget in shown if isinstance(widget, ToolCallWidget)), None)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        is_at_end = self.max_scroll_y - self.scroll_y <= 1
        self._follows = is_at_end or (self._follows and new_value > old_value)
        if new_value > 0 or old_value <= 0 or self._follows:
            return
        if self._first > 0:
            self.call_later(self._put_back)
        elif self.has_earlier:
            self.has_earlier = False
            self.post_message(self.WantsEarlier())

    def _made(self, block: Block) -> BlockWidget:
        self._widgets[block] = widget = widget_for(block)
        return widget

    async def _take_off(self) -> None:
        going = self._blocks[self._first : self._first + _AT_A_TIME]
        self._first += len(going)
        for block in going:
            await self._widgets.pop(block).remove()
        self._say_what_is_above()

    async def _put_back(self) -> None:
        start = max(0, self._first - _AT_A_TIME)
        coming, self._first = self._blocks[start : self._first], start
        if coming:
            at, height = self.scroll_y, self.virtual_size.height
            await self.mount_all([self._made(block) for block in coming], after=self._top)
            # Keeps the text that the person reads in place.
            self.call_after_refresh(
                lambda: self.scroll_to(y=at + self.virtual_size.height - height, animate=False, force=True)
            )
        self._say_what_is_above()

    def _say_what_is_above(self) -> None:
        self._top.display = self._first > 0 or self.has_earlier
        self._top.update(f"… {self._first:,} earlier blocks: scroll up" if self._first else "… earlier: scroll up")

    async def _tick(self) -> None:
        """Updates the duration of running calls."""
        for widget in list(self._widgets.values()):
            if isinstance(widget, ToolCallWidget) and widget.block.state is CallBlockState.RUNNING:
                await widget.show()

"""A widget for each kind of block."""

import json
import time
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Click
from textual.reactive import reactive
from textual.widgets import Markdown, Static

from toolcrib.cli import wording
from toolcrib.cli.showing import diff_line, one_line, plain
from toolcrib.cli.terminal.story import Block, Call, Remark, Said, Spoken, State

_ICONS = {State.RUNNING: "●", State.WAITING: "?", State.DONE: "✓", State.FAILED: "✗"}
_STYLES = {State.RUNNING: "cyan", State.WAITING: "yellow", State.DONE: "green", State.FAILED: "red"}
# While a call runs its last lines are shown; unfolded, as many as one would read.
_LIVE_LINES = 10
_MOST_LINES = 200
_MOST_INPUT_LINES = 20


def widget_for(block: Block) -> "BlockWidget":
    match block:
        case Said():
            return SaidWidget(block)
        case Spoken():
            return SpokenWidget(block)
        case Call():
            return CallWidget(block)
        case Remark():
            return RemarkWidget(block)


class SaidWidget(Static):
    def __init__(self, block: Said) -> None:
        super().__init__(Text(f"> {plain(block.text)}"), classes="said")

    async def show(self) -> None:
        """A person's words do not change."""


class RemarkWidget(Static):
    def __init__(self, block: Remark) -> None:
        style = "red" if block.is_bad else "dim"
        super().__init__(Text(block.text, style=style) if isinstance(block.text, str) else block.text, classes="remark")

    async def show(self) -> None:
        """A remark does not change."""


class SpokenWidget(Markdown):
    """The agent's words as markdown, growing with them. Links are shown, and not followed."""

    def __init__(self, block: Spoken) -> None:
        self._block = block
        self._shown = plain(block.text)
        super().__init__(self._shown, open_links=False, classes="spoken")

    async def show(self) -> None:
        text = plain(self._block.text)
        before, self._shown = self._shown, text
        if text == before:
            return
        if text.startswith(before):
            await self.append(text[len(before) :])
        else:
            await self.update(text)


class CallWidget(Vertical, can_focus=True):
    """A call: unfolded while it runs, folded when it has ended, and as one likes after that."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "fold", "Fold", show=False)]

    unfolded = reactive(default=True)

    def __init__(self, block: Call) -> None:
        super().__init__(classes="call")
        self.block = block
        self._head = Static(classes="call-head")
        self._body = Static(classes="call-body")
        self._was_open = block.is_open
        self.set_reactive(CallWidget.unfolded, block.is_open)

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._body

    def on_mount(self) -> None:
        self._draw()

    async def show(self) -> None:
        if self._was_open and not self.block.is_open:
            self.unfolded = False
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
        body = _body(self.block) if self.unfolded else Text()
        self._body.display = bool(body)
        self._body.update(body)


BlockWidget = SaidWidget | SpokenWidget | CallWidget | RemarkWidget


def _head(call: Call, *, unfolded: bool) -> Text:
    """Icon, name, what it is about, how it stands and how long it took."""
    seconds = call.seconds
    if seconds is None and call.state is State.RUNNING and call.began is not None:
        seconds = time.monotonic() - call.began
    state = "" if call.state is State.DONE else f"  {call.state}"
    if call.state is State.FAILED and not unfolded and call.output.strip():
        state += f": {one_line(call.output.strip(), 200)}"
    took = "" if seconds is None or call.state is State.WAITING else f"  {seconds:.1f} s"
    return Text.assemble(
        "▾ " if unfolded else "▸ ",
        (_ICONS[call.state], _STYLES[call.state]),
        " ",
        (one_line(call.tool, 40), "bold"),
        f" {one_line(wording.about(call.given), 60)}".rstrip(),
        (f"{took}{state}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _body(call: Call) -> Text:
    lines = [Text(f"    {line}", style="dim") for line in _input_lines(call)]
    if call.state is not State.WAITING:
        lines += [diff_line(line) for line in _diff(call)[:_MOST_LINES]]
    most = _LIVE_LINES if call.is_open else _MOST_LINES
    # A diff says what a result would say again, in ids.
    is_said = call.output.strip() and not (call.changes and call.state is State.DONE and call.tool != "bash")
    said = plain(call.output).strip("\n").split("\n") if is_said else []
    if (more := len(said) - most) > 0:
        lines.append(Text(f"    … {more:,} lines before", style="dim"))
    style = "red" if call.state is State.FAILED else ""
    lines += [Text(f"    {line}", style=style) for line in said[-most:]]
    return Text("\n").join(lines)


def _input_lines(call: Call) -> list[str]:
    """What it was given, where the head does not say it all."""
    if not isinstance(call.given, dict) or len(call.given) < 2 or call.changes:
        return []
    lines = json.dumps(call.given, indent=1, ensure_ascii=False).splitlines()[1:-1]
    return [one_line(line, 200) for line in lines[:_MOST_INPUT_LINES]]


def _diff(call: Call) -> list[str]:
    return [line for change in call.changes for line in str(change.get("diff") or "").splitlines() if line]

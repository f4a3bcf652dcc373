"""The conversation: blocks one below the other. Of a long one only the end is on the screen, until one goes up."""

from collections.abc import Sequence

from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import Static

from toolcrib.cli.terminal.blocks import BlockWidget, CallWidget, widget_for
from toolcrib.cli.terminal.story import Block, State

# More widgets than this make typing slow. So many at a time are taken off at the top, and put back when one goes there.
_MOST = 120
_AT_A_TIME = 40


class Conversation(VerticalScroll, can_focus=True):
    """Shows blocks, follows their growth, and stays at the end unless one has scrolled away from it."""

    class WantsEarlier(Message):
        """One has come to the top of what is known here."""

    def __init__(self) -> None:
        super().__init__(id="conversation")
        self._blocks: list[Block] = []
        self._first = 0
        self._widgets: dict[Block, BlockWidget] = {}
        self._top = Static("", id="earlier")
        self.has_earlier = False
        # Until one scrolls up, the end is what one sees, however it grows and whatever takes room below.
        self._follows = True

    def on_mount(self) -> None:
        self.mount(self._top)
        self._say_what_is_above()
        self.set_interval(1.0, self._tick)

    async def show(self, blocks: Sequence[Block]) -> None:
        """Blocks that are new or have changed."""
        for block in dict.fromkeys(blocks):
            if block in self._widgets:
                await self._widgets[block].show()
            elif block not in self._blocks[: self._first]:
                self._blocks.append(block)
                await self.mount(self._made(block))
        if self._follows:
            if len(self._widgets) > _MOST:
                await self._take_off()
            self.scroll_end(animate=False)

    async def put_before(self, blocks: Sequence[Block], *, more: bool) -> None:
        """What happened earlier, fetched when it was wanted; ``more`` says whether there is still earlier."""
        self.has_earlier = more
        self._blocks[:0] = blocks
        self._first += len(blocks)
        await self._put_back()

    async def begin_anew(self) -> None:
        """For another session."""
        for widget in self._widgets.values():
            await widget.remove()
        self._blocks, self._widgets, self._first = [], {}, 0
        self._follows = True
        self._say_what_is_above()

    def on_resize(self) -> None:
        if self._follows:
            self.scroll_end(animate=False)

    def fold_last(self) -> None:
        """Folds or unfolds the newest call."""
        for block in reversed(self._blocks):
            widget = self._widgets.get(block)
            if isinstance(widget, CallWidget):
                widget.action_fold()
                return

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._follows = self._is_at_end() or (self._follows and new_value > old_value)
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
            # What one was reading stays where it was.
            self.call_after_refresh(
                lambda: self.scroll_to(y=at + self.virtual_size.height - height, animate=False, force=True)
            )
        self._say_what_is_above()

    def _say_what_is_above(self) -> None:
        self._top.display = self._first > 0 or self.has_earlier
        self._top.update(f"… {self._first:,} earlier blocks: scroll up" if self._first else "… earlier: scroll up")

    def _is_at_end(self) -> bool:
        return self.max_scroll_y - self.scroll_y <= 1

    async def _tick(self) -> None:
        """How long running calls have taken."""
        for block, widget in list(self._widgets.items()):
            if isinstance(widget, CallWidget) and widget.block.state is State.RUNNING:
                await self._widgets[block].show()

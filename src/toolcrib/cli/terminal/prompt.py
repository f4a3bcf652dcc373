"""Where one types: Enter sends, Ctrl+J begins a line, arrows bring back what was said, Tab completes a command."""

from textual import events
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from toolcrib.cli.slash import Command, completions, help_lines
from toolcrib.cli.terminal.history import History


class Prompt(TextArea):
    """The input. What is said and wanted goes out as messages."""

    class Sent(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Typed(Message):
        """What was typed so far may be the beginning of a command."""

        def __init__(self, fitting: list[Command]) -> None:
            super().__init__()
            self.fitting = fitting

    class UndoWanted(Message):
        """The undo key where there is nothing typed to undo."""

    class LeftFor(Message):
        """The keys are wanted elsewhere: by what waits, or by the next that takes any."""

    class Paged(Message):
        """The conversation is to be read, up or down."""

        def __init__(self, *, up: bool) -> None:
            super().__init__()
            self.up = up

    def __init__(self, history: History) -> None:
        super().__init__(id="prompt", compact=True, highlight_cursor_line=False, placeholder="Say what you want")
        self._history = history

    def put(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)

    def on_text_area_changed(self) -> None:
        self.post_message(self.Typed(completions(self.text)))

    async def _on_key(self, event: events.Key) -> None:
        if self._takes(event.key):
            event.stop()
            event.prevent_default()
            return
        await super()._on_key(event)

    def _takes(self, key: str) -> bool:
        """Whether the key means something here that it does not mean in a text."""
        match key:
            case "enter":
                self._send()
            case "ctrl+j" | "shift+enter" | "alt+enter":
                self.insert("\n")
            case "tab" if fitting := completions(self.text):
                self.put(f"{fitting[0].name} " if fitting[0].takes else fitting[0].name)
            case "tab":
                self.post_message(self.LeftFor())
            case "pageup" | "pagedown":
                self.post_message(self.Paged(up=key == "pageup"))
            case "up" if self.cursor_location[0] == 0:
                self._recall(self._history.older(self.text))
            case "down" if self.cursor_location[0] == self.document.line_count - 1:
                self._recall(self._history.newer())
            case "ctrl+z" if not self.text:
                self.post_message(self.UndoWanted())
            case _:
                return False
        return True

    def _send(self) -> None:
        text = self.text.strip()
        if not text:
            return
        self._history.add(text)
        self.text = ""
        self.post_message(self.Sent(text))

    def _recall(self, text: str | None) -> None:
        if text is not None:
            self.put(text)


class Fitting(OptionList, can_focus=False):
    """The commands that what was typed may become."""

    def __init__(self) -> None:
        super().__init__(id="fitting")
        self.display = False

    def show(self, fitting: list[Command]) -> None:
        self.display = bool(fitting)
        self.clear_options()
        self.add_options(Option(line) for line in help_lines(fitting))

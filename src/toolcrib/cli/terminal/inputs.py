"""The message box: Enter sends, Ctrl+J starts a line, arrow keys walk the history, Tab completes commands and paths."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from toolcrib.cli.message_context import SHOWN_TYPES
from toolcrib.cli.terminal.completions import InputCompletion

_MAX_ENTRIES = 500


class PromptHistory:
    """The input history for the arrow keys and the search, stored in a file in local mode.

    It starts at the newest entry. The unsent draft comes after that.
    """

    def __init__(self, notes: Path | None) -> None:
        self._file = notes / "said.jsonl" if notes else None
        self._entries = _read(self._file)
        self._at = len(self._entries)
        self._draft = ""

    @property
    def newest_first(self) -> list[str]:
        """What was sent, each text once."""
        return list(dict.fromkeys(reversed(self._entries)))

    def add(self, text: str) -> None:
        if not self._entries or self._entries[-1] != text:
            self._entries = [*self._entries, text][-_MAX_ENTRIES:]
            self._write()
        self._at = len(self._entries)

    def older(self, typed: str) -> str | None:
        """Returns the previous entry; None at the oldest."""
        if self._at == 0:
            return None
        if self._at == len(self._entries):
            self._draft = typed
        self._at -= 1
        return self._entries[self._at]

    def newer(self) -> str | None:
        """Returns the next entry, or the draft after the newest; None after the draft."""
        if self._at == len(self._entries):
            return None
        self._at += 1
        return self._draft if self._at == len(self._entries) else self._entries[self._at]

    def _write(self) -> None:
        if self._file is None:
            return
        with suppress(OSError):
            self._file.touch(mode=0o600)
            self._file.write_text("".join(json.dumps(entry) + "\n" for entry in self._entries))


def _read(file: Path | None) -> list[str]:
    if file is None or not file.exists():
        return []
    with suppress(OSError, ValueError):
        return [str(json.loads(line)) for line in file.read_text().splitlines()][-_MAX_ENTRIES:]
    return []


class PromptInput(TextArea):
    """The message box. Posts messages for what a person sends and requests."""

    @dataclass
    class Sent(Message):
        text: str

    @dataclass
    class Typed(Message):
        """The text or the chosen completion has changed."""

        completions: Sequence[InputCompletion]
        chosen: int

    class SendHeldWanted(Message):
        """Enter in an empty message box."""

    class DetachWanted(Message):
        """Backspace in an empty message box."""

    class LeftFor(Message):
        """The focus moves to the pending panel, or else to the next widget."""

    @dataclass
    class PathPasted(Message):
        """The path of an image was pasted, or dropped on the terminal."""

        text: str

    @dataclass
    class Paged(Message):
        """The conversation scrolls up or down by a page."""

        up: bool

    def __init__(self, history: PromptHistory, complete: Callable[[str], Sequence[InputCompletion]]) -> None:
        super().__init__(id="prompt", compact=True, highlight_cursor_line=False, placeholder="Message the agent…")
        self.sent_history = history
        self._complete = complete
        self._completions: Sequence[InputCompletion] = ()
        self._chosen = 0
        # A text that was put here is complete: the arrow keys walk the history.
        self._put: str | None = None

    def put(self, text: str) -> None:
        self._put = text
        self.text = text
        self.move_cursor(self.document.end)

    def on_text_area_changed(self) -> None:
        self.suggest()

    def suggest(self) -> None:
        """Shows the completions of the text before the cursor."""
        is_typed = self.text != self._put
        self._completions, self._chosen = self._complete(self._before()) if is_typed else (), 0
        self.post_message(self.Typed(self._completions, self._chosen))

    def on_paste(self, event: events.Paste) -> None:
        text = event.text.strip()
        if "\n" not in text and text.rstrip("'\"").lower().endswith(SHOWN_TYPES):
            event.stop()
            event.prevent_default()
            self.post_message(self.PathPasted(text))

    async def _on_key(self, event: events.Key) -> None:
        if self._takes(event.key):
            event.stop()
            event.prevent_default()
            return
        await super()._on_key(event)

    def _takes(self, key: str) -> bool:
        """Handles keys that do more than edit the text. Returns whether it did."""
        if self._completions and self._takes_completion(key):
            return True
        match key:
            case "enter":
                self._send()
            case "ctrl+j" | "shift+enter" | "alt+enter":
                self.insert("\n")
            case "tab":
                self.post_message(self.LeftFor())
            case "pageup" | "pagedown":
                self.post_message(self.Paged(up=key == "pageup"))
            case "up" if self.cursor_location[0] == 0:
                if (older := self.sent_history.older(self.text)) is not None:
                    self.put(older)
            case "down" if self.cursor_location[0] == self.document.line_count - 1:
                if (newer := self.sent_history.newer()) is not None:
                    self.put(newer)
            case "backspace" if not self.text:
                self.post_message(self.DetachWanted())
            case "ctrl+underscore":
                # Ctrl+Z, the usual key, suspends.
                self.undo()
            case _:
                return False
        return True

    def _takes_completion(self, key: str) -> bool:
        chosen = self._completions[self._chosen]
        match key:
            case "tab":
                self._insert_completion(chosen)
            case "enter" if chosen.on_enter:
                self._insert_completion(chosen)
            case "up" | "down":
                self._chosen = (self._chosen + (1 if key == "down" else -1)) % len(self._completions)
                self.post_message(self.Typed(self._completions, self._chosen))
            case "escape":
                self._completions = ()
                self.post_message(self.Typed((), 0))
            case _:
                return False
        return True

    def _insert_completion(self, chosen: InputCompletion) -> None:
        row, column = self.cursor_location
        start = column - len(chosen.typed.rpartition("\n")[2])
        self.replace(chosen.text, (row, start), (row, column), maintain_selection_offset=False)
        self.move_cursor((row, start + len(chosen.text)))
        self.suggest()

    def _before(self) -> str:
        """The text of the cursor's line before it; the whole text before it in the first line."""
        row, column = self.cursor_location
        line = self.document.get_line(row)[:column]
        # A command is the first word of a message.
        return f"\n{line}" if row else line

    def _send(self) -> None:
        text = self.text.strip()
        if not text:
            self.post_message(self.SendHeldWanted())
            return
        self.sent_history.add(text)
        self.text = ""
        self.post_message(self.Sent(text))


class Suggestions(OptionList, can_focus=False):
    """The completions of what is typed."""

    def __init__(self) -> None:
        super().__init__(id="fitting")
        self.display = False

    def show(self, completions: Sequence[InputCompletion], chosen: int) -> None:
        self.display = bool(completions)
        self.clear_options()
        # The sign shows the chosen one also without colours.
        self.add_options(
            Option(Text.assemble("> " if number == chosen else "  ", one.label, no_wrap=True, overflow="ellipsis"))
            for number, one in enumerate(completions)
        )
        self.highlighted = chosen if completions else None

"""The message box: Enter sends, Ctrl+J starts a line, arrow keys walk the history, Tab completes a command."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from uuid import UUID

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from toolcrib.cli.slash_commands import SlashCommand, completions, help_lines, session_line
from toolcrib.client import SessionOut

_MAX_ENTRIES = 500


class PromptHistory:
    """The input history for the arrow keys, stored in a file in local mode.

    It starts at the newest entry. The unsent draft comes after that.
    """

    def __init__(self, notes: Path | None) -> None:
        self._file = notes / "said.jsonl" if notes else None
        self._entries = _read(self._file)
        self._at = len(self._entries)
        self._draft = ""

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
        """The text has changed. ``fitting`` are the commands that start with it."""

        fitting: list[SlashCommand]

    class SendHeldWanted(Message):
        """Enter in an empty message box."""

    class LeftFor(Message):
        """The focus moves to the pending panel, or else to the next widget."""

    @dataclass
    class Paged(Message):
        """The conversation scrolls up or down by a page."""

        up: bool

    def __init__(self, history: PromptHistory) -> None:
        super().__init__(id="prompt", compact=True, highlight_cursor_line=False, placeholder="Message the agent…")
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
        """Handles keys that do more than edit the text. Returns whether it did."""
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
                if (older := self._history.older(self.text)) is not None:
                    self.put(older)
            case "down" if self.cursor_location[0] == self.document.line_count - 1:
                if (newer := self._history.newer()) is not None:
                    self.put(newer)
            case "ctrl+underscore":
                # Ctrl+Z, the usual key, suspends.
                self.undo()
            case _:
                return False
        return True

    def _send(self) -> None:
        text = self.text.strip()
        if not text:
            self.post_message(self.SendHeldWanted())
            return
        self._history.add(text)
        self.text = ""
        self.post_message(self.Sent(text))


class CommandSuggestions(OptionList, can_focus=False):
    """The commands that start with the typed text."""

    def __init__(self) -> None:
        super().__init__(id="fitting")
        self.display = False

    def show(self, fitting: list[SlashCommand]) -> None:
        self.display = bool(fitting)
        self.clear_options()
        self.add_options(Option(line) for line in help_lines(fitting))


class SessionPicker(ModalScreen[str | None]):
    """Lists earlier sessions. Returns the id of the chosen one, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "leave", show=False)]

    def __init__(self, sessions: Sequence[SessionOut], *, here: UUID) -> None:
        super().__init__()
        self._sessions = sessions
        self._here = here

    def compose(self) -> ComposeResult:
        options = [
            Option(Text(session_line(one, here=one.id == self._here), no_wrap=True), id=str(one.id))
            for one in self._sessions
        ]
        listed = OptionList(*options, id="sessions")
        listed.border_title = "Continue a session"
        listed.border_subtitle = "Enter choose   Esc cancel"
        yield listed

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)

    def action_leave(self) -> None:
        self.dismiss(None)

"""A list over the chat, from which a person picks an entry. What they type filters it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

_MOST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class PickerEntry:
    """An entry: what is returned, and what is shown and searched."""

    value: str
    label: str


class Picker(ModalScreen[str | None]):
    """Returns the value of the picked entry, or None. An entry fits if it has every typed word."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "leave", show=False, priority=True),
        Binding("up,ctrl+p", "move(-1)", show=False, priority=True),
        Binding("down,ctrl+n", "move(1)", show=False, priority=True),
        Binding("pageup", "move(-10)", show=False, priority=True),
        Binding("pagedown", "move(10)", show=False, priority=True),
    ]

    def __init__(self, title: str, entries: Sequence[PickerEntry], *, empty: str) -> None:
        super().__init__()
        self._title = title
        self._entries = entries
        self._empty = empty
        self._fitting: list[PickerEntry] = []

    def compose(self) -> ComposeResult:
        with Vertical(id="picker") as box:
            box.border_title = self._title
            box.border_subtitle = "type to filter   Enter choose   Esc cancel"
            yield Input(placeholder="Filter", compact=True)
            listed = OptionList(id="picked")
            listed.can_focus = False
            yield listed

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._show("")

    def on_input_changed(self, event: Input.Changed) -> None:
        self._show(event.value)

    def on_input_submitted(self) -> None:
        at = self.query_one(OptionList).highlighted
        self.dismiss(self._fitting[at].value if at is not None and self._fitting else None)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._fitting[event.option_index].value)

    def action_move(self, by: int) -> None:
        listed = self.query_one(OptionList)
        if self._fitting:
            listed.highlighted = min(max((listed.highlighted or 0) + by, 0), len(self._fitting) - 1)

    def action_leave(self) -> None:
        self.dismiss(None)

    def _show(self, typed: str) -> None:
        words = typed.lower().split()
        fitting = (one for one in self._entries if all(word in one.label.lower() for word in words))
        self._fitting = list(fitting)[:_MOST_SHOWN]
        listed = self.query_one(OptionList)
        listed.clear_options()
        labels = [one.label for one in self._fitting] or [self._empty]
        listed.add_options(
            Option(Text(label, no_wrap=True, overflow="ellipsis"), disabled=not self._fitting) for label in labels
        )
        listed.highlighted = 0 if self._fitting else None

"""Earlier sessions to choose from."""

from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from toolcrib.cli.slash import session_line
from toolcrib.client import Session


class SessionPicker(ModalScreen[str | None]):
    """Gives the id of the session that was chosen, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "leave", show=False)]

    def __init__(self, sessions: Sequence[Session], *, here: UUID) -> None:
        super().__init__()
        self._sessions = sessions
        self._here = here

    def compose(self) -> ComposeResult:
        options = [
            Option(Text(session_line(one, here=one.id == self._here), no_wrap=True), id=str(one.id))
            for one in self._sessions
        ]
        listed = OptionList(*options, id="sessions")
        listed.border_title = "Go on with"
        listed.border_subtitle = "Enter choose   Esc back"
        yield listed

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)

    def action_leave(self) -> None:
        self.dismiss(None)

"""What stands above the input while a person is needed. A panel says how it was decided with one message."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import Input, Static

from toolcrib.cli.showing import about_approval, given_arguments, proposed_changes, rule_text
from toolcrib.client import Approval

_SCROLLING: list[BindingType] = [
    Binding("up", "up", show=False),
    Binding("down", "down", show=False),
    Binding("pageup", "page_up", show=False),
    Binding("pagedown", "page_down", show=False),
]


class Panel(Vertical, can_focus=True):
    """Something to read that can be scrolled, and a line that names the keys."""

    BINDINGS: ClassVar[list[BindingType]] = _SCROLLING

    def __init__(self, lines: list[Text], *, title: str, keys: str) -> None:
        super().__init__(classes="panel")
        self.border_title = title
        self._lines = lines
        self._keys = keys

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="reading", can_focus=False):
            yield Static(Text("\n").join(self._lines), classes="lines")
        with Vertical(classes="foot"):
            yield Static(Text(self._keys), classes="keys")
            yield from self.compose_foot()

    def compose_foot(self) -> ComposeResult:
        """More that stands below, beside the keys."""
        yield from ()

    def tell_keys(self, text: str) -> None:
        self.query_one(".keys", Static).update(Text(text))

    @property
    def _reading(self) -> VerticalScroll:
        return self.query_one(".reading", VerticalScroll)

    def action_up(self) -> None:
        self._reading.scroll_up(animate=False)

    def action_down(self) -> None:
        self._reading.scroll_down(animate=False)

    def action_page_up(self) -> None:
        self._reading.scroll_page_up(animate=False)

    def action_page_down(self) -> None:
        self._reading.scroll_page_down(animate=False)


class ConfirmPanel(Panel):
    """What would be done, and whether to do it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *_SCROLLING,
        Binding("y", "decide(True)", show=False),
        Binding("n,escape", "decide(False)", show=False),
    ]

    class Decided(Message):
        def __init__(self, yes: bool) -> None:
            super().__init__()
            self.yes = yes

    def __init__(self, lines: list[Text]) -> None:
        super().__init__(lines, title="Shall it be done?", keys="y do it   n leave it")

    def action_decide(self, yes: bool) -> None:
        self.post_message(self.Decided(yes))


class ApprovalPanel(Panel):
    """A call that waits: what it would do, and y, n or a. A no may have a reason; an always shows its rule first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *_SCROLLING,
        Binding("y", "yes", show=False),
        Binding("n", "no", show=False),
        Binding("a", "always", show=False),
        Binding("escape", "back", show=False),
    ]
    KEYS = "y allow   n deny   a always in this session   ↑↓ read"

    class Decided(Message):
        def __init__(
            self, approval: Approval, *, approved: bool, scope: str = "once", reason: str | None = None
        ) -> None:
            super().__init__()
            self.approval = approval
            self.approved = approved
            self.scope = scope
            self.reason = reason

    def __init__(self, approval: Approval, *, more: int = 0) -> None:
        lines = [*about_approval(approval), *proposed_changes(approval)]
        title = "Allow it?" if not more else f"Allow it? ({more} more wait)"
        super().__init__([*lines, *given_arguments(approval.shown)], title=title, keys=self.KEYS)
        self.approval = approval
        self._always = False

    def compose_foot(self) -> ComposeResult:
        reason = Input(placeholder="Why not? Enter: no reason. Esc: back.", classes="reason", compact=True)
        reason.display = False
        yield reason

    def action_yes(self) -> None:
        self.post_message(self.Decided(self.approval, approved=True, scope="session" if self._always else "once"))

    def action_no(self) -> None:
        if self._always:
            self.action_back()
            return
        self._asks_why(asks=True)

    def action_always(self) -> None:
        self._always = True
        self.tell_keys(f"From now on, in this session, unasked: {rule_text(self.approval.offered)}\ny yes   n no, back")

    def action_back(self) -> None:
        self._always = False
        self.tell_keys(self.KEYS)
        self._asks_why(asks=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Decided(self.approval, approved=False, reason=event.value.strip() or None))

    def _asks_why(self, *, asks: bool) -> None:
        reason = self.query_one(".reason", Input)
        reason.display = asks
        self.query_one(".keys").display = not asks
        (reason if asks else self).focus()

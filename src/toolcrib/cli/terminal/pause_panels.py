"""The panels above the message box for pending approvals and questions. Each posts its decision as a message."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import Input, Markdown, OptionList, SelectionList, Static
from textual.widgets.option_list import Option
from textual.widgets.selection_list import Selection

from toolcrib.cli.decision_prompts import ReviewedPlan
from toolcrib.cli.terminal_text import (
    about_approval,
    expected,
    given_arguments,
    one_line,
    plain,
    proposed_changes,
    rule_text,
)
from toolcrib.client import ApprovalData, QuestionData

_SCROLLING: list[BindingType] = [
    Binding("up", "up", show=False),
    Binding("down", "down", show=False),
    Binding("pageup", "page_up", show=False),
    Binding("pagedown", "page_down", show=False),
]


class Panel(Vertical, can_focus=True):
    """Scrollable text, and a line that lists the keys."""

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
        """Adds widgets below the keys."""
        yield from ()

    def show_keys(self, text: str) -> None:
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
    """Shows what would happen, and asks for confirmation."""

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
        super().__init__(lines, title="Continue?", keys="y yes   n cancel")

    def action_decide(self, yes: bool) -> None:
        self.post_message(self.Decided(yes))


class ApprovalPanel(Panel):
    """A pending call and its effect. Asks for a reason to reject, and shows the rule before it always approves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *_SCROLLING,
        Binding("y", "yes", show=False),
        Binding("n", "no", show=False),
        Binding("a", "always", show=False),
        Binding("escape", "back", show=False),
    ]
    KEYS = "y approve   n reject   a always in this session   ↑↓ scroll"
    KEYS_FOR_ONCE = "y approve   n reject   ↑↓ scroll"

    class Decided(Message):
        def __init__(
            self, approval: ApprovalData, *, approved: bool, scope: str = "once", reason: str | None = None
        ) -> None:
            super().__init__()
            self.approval = approval
            self.approved = approved
            self.scope = scope
            self.reason = reason

    def __init__(self, approval: ApprovalData, *, more: int = 0) -> None:
        lines = [*about_approval(approval), *proposed_changes(approval)]
        title = "Approve?" if not more else f"Approve? ({more} more pending)"
        super().__init__([*lines, *given_arguments(approval.shown)], title=title, keys=self._choices(approval))
        self.approval = approval
        self._always = False

    def compose_foot(self) -> ComposeResult:
        reason = Input(
            placeholder="Reason (the agent sees it). Enter: reject. Esc: back.", classes="reason", compact=True
        )
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
        if self.approval.is_for_once:
            return
        self._always = True
        self.show_keys(f"Always approve in this session: {rule_text(self.approval.offered)}\ny approve   n back")

    def action_back(self) -> None:
        self._always = False
        self.show_keys(self._choices(self.approval))
        self._asks_why(asks=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Decided(self.approval, approved=False, reason=event.value.strip() or None))

    def _choices(self, approval: ApprovalData) -> str:
        return self.KEYS_FOR_ONCE if approval.is_for_once else self.KEYS

    def _asks_why(self, *, asks: bool) -> None:
        reason = self.query_one(".reason", Input)
        reason.display = asks
        self.query_one(".keys").display = not asks
        (reason if asks else self).focus()


class QuestionPanel(Vertical, can_focus=True):
    """Asks the items of a question in order, each with its plan, and posts all answers at once."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
    ]

    class Answered(Message):
        """The answer to each item, as text."""

        def __init__(self, question: QuestionData, given: Mapping[str, str]) -> None:
            super().__init__()
            self.question = question
            self.given = given

    def __init__(self, question: QuestionData, plans: Mapping[str, ReviewedPlan]) -> None:
        super().__init__(classes="panel")
        self.question = question
        self._plans = plans
        self._given: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        yield Vertical(classes="item")
        yield Static(classes="foot keys")

    async def on_mount(self) -> None:
        await self._ask()

    async def ask_again(self, flaw: str) -> None:
        """Starts again at the first item, because the server rejected the answers."""
        self._given = {}
        await self._ask(flaw)

    def focus_answer(self) -> None:
        for widget in self.query("OptionList, SelectionList, Input"):
            widget.focus()
            return

    def action_page(self, pages: int) -> None:
        for reading in self.query(".reading").results(VerticalScroll):
            reading.scroll_relative(y=pages * reading.size.height, animate=False)

    async def on_key(self, event: events.Key) -> None:
        """A digit chooses from a list, unless the person is typing."""
        lists = [one for one in self.query(OptionList) if not isinstance(one, SelectionList)]
        if not (event.key.isdecimal() and lists and not isinstance(self.app.focused, Input)):
            return
        number = int(event.key) - 1
        if 0 <= number < lists[0].option_count:
            event.stop()
            await self._take(str(lists[0].get_option_at_index(number).id))

    async def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if not isinstance(event.option_list, SelectionList):
            await self._take(str(event.option.id))

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value.strip():
            await self._take(event.value)

    async def take_selected(self) -> None:
        chosen = self.query_one(SelectionList)
        await self._take(json.dumps(list(chosen.selected), ensure_ascii=False))

    async def _take(self, given: str) -> None:
        self._given[self._item["name"]] = given
        if len(self._given) < len(self.question.questions):
            await self._ask()
        else:
            self.post_message(self.Answered(self.question, self._given))

    @property
    def _item(self) -> Mapping[str, Any]:
        return self.question.questions[len(self._given)]

    async def _ask(self, flaw: str = "") -> None:
        item, count = self._item, len(self.question.questions)
        number = f" ({len(self._given) + 1} of {count})" if count > 1 else ""
        self.border_title = f"{one_line(item['name'], 40)}{number}"
        container = self.query_one(".item", Vertical)
        await container.remove_children()
        if flaw:
            await container.mount(Static(Text(plain(flaw), style="red"), classes="flaw"))
        if (plan := self._plans.get(item["name"])) is not None:
            await container.mount(_reading(plan))
        await container.mount(Static(Text(plain(item["question"])), classes="question"))
        ways, keys = _ways(item)
        await container.mount(*ways)
        self.query_one(".keys", Static).update(Text(keys))
        if self.has_focus_within or self._given or flaw:
            self.focus_answer()


class MultiSelect(SelectionList[str]):
    """Space selects, Enter confirms the selection."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "select", show=False),
        Binding("enter", "done", show=False, priority=True),
    ]

    async def action_done(self) -> None:
        for panel in self.ancestors_with_self:
            if isinstance(panel, QuestionPanel):
                await panel.take_selected()
                return


def _reading(plan: ReviewedPlan) -> VerticalScroll:
    title = Static(Text(plain(plan.path), style="bold"))
    return VerticalScroll(title, Markdown(plain(plan.body), open_links=False), classes="reading", can_focus=False)


def _ways(item: Mapping[str, Any]) -> tuple[list[OptionList | Input], str]:
    """Returns the widgets that answer an item, and the help for their keys."""
    schema: Mapping[str, Any] = item["schema"]
    several = schema.get("items") if schema.get("type") == "array" else None
    if isinstance(several, Mapping) and isinstance(several.get("enum"), list):
        options = [Selection(one_line(one, 100), str(one)) for one in several["enum"]]
        return [MultiSelect(*options, classes="choices")], "Space choose   Enter done"
    choices = _choices(item)
    if not choices:
        return [Input(placeholder=_hint(schema), classes="words", compact=True)], "Enter answer"
    numbered = [
        Option(Text(f"{number}. {one_line(label, 100)}"), id=value)
        for number, (label, value) in enumerate(choices, start=1)
    ]
    ways: list[OptionList | Input] = [OptionList(*numbered, classes="choices")]
    if schema.get("type") == "string" and "enum" not in schema:
        ways.append(Input(placeholder="or type your own answer (Tab)", classes="words", compact=True))
    return ways, "1–9 or Enter choose   PageUp/PageDown scroll"


def _choices(item: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the label and the value of each choice."""
    schema = item["schema"]
    if item.get("buttons"):
        return [(str(button["label"]), str(button["value"])) for button in item["buttons"]]
    if isinstance(schema.get("enum"), list):
        return [(str(one), one if isinstance(one, str) else json.dumps(one)) for one in schema["enum"]]
    if schema.get("type") == "boolean":
        return [("Yes", "true"), ("No", "false")]
    return []


def _hint(schema: Mapping[str, Any]) -> str:
    return "Your answer" if schema.get("type") == "string" else expected(schema)

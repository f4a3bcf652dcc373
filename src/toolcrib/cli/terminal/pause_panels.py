"""The panels above the message box for paused calls. Each posts its decision as a message."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.console import Group
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import Input, Markdown, OptionList, SelectionList, Static
from textual.widgets.option_list import Option
from textual.widgets.selection_list import Selection

from toolcrib.cli.decision_prompts import ReviewedPlan, edited_rule, rule_as_text
from toolcrib.cli.terminal_text import (
    Line,
    approval_text,
    expected,
    one_line,
    plain,
    rule_text,
)
from toolcrib.client import ApprovalOut, GrantRuleOut, QuestionOut, QuestionPauseOut
from toolcrib.client.review_pages import lacks_lines
from toolcrib.core.errors import BadArguments

# A longer call starts with so many lines, and each key press adds some: laying out 10,000 takes more than a second.
_FIRST_LINES = 300
_MORE_LINES = 3_000


class Panel(Vertical, can_focus=True):
    """Scrollable text, and a line that lists the keys."""

    # Subclasses add theirs to these.
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "read('up')", show=False),
        Binding("down", "read('down')", show=False),
        Binding("pageup", "read('page_up')", show=False),
        Binding("pagedown", "read('page_down')", show=False),
    ]

    def __init__(self, lines: Sequence[Line], *, title: str, keys: str) -> None:
        super().__init__(classes="panel")
        self.border_title = title
        self._lines = lines
        self._keys = keys

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="reading", can_focus=False):
            yield Static(Group(*self._lines), classes="lines")
            yield from self.compose_rest()
        with Vertical(classes="foot"):
            yield Static(Text(self._keys), classes="keys")
            yield from self.compose_foot()

    def compose_rest(self) -> ComposeResult:
        """Adds widgets below the lines."""
        yield from ()

    def compose_foot(self) -> ComposeResult:
        """Adds widgets below the keys."""
        yield from ()

    def show_keys(self, text: str) -> None:
        self.query_one(".keys", Static).update(Text(text))

    def action_read(self, direction: str) -> None:
        """Scrolls the text."""
        getattr(self.query_one(".reading"), f"scroll_{direction}")(animate=False)


class ConfirmPanel(Panel):
    """Shows what would happen, and asks for confirmation."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "decide(True)", show=False),
        Binding("n,escape", "decide(False)", show=False),
    ]

    @dataclass
    class Decided(Message):
        yes: bool

    def __init__(self, lines: Sequence[Line]) -> None:
        super().__init__(lines, title="Continue?", keys="y yes   n cancel")

    def action_decide(self, yes: bool) -> None:
        self.post_message(self.Decided(yes))


class ApprovalPanel(Panel):
    """A pending call and its effect. Asks for a reason to reject, and shows the rule before it always approves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "yes", show=False),
        Binding("n", "no", show=False),
        Binding("a", "always", show=False),
        Binding("s", "show_more", show=False),
        Binding("e", "edit", show=False),
        Binding("o", "other", show=False),
        Binding("escape", "back", show=False),
    ]

    @dataclass
    class Decided(Message):
        approval: ApprovalOut
        approved: bool
        scope: str = "once"
        reason: str | None = None
        rule: GrantRuleOut | None = None

    @dataclass
    class Lacking(Message):
        """Asks for the lines that the approval is too long for."""

        panel: "ApprovalPanel"
        approval: ApprovalOut

    def __init__(self, approval: ApprovalOut, *, more: int = 0) -> None:
        title = "Approve?" if not more else f"Approve? ({more} more pending)"
        always = "" if approval.is_for_once else "a always in this session   "
        self.approval = approval
        self._all = approval_text(approval)
        first = self._all[:_FIRST_LINES]
        # How many lines are on the screen; and whether the approval is too long to have all of its lines.
        self._drawn = len(first)
        self._lacks_lines = lacks_lines(approval)
        more_lines = "s more   " if self._lacks_lines or len(self._all) > _FIRST_LINES else ""
        super().__init__(first, title=title, keys=f"y approve   n reject   {always}{more_lines}↑↓ scroll")
        self._always = False
        self._rules = [approval.suggested_rule, *approval.other_rules]

    def compose_rest(self) -> ComposeResult:
        rest = Static(self._rest(), classes="rest")
        rest.display = bool(self._rest().plain)
        yield rest

    async def show_whole(self, approval: ApprovalOut) -> None:
        """Shows the approval with the lines that were missing."""
        self.approval, self._all, self._lacks_lines = approval, approval_text(approval), False
        drawn, self._drawn = self._drawn, 0
        await self.query(".more").remove()
        self._draw(max(drawn, _FIRST_LINES) + _MORE_LINES)

    def _draw(self, count: int) -> None:
        """Draws as many more lines. What was drawn stays: drawing it again would take as long."""
        lines = self._all[self._drawn : self._drawn + count]
        if self._drawn == 0:
            self.query_one(".lines", Static).update(Group(*lines))
        else:
            self.query_one(".reading").mount(
                Static(Group(*lines), classes="lines more"), before=self.query_one(".rest")
            )
        self._drawn += len(lines)
        self.show_rest()

    def show_rest(self) -> None:
        """Shows how much is not on the screen, and how to see it."""
        rest = self.query_one(".rest", Static)
        rest.display = bool(self._rest().plain)
        rest.update(self._rest())

    def _rest(self) -> Text:
        left = len(self._all) - self._drawn
        known = f"{left:,} more lines" if left else ""
        if self._lacks_lines:
            known = f"{known}, and others that are not loaded" if known else "Not all lines are loaded"
        return Text(f"… {known}: s shows more" if known else "", style="yellow")

    def action_show_more(self) -> None:
        if self._lacks_lines:
            self.query_one(".rest", Static).update(Text("Loading all lines …", style="yellow"))
            self.post_message(self.Lacking(self, self.approval))
        elif self._drawn < len(self._all):
            self._draw(_MORE_LINES)

    def compose_foot(self) -> ComposeResult:
        reason = Input(
            placeholder="Reason (the agent sees it). Enter: reject. Esc: back.", classes="why reason", compact=True
        )
        rule = Input(
            placeholder="Enter: use this rule. Esc: back.", classes="rule reason", compact=True, select_on_focus=False
        )
        reason.display = rule.display = False
        yield reason
        yield rule

    def action_yes(self) -> None:
        if not self._always:
            self.post_message(self.Decided(self.approval, approved=True))
            return
        self.post_message(self.Decided(self.approval, approved=True, scope="session", rule=self._rules[0]))

    def action_no(self) -> None:
        if self._always:
            self.action_back()
            return
        self._asks_why(asks=True)

    def action_always(self) -> None:
        if self.approval.is_for_once:
            return
        self._always = True
        other = "o another   " if len(self._rules) > 1 else ""
        keys = f"y approve   e edit   {other}n back"
        self.show_keys(f"Always approve in this session: {rule_text(self._rules[0])}\n{keys}")

    def action_other(self) -> None:
        """Shows the next suggested rule."""
        if self._always:
            self._rules = [*self._rules[1:], self._rules[0]]
            self.action_always()

    def action_edit(self) -> None:
        """Opens the rule for editing."""
        if self._always:
            box = self.query_one(".rule", Input)
            box.value = rule_as_text(self._rules[0])
            box.cursor_position = len(box.value)
            self._asks_for(".rule", asks=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leaves Esc to the chat, which stops the run, if there is nothing to go back from."""
        return action != "back" or self._always or self.query_one(".reason", Input).display

    def action_back(self) -> None:
        self._always = False
        self.show_keys(self._keys)
        self._asks_for(".rule", asks=False)
        self._asks_why(asks=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.input.has_class("rule"):
            try:
                self._rules[0] = edited_rule(self._rules[0], [event.value.strip()])
            except BadArguments as error:
                self.notify("; ".join(f"{name}: {flaw}" for name, flaw in error.fields.items()), severity="error")
                return
            self._asks_for(".rule", asks=False)
            self.action_always()
            return
        self.post_message(self.Decided(self.approval, approved=False, reason=event.value.strip() or None))

    def _asks_why(self, *, asks: bool) -> None:
        self._asks_for(".why", asks=asks)

    def _asks_for(self, selector: str, *, asks: bool) -> None:
        box = self.query_one(selector, Input)
        box.display = asks
        self.query_one(".keys").display = not asks
        (box if asks else self).focus()


class QuestionPanel(Vertical, can_focus=True):
    """Asks the items of a question in order, each with its plan, and posts all answers at once."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
    ]

    @dataclass
    class Answered(Message):
        """The answer to each item, as text."""

        question: QuestionPauseOut
        given: Mapping[str, str]

    def __init__(self, question: QuestionPauseOut, plans: Mapping[str, ReviewedPlan]) -> None:
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

    async def on_multi_select_done(self, event: "MultiSelect.Done") -> None:
        await self._take(json.dumps(event.selected, ensure_ascii=False))

    async def _take(self, given: str) -> None:
        self._given[self._item.name] = given
        if len(self._given) < len(self.question.questions):
            await self._ask()
        else:
            self.post_message(self.Answered(self.question, self._given))

    @property
    def _item(self) -> QuestionOut:
        return self.question.questions[len(self._given)]

    async def _ask(self, flaw: str = "") -> None:
        item, count = self._item, len(self.question.questions)
        number = f" ({len(self._given) + 1} of {count})" if count > 1 else ""
        self.border_title = f"{one_line(item.name, 40)}{number}"
        container = self.query_one(".item", Vertical)
        await container.remove_children()
        if flaw:
            await container.mount(Static(Text(plain(flaw), style="red"), classes="flaw"))
        if (plan := self._plans.get(item.name)) is not None:
            title, text = Static(Text(plain(plan.path), style="bold")), Markdown(plain(plan.body), open_links=False)
            await container.mount(VerticalScroll(title, text, classes="reading", can_focus=False))
        await container.mount(Static(Text(plain(item.question)), classes="question"))
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

    @dataclass
    class Done(Message):
        selected: list[str]

    def action_done(self) -> None:
        self.post_message(self.Done(list(self.selected)))


def _ways(item: QuestionOut) -> tuple[list[OptionList | Input], str]:
    """Returns the widgets that answer an item, and the help for their keys."""
    schema = item.schema_
    several = schema.get("items") if schema.get("type") == "array" else None
    if isinstance(several, Mapping) and isinstance(several.get("enum"), list):
        options = [Selection(one_line(one, 100), str(one)) for one in several["enum"]]
        return [MultiSelect(*options, classes="choices")], "Space choose   Enter done"
    choices = _choices(item)
    if not choices:
        hint = "Your answer" if schema.get("type") == "string" else expected(schema)
        return [Input(placeholder=hint, classes="words", compact=True)], "Enter answer"
    numbered = [
        Option(Text(f"{number}. {one_line(label, 100)}"), id=value)
        for number, (label, value) in enumerate(choices, start=1)
    ]
    ways: list[OptionList | Input] = [OptionList(*numbered, classes="choices")]
    if schema.get("type") == "string" and "enum" not in schema:
        ways.append(Input(placeholder="or type your own answer (Tab)", classes="words", compact=True))
    return ways, "1–9 or Enter choose   PageUp/PageDown scroll"


def _choices(item: QuestionOut) -> list[tuple[str, str]]:
    """Returns the label and the value of each choice."""
    schema = item.schema_
    if item.buttons:
        return [(button.label, button.value) for button in item.buttons]
    if isinstance(schema.get("enum"), list):
        return [(str(one), one if isinstance(one, str) else json.dumps(one)) for one in schema["enum"]]
    if schema.get("type") == "boolean":
        return [("Yes", "true"), ("No", "false")]
    return []

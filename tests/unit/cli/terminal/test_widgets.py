"""Single widgets: every kind of question, approvals by key, the prompt, and a long conversation."""

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.message import Message
from textual.pilot import Pilot
from textual.widget import Widget

from toolcrib.cli.message_context import AttachedText
from toolcrib.cli.terminal.chat_app import ChatApp
from toolcrib.cli.terminal.completions import PathList, command_completions
from toolcrib.cli.terminal.composer import Composer
from toolcrib.cli.terminal.inputs import PromptHistory, PromptInput, Suggestions
from toolcrib.cli.terminal.pause_panels import ApprovalPanel, QuestionPanel
from toolcrib.cli.terminal.transcript import AgentBlock, Block, CallBlockState, ToolCallBlock, UserBlock
from toolcrib.cli.terminal.transcript_view import CallBody, ToolCallWidget, TranscriptView
from toolcrib.client import ApprovalOut, GrantRuleOut, QuestionPauseOut
from toolcrib.sdk.workspace_location import WorkspaceLocation

NOW = datetime.now(UTC)
TEXT = {"name": "word", "question": "Which word?", "schema": {"type": "string"}}
NUMBER = {"name": "count", "question": "How many?", "schema": {"type": "integer"}}
BUTTONS = {
    "name": "colour",
    "question": "Which colour?",
    "schema": {"type": "string"},
    "buttons": [{"label": "Red", "value": "r"}, {"label": "Green", "value": "g"}],
}
YES_OR_NO = {"name": "sure", "question": "Sure?", "schema": {"type": "boolean"}}
SEVERAL = {
    "name": "days",
    "question": "Which days?",
    "schema": {"type": "array", "items": {"type": "string", "enum": ["Monday", "Tuesday", "Friday"]}},
}


class Stage(App[None]):
    """One widget above the prompt, and the messages it posts."""

    def __init__(self, make: Callable[[], Widget]) -> None:
        super().__init__()
        self.make = make
        self.given: list[Message] = []

    def compose(self) -> ComposeResult:
        yield Suggestions()
        yield self.make()
        yield PromptInput(PromptHistory(None), command_completions)

    def on_question_panel_answered(self, event: QuestionPanel.Answered) -> None:
        self.given.append(event)

    def on_approval_panel_decided(self, event: ApprovalPanel.Decided) -> None:
        self.given.append(event)

    def on_prompt_input_sent(self, event: PromptInput.Sent) -> None:
        self.given.append(event)

    def on_transcript_view_typed(self, event: TranscriptView.Typed) -> None:
        self.given.append(event)

    def on_prompt_input_typed(self, event: PromptInput.Typed) -> None:
        self.query_one(Suggestions).show(event.completions, event.chosen)


PENDING: dict[str, Any] = {
    "session_id": None,
    "run_id": None,
    "agent_id": None,
    "agent_name": "assistant",
    "state": "pending",
    "decided_by": None,
    "decided_by_name": None,
    "decided_at": None,
    "created_at": NOW,
    "expires_at": NOW + timedelta(days=7),
}


def question(*items: dict[str, Any]) -> QuestionPauseOut:
    asked = [{"buttons": [], **item} for item in items]
    facts = {"tool": "ask_user", "questions": asked, "answers": None, "answered_with_button": []}
    return QuestionPauseOut.model_validate({**PENDING, "id": uuid4(), "call_id": uuid4(), **facts})


def approval() -> ApprovalOut:
    facts: dict[str, Any] = {
        "tool": "write",
        "input": {"path": "/a"},
        "arguments_sha256": "0" * 64,
        "changes": [{"path": "/a", "change": "created", "diff": "+one\n", "added": 1, "removed": 0}],
        "effects": {"reads": [], "writes": [], "runs": None, "contacts": []},
        "rule": "",
        "reason": "It is dangerous.",
        "isolation": None,
        "suggested_rule": {"tools": ["write"], "paths": ["@project/a"], "commands": None},
        "grant_scope": None,
        "rejection_reason": None,
        "replaces": None,
    }
    return ApprovalOut.model_validate({**PENDING, "id": uuid4(), "call_id": uuid4(), **facts})


async def pressed(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
    await pilot.pause()


@pytest.mark.parametrize(
    ("item", "keys", "given"),
    [
        (TEXT, ("s", "e", "a", "enter"), "sea"),
        (NUMBER, ("4", "2", "enter"), "42"),
        (BUTTONS, ("2",), "g"),
        (BUTTONS, ("down", "enter"), "g"),
        (BUTTONS, ("tab", "b", "l", "u", "e", "enter"), "blue"),
        (YES_OR_NO, ("2",), "false"),
        (SEVERAL, ("space", "down", "down", "space", "enter"), '["Monday", "Friday"]'),
    ],
    ids=["text", "number", "digit", "arrows", "own words", "boolean", "several"],
)
async def test_every_kind_of_question_is_answered_with_keys(
    item: dict[str, Any], keys: tuple[str, ...], given: str
) -> None:
    app = Stage(lambda: QuestionPanel(question(item), {}))
    async with app.run_test(size=(80, 24)) as pilot:
        app.query_one(QuestionPanel).focus_answer()
        await pressed(pilot, *keys)

    [answered] = app.given
    assert isinstance(answered, QuestionPanel.Answered)
    assert answered.given == {item["name"]: given}


async def test_several_questions_are_asked_in_order_and_again_after_invalid_answers() -> None:
    app = Stage(lambda: QuestionPanel(question(BUTTONS, NUMBER), {}))
    async with app.run_test(size=(80, 24)) as pilot:
        panel = app.query_one(QuestionPanel)
        panel.focus_answer()
        await pressed(pilot, "1")
        second = str(panel.border_title)
        panel.focus_answer()
        await pressed(pilot, "7", "enter")
        await panel.ask_again("7 is too many")
        await pilot.pause()
        again = str(panel.border_title)

    [answered] = app.given
    assert isinstance(answered, QuestionPanel.Answered)
    assert answered.given == {"colour": "r", "count": "7"}
    assert (second, again) == ("count (2 of 2)", "colour (1 of 2)")


@pytest.mark.parametrize(
    ("keys", "decided"),
    [
        (("y",), (True, "once", None)),
        (("n", "enter"), (False, "once", None)),
        (("n", "b", "a", "d", "enter"), (False, "once", "bad")),
        (("a", "y"), (True, "session", None)),
        (("a", "n", "y"), (True, "once", None)),
        (("n", "escape", "y"), (True, "once", None)),
    ],
    ids=["yes", "no", "no because", "always", "not always", "not no"],
)
async def test_an_approval_is_decided_with_keys(keys: tuple[str, ...], decided: tuple[bool, str, str | None]) -> None:
    app = Stage(lambda: ApprovalPanel(approval()))
    async with app.run_test(size=(80, 24)) as pilot:
        app.query_one(ApprovalPanel).focus()
        await pressed(pilot, *keys)

    [event] = app.given
    assert isinstance(event, ApprovalPanel.Decided)
    assert (event.approved, event.scope, event.reason) == decided


@pytest.mark.parametrize(
    ("keys", "paths"),
    [
        (("a", "y"), ["@project/a"]),
        (("a", "o", "y"), ["@project/**"]),
        (("a", "e", "b", "enter", "y"), ["@project/ab"]),
        (("a", "e", "b", "escape", "a", "y"), ["@project/a"]),
        (("e", "o", "a", "o", "o", "y"), ["@project/a"]),
    ],
    ids=["suggested", "another", "edited", "not edited", "first again"],
)
async def test_the_rule_is_chosen_and_edited_with_keys_before_it_is_saved(
    keys: tuple[str, ...], paths: list[str]
) -> None:
    wider = GrantRuleOut(tools=["write"], paths=["@project/**"])
    pending = approval().model_copy(update={"other_rules": [wider]})
    app = Stage(lambda: ApprovalPanel(pending))
    async with app.run_test(size=(80, 24)) as pilot:
        app.query_one(ApprovalPanel).focus()
        await pressed(pilot, *keys)

    [event] = app.given
    assert isinstance(event, ApprovalPanel.Decided)
    assert event.scope == "session"
    assert event.rule is not None
    assert event.rule.paths == paths


async def test_an_approval_for_once_only_offers_no_wider_scope() -> None:
    closed = approval().model_copy(update={"rule": "protected-name"})
    app = Stage(lambda: ApprovalPanel(closed))
    async with app.run_test(size=(80, 24)) as pilot:
        app.query_one(ApprovalPanel).focus()
        await pressed(pilot, "a", "y")

    [event] = app.given
    assert isinstance(event, ApprovalPanel.Decided)
    assert (event.approved, event.scope) == (True, "once")


async def test_the_prompt_accepts_lines_commands_and_history() -> None:
    app = Stage(lambda: Widget())
    async with app.run_test(size=(80, 24)) as pilot:
        prompt = app.query_one(PromptInput)
        prompt.focus()
        await pressed(pilot, "o", "n", "e", "ctrl+j", "t", "w", "o", "enter")
        await pressed(pilot, "up")
        recalled = prompt.text
        await pressed(pilot, "ctrl+a", "down")
        prompt.put("")
        await pressed(pilot, "slash", "t")
        offered = app.query_one(Suggestions).option_count
        await pressed(pilot, "tab")
        completed = prompt.text

    [sent] = app.given
    assert isinstance(sent, PromptInput.Sent)
    assert sent.text == "one\ntwo"
    assert recalled == "one\ntwo"
    assert (offered, completed) == (1, "/trust ")


async def test_a_long_conversation_renders_only_its_end_until_scrolled() -> None:
    blocks: list[Block] = [UserBlock(f"message {number}") for number in range(200)]
    app = Stage(TranscriptView)
    async with app.run_test(size=(80, 24)) as pilot:
        conversation = app.query_one(TranscriptView)
        for start in range(0, len(blocks), 20):
            await conversation.show(blocks[start : start + 20])
        await pilot.pause()
        few, at_end = len(conversation.children), conversation.is_vertical_scroll_end
        conversation.scroll_home(animate=False)
        await pilot.pause()
        await pilot.pause()
        more = len(conversation.children)

    assert few <= 121 + 20
    assert at_end
    assert few < more <= few + 41


async def test_a_call_is_expanded_while_it_runs_and_collapsed_after() -> None:
    call = ToolCallBlock("bash", {"command": "make"}, output="compiling\n")
    app = Stage(TranscriptView)
    async with app.run_test(size=(80, 24)) as pilot:
        conversation = app.query_one(TranscriptView)
        await conversation.show([call])
        widget = app.query_one(ToolCallWidget)
        running = widget.unfolded
        call.state, call.output = CallBlockState.DONE, "done\n"
        await conversation.show([call])
        ended = widget.unfolded
        widget.focus()
        await pressed(pilot, "enter")
        opened = widget.unfolded

    assert (running, ended, opened) == (True, False, True)


async def test_letters_go_to_the_prompt_when_a_block_has_the_focus() -> None:
    app = Stage(TranscriptView)
    async with app.run_test(size=(80, 24)) as pilot:
        conversation = app.query_one(TranscriptView)
        await conversation.show([ToolCallBlock("bash", {"command": "make"}, state=CallBlockState.DONE)])
        conversation.focus()
        await pressed(pilot, "h")
        app.query_one(ToolCallWidget).focus()
        await pressed(pilot, "i", "space")
        was_expanded = app.query_one(ToolCallWidget).unfolded

    assert [event.character for event in app.given if isinstance(event, TranscriptView.Typed)] == ["h", "i", " "]
    # What a person types must not fold the block.
    assert not was_expanded


class StyledStage(Stage):
    CSS_PATH = Path(inspect.getfile(ChatApp)).with_name("look.tcss")


async def test_a_long_failure_is_cut_at_the_edge_of_its_line() -> None:
    call = ToolCallBlock("bash", {"command": "make"}, output="=" * 200, state=CallBlockState.FAILED)
    app = StyledStage(TranscriptView)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.query_one(TranscriptView).show([call])
        await pilot.pause()
        head = app.query_one(".call-head").render_line(0).text

    assert head.startswith("▸ ✗ bash make  failed: ====")
    assert head.endswith("…")


async def test_a_command_that_failed_without_network_says_so_in_its_line() -> None:
    output = "npm error code EAI_AGAIN\n[the network is closed for this command. Repeat the call with `hosts`]"
    given = {"command": "npm install tiny-sum --registry http://registry.example.com"}
    call = ToolCallBlock("bash", given, output=output, state=CallBlockState.FAILED, seconds=12.3)
    app = StyledStage(TranscriptView)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.query_one(TranscriptView).show([call])
        await pilot.pause()
        head = app.query_one(".call-head").render_line(0).text

    assert "12.3 s  failed: the network is closed" in head


async def dragged(pilot: Pilot[None], start: tuple[int, int], end: tuple[int, int]) -> str | None:
    """The text that a person selects with the mouse, from one position on the screen to another."""
    await pilot.mouse_down(offset=start)
    await pilot.hover(offset=end)
    await pilot.mouse_up(offset=end)
    await pilot.pause()
    return pilot.app.screen.get_selected_text()


async def test_what_is_dragged_over_is_selected_in_answers_and_in_the_output_of_calls() -> None:
    call = ToolCallBlock("bash", {"command": "make"}, output="one two\n  three\nfour\n")
    app = StyledStage(TranscriptView)
    async with app.run_test(size=(80, 24)) as pilot:
        await app.query_one(TranscriptView).show([AgentBlock("alpha *beta* gamma\n\n    code  1\n    code 2\n"), call])
        await pilot.pause()
        rows = [strip.text for strip in app.screen.query_one(CallBody).render_lines(Region(0, 0, 78, 3))]
        answer, output = app.query_one("MarkdownParagraph").region, app.query_one(CallBody).region
        in_answer = await dragged(pilot, (answer.x + 6, answer.y), (answer.x + 9, answer.y))
        in_output = await dragged(pilot, (output.x + 8, output.y), (output.x + 8, output.y + 1))
        across = await dragged(pilot, (answer.x + 6, answer.y), (output.x + 8, output.y + 2))

    assert [row.rstrip() for row in rows] == ["    one two", "      three", "    four"]
    assert in_answer == "beta"
    assert in_output == "two\n      thr"
    assert across is not None
    assert across.startswith("beta gamma\n")
    assert "code  1\ncode 2" in across
    assert across.endswith("    one two\n      three\n    four")


async def test_cells_of_tables_are_wrapped_and_not_cut() -> None:
    cells = ["名前", "説明", "りんご", "long words in a cell, " * 12, "x" * 100, "y"]
    rows = [f"| {left} | {right} |" for left, right in zip(cells[::2], cells[1::2], strict=True)]
    app = StyledStage(TranscriptView)
    async with app.run_test(size=(80, 200)) as pilot:
        await app.query_one(TranscriptView).show([AgentBlock("\n".join([rows[0], "|---|---|", *rows[1:]]))])
        await pilot.pause()
        shown = [
            "".join(cell.render_line(y).text for y in range(cell.size.height))
            for cell in app.query(".header, .cell").results(Widget)
        ]

    assert ["".join(cell.split()) for cell in shown] == ["".join(cell.split()) for cell in cells]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("", ["a.py", "README.md"]),
        ("pars", ["src/parser.py", "src/old/my_parser.py"]),
        ("READ", ["README.md"]),
        ("src/old", ["src/old/", "src/old/my_parser.py"]),
        ("smp", ["src/old/my_parser.py"]),
        ("xyz", []),
    ],
)
def test_paths_are_found_by_their_start_a_part_or_letters_in_order(typed: str, found: list[str]) -> None:
    paths = PathList(["src/old/", "src/old/my_parser.py", "README.md", "src/", "src/parser.py", "a.py"])

    assert paths.closest(typed, 2) == found


async def test_the_arrow_keys_choose_a_completion_but_walk_the_history_of_a_recalled_command() -> None:
    app = Stage(lambda: Widget())
    async with app.run_test(size=(80, 24)) as pilot:
        prompt = app.query_one(PromptInput)
        prompt.focus()
        await pressed(pilot, "o", "n", "e", "enter")
        await pressed(pilot, "slash", "r", "e")
        await pressed(pilot, "down", "tab")
        chosen = prompt.text
        prompt.put("")
        await pressed(pilot, "slash", "l", "o", "g", "enter")
        await pressed(pilot, "up", "up")
        recalled = prompt.text

    assert chosen == "/review"
    assert recalled == "one"


async def test_what_is_attached_while_a_message_is_sent_goes_with_the_next() -> None:
    # The server is not asked: nothing in the words is a file.
    composer = Composer(WorkspaceLocation(cast("Any", None), cast("Any", None), None))

    class Box(App[None]):
        def compose(self) -> ComposeResult:
            yield composer

    early, late = AttachedText("command", "$ ls"), AttachedText("command", "$ make")
    async with Box().run_test():
        composer.attach("/a.png")
        composer.attach(early)
        sent = composer.attached
        composer.attach("/b.png")
        composer.attach(late)
        message = composer.prepare("Look", sent)
        composer.detach(sent)

        assert message.attachments == ("/a.png",)
        assert "$ ls" in message.text
        assert "$ make" not in message.text
        assert composer.attached == ("/b.png", late)

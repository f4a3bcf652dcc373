"""``toolcrib answer``: lists and answers the questions of agents."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from toolcrib.cli.approval_inbox import (
    InboxSelection,
    PauseArgument,
    found_by,
    pending_calls,
    print_pending,
    record,
)
from toolcrib.cli.command_options import JsonOption, with_options
from toolcrib.cli.terminal_text import (
    Row,
    age,
    one_line,
    plain,
    print_json,
    print_lines,
    short_id,
    shown_question,
)
from toolcrib.cli.tool import parse_value
from toolcrib.client import PausedCallOut, QuestionOut, QuestionPauseOut
from toolcrib.core.errors import BadArguments, Misconfigured

_SUFFIX = ": "


@with_options(InboxSelection)
def answer(
    selection: InboxSelection,
    pause_id: PauseArgument = None,
    values: Annotated[list[str] | None, typer.Argument(help="name=value for each question.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List pending questions, or answer one. Prompts for answers that are not given.

    A value is text if the question expects text, else JSON. The label or number of a button works too.

    Example: toolcrib answer 3f9a2b1c framework=Vitest
    """
    with selection.open() as inbox:
        pending = pending_calls(inbox, selection.workspace, kind="question")
        if pause_id is None:
            headings, rows = ("id", "age", "name", "question"), (row for _, one in pending for row in _rows(one))
            print_pending(pending, headings, rows, as_json=as_json, empty="No pending questions.")
            return
        workspace, question = found_by(pending, pause_id, "answer")
        assert isinstance(question, QuestionPauseOut)
        given = _split(values or ())
        if not as_json:
            print_lines(shown_question(question, workspace.name), wrap=True)
        answers, buttons = answers_to(question, given, _ask)
        try:
            answered = inbox.answer(workspace.id, question.id, answers, buttons=buttons)
        except BadArguments as error:
            raise BadArguments(error.fields, "Invalid answer:") from None
        if as_json:
            print_json(record(workspace, answered))
        else:
            typer.echo("Answered.")


def _rows(pause: PausedCallOut) -> Iterator[Row]:
    assert isinstance(pause, QuestionPauseOut)
    first: Row = (short_id(pause.id), Text(age(pause.created_at), no_wrap=True))
    for item in pause.questions:
        yield *first, one_line(item.name, 40), one_line(item.question, 200)
        first = ("", "")


def _split(values: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals:
            raise Misconfigured(f"{plain(value)!r} is not of the form name=value.")
        given[name] = text
    return given


def answers_to(
    question: QuestionPauseOut, given: Mapping[str, str], read: Callable[[str], str]
) -> tuple[dict[str, Any], list[str]]:
    """Returns the answers, and the names of the items answered by a button. Prompts for items that are not given."""
    answers: dict[str, Any] = dict(given)
    buttons = []
    for item in question.questions:
        name = item.name
        text = given[name] if name in given else read(f"{one_line(name, 100)}{_SUFFIX}")
        button = _button(item, text)
        answers[name] = parse_value(text, item.schema_) if button is None else button
        if button is not None:
            buttons.append(name)
    return answers, buttons


def _ask(prompt: str) -> str:
    try:
        return str(typer.prompt(prompt, prompt_suffix=""))
    except typer.Abort:
        name = prompt.removesuffix(_SUFFIX)
        raise Misconfigured(f"No answer to {name!r}. Pass it as {name}=value.") from None


def _button(item: QuestionOut, text: str) -> str | None:
    """Returns the value of the button with this value, label or number; None if there is none."""
    for named in ({one.value: one.value for one in item.buttons}, {one.label: one.value for one in item.buttons}):
        if text in named:
            return named[text]
    if text.isdecimal() and 1 <= int(text) <= len(item.buttons):
        return item.buttons[int(text) - 1].value
    return None

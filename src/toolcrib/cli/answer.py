"""``toolcrib answer``: lists and answers the questions of agents."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolcrib.cli.approval_inbox import (
    AsOption,
    DatabaseOption,
    ServerOption,
    WorkspaceOption,
    chosen,
    found_by,
    open_inbox,
)
from toolcrib.cli.terminal_text import age, one_line, plain, show_question
from toolcrib.client import QuestionData, WorkspaceData
from toolcrib.core.errors import BadArguments, Misconfigured

_SUFFIX = ": "


def answer(
    question_id: Annotated[str | None, typer.Argument(help="The id, or its first or last characters.")] = None,
    values: Annotated[list[str] | None, typer.Argument(help="name=value for each question.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    workspace: WorkspaceOption = None,
    server: ServerOption = None,
    database: DatabaseOption = False,
    email: AsOption = None,
) -> None:
    """List pending questions, or answer one. Prompts for answers that are not given.

    A value is text if the question expects text, else JSON. The label or number of a button works too.

    Example: toolcrib answer 3f9a2b1c framework=Vitest
    """
    with open_inbox(server=server, database=database, email=email, notify=_say) as inbox:
        waiting = [
            (member_workspace, one)
            for member_workspace in chosen(inbox, workspace)
            for one in inbox.questions(member_workspace)
        ]
        if question_id is None:
            _list(waiting, as_json=as_json)
            return
        member_workspace, question = found_by(waiting, question_id, "answer")
        given = _split(values or ())
        if not as_json:
            show_question(Console(), question, member_workspace.name)
        answers, pressed = answers_to(question, given, _ask)
        try:
            answered = inbox.answer(member_workspace, question, answers, by_button=pressed)
        except BadArguments as error:
            flaws = "\n".join(f"  {one_line(name)}: {one_line(flaw)}" for name, flaw in error.fields.items())
            raise BadArguments(error.fields, f"Invalid answer:\n{flaws}") from None
        typer.echo(json.dumps(_record(member_workspace, answered)) if as_json else "Answered.")


def _list(waiting: Sequence[tuple[WorkspaceData, QuestionData]], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([_record(workspace, one) for workspace, one in waiting]))
        return
    if not waiting:
        typer.echo("No pending questions.")
        return
    table = Table("id", "age", "name", "question", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for _, one in waiting:
        for number, item in enumerate(one.questions):
            first = number == 0
            table.add_row(
                Text(str(one.id)[-8:] if first else "", no_wrap=True),
                Text(age(one.created_at) if first else "", no_wrap=True),
                Text(one_line(item["name"], 40)),
                Text(one_line(item["question"], 200)),
            )
    console = Console()
    console.print(table)
    console.print(Text("\nAnswer with: toolcrib answer ID [name=value …]", style="dim"))


def _split(values: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals:
            raise Misconfigured(f"{plain(value)!r} is not of the form name=value.")
        given[name] = text
    return given


def answers_to(
    question: QuestionData, given: Mapping[str, str], read: Callable[[str], str]
) -> tuple[dict[str, Any], list[str]]:
    """Returns the answers, and the names of the items answered by a button. Prompts for items that are not given."""
    answers: dict[str, Any] = dict(given)
    pressed = []
    for item in question.questions:
        name = item["name"]
        text = given[name] if name in given else read(f"{one_line(name, 100)}{_SUFFIX}")
        button = _button(item, text)
        answers[name] = _value(item["schema"], text) if button is None else button
        if button is not None:
            pressed.append(name)
    return answers, pressed


def _ask(prompt: str) -> str:
    try:
        return str(typer.prompt(prompt, prompt_suffix=""))
    except typer.Abort:
        name = prompt.removesuffix(_SUFFIX)
        raise Misconfigured(f"No answer to {name!r}. Pass it as {name}=value.") from None


def _button(item: Mapping[str, Any], text: str) -> str | None:
    """Returns the value of the button with this value, label or number; None if there is none."""
    buttons = item.get("buttons") or []
    for part in ("value", "label"):
        for button in buttons:
            if button[part] == text:
                return str(button["value"])
    if text.isdecimal() and 1 <= int(text) <= len(buttons):
        return str(buttons[int(text) - 1]["value"])
    return None


def _value(schema: Mapping[str, Any], text: str) -> Any:
    if schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _record(workspace: WorkspaceData, question: QuestionData) -> dict[str, object]:
    return {"workspace": workspace.name, "workspace_id": str(workspace.id), **question.model_dump(mode="json")}


def _say(text: str) -> None:
    typer.echo(text, err=True)

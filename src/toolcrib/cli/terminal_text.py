"""Formats lists, errors, paused calls and events for a terminal. Escapes agents' text: no markup, no control codes."""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

import typer
from pydantic import BaseModel
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from toolcrib.client import ApprovalOut, GrantRuleOut, PausedCallOut, QuestionPauseOut
from toolcrib.core.approval_text import LineStyle, ShownLine, change_head
from toolcrib.core.budgets import dollars
from toolcrib.core.display_text import SIGNS, diff_lines, escape, escape_prose, shown_line
from toolcrib.core.errors import NotFound, ToolcribError
from toolcrib.core.mcp_servers import shown_access
from toolcrib.schemas.paused_calls import PreviewChangeOut

T = TypeVar("T")
Row = Sequence[str | Text]

_BRIEF_PATH = 26
_WIDEST = 10_000
_STYLES: dict[LineStyle, str] = {
    "title": "bold",
    "note": "dim",
    "warning": "yellow",
    "change": "bold",
    "hunk": "cyan",
    "gone": "red",
    "new": "green",
}
# What stands for characters that would not be seen.
_MARK = "black on yellow"


def plain(text: object) -> str:
    """Escapes characters that make text look different from what it is."""
    return escape(str(text))


def prose(text: object) -> str:
    """Escapes what people and models write in words. Emoji stay whole."""
    return escape_prose(str(text))


def one_line(given_text: object, most: int = 400) -> str:
    text = plain(given_text).replace("\n", "\\n").replace("\t", " ")
    return text if len(text) <= most else f"{text[: most - 1]}…"


def print_json(value: object) -> None:
    """Prints a value as one line of JSON. It may contain models and dataclasses."""
    typer.echo(json.dumps(value, default=_to_json))


def _to_json(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


@dataclass(frozen=True, slots=True)
class HangingLine:
    """A line that wraps at the width. What continues it starts below its text, so that it cannot look like a line."""

    gutter: str
    text: Text
    # Sentences break between words; code breaks where the row is full.
    by_words: bool = False

    # A terminal asks several times for each layout of the same width.
    _rows: dict[int, list[Segment]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if (rows := self._rows.get(options.max_width)) is None:
            rows = list(self._segments(console, options.max_width))
            self._rows.clear()
            self._rows[options.max_width] = rows
        return rows

    def _segments(self, console: Console, width: int) -> Iterator[Segment]:
        room = max(1, width - cell_len(self.gutter))
        style, gutter = self.text.style, self.gutter
        for row in self.text.divide(_row_ends(self.text.plain, room, by_words=self.by_words)):
            # As spans: rendered alone, a text without spans has no style at all.
            line = Text(end="").append(gutter, style).append_text(row)
            yield from Segment.simplify(line.render(console))
            yield Segment.line()
            gutter = " " * cell_len(gutter)


def _row_ends(text: str, room: int, *, by_words: bool) -> list[int]:
    """Returns where a text must break to fit into rows of this many cells. No character is lost."""
    if text.isascii() and not by_words:
        return list(range(room, len(text), room))
    ends: list[int] = []
    width = 0
    for at, sign in enumerate(text):
        width += cell_len(sign)
        if width > room:
            start = ends[-1] if ends else 0
            space = text.rfind(" ", start, at) + 1 if by_words else 0
            ends.append(space or at)
            width = cell_len(text[ends[-1] : at + 1])
    return ends


Line = Text | HangingLine


def print_lines(lines: Iterable[Line], *, wrap: bool = False) -> None:
    """Prints lines. Wraps long ones between words if asked; otherwise code and paths stay in one piece.

    In a terminal, hanging lines wrap at its width.
    """
    console = Console()
    for line in lines:
        if isinstance(line, Text):
            console.print(line, soft_wrap=not wrap)
        elif console.is_terminal:
            console.print(line, end="")
        else:
            console.print(Text.assemble(line.gutter, line.text), soft_wrap=True)


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """Yields a function that shows the last line of a call's output in place; without a terminal, nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return

    def show(text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{one_line(text.strip().rpartition(chr(10))[2], 100)}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def print_table(headings: Sequence[str], rows: Iterable[Row]) -> None:
    """Prints aligned columns. No name is cut: it may be what the next command needs."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    # A pipe has no width, and programs expect one line for each row.
    has_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    Console(width=None if has_width else _WIDEST).print(table)


def print_list(
    found: Sequence[T], headings: Sequence[str], row: Callable[[T], Row], *, as_json: bool, empty: str
) -> None:
    """Prints what a command found: as JSON, as a table, or that there is nothing."""
    if as_json:
        print_json(found)
    elif found:
        print_table(headings, map(row, found))
    else:
        typer.echo(empty)


def short_id(id_: UUID) -> str:
    """Returns the end of an id, which differs more than its beginning."""
    return str(id_)[-8:]


def find_by_id(found: Iterable[T], text: str, id_of: Callable[[T], UUID], *, missing: str) -> T:
    """Returns the one whose id starts or ends with ``text``. Raises NotFound with ``missing`` if there is none."""
    wanted = text.lower()
    ids = [(str(id_of(one)), one) for one in found]
    fitting = [one for id_, one in ids if len(wanted) >= 4 and (id_.startswith(wanted) or id_.endswith(wanted))]
    if not fitting:
        raise NotFound(missing)
    if len(fitting) > 1:
        raise NotFound(f"{len(fitting)} ids match {one_line(text, 60)!r}. Give more characters of the id.")
    return fitting[0]


def error_text(error: ToolcribError) -> str:
    """Returns the message of an error, and what is wrong with each field unless the message says it."""
    if any(flaw in error.message for flaw in error.fields.values()):
        return error.message
    return "\n  ".join([error.message, *_flaws(error.fields)])


def _flaws(fields: Mapping[str, object]) -> list[str]:
    return [f"{one_line(field, 60)}: {one_line(flaw)}" for field, flaw in fields.items()]


def invalid_answer(fields: Mapping[str, str]) -> str:
    """Returns what is wrong with the answers to a question, in one line."""
    return "Invalid answer: " + "; ".join(_flaws(fields))


def age(then: datetime) -> str:
    """Formats the time since ``then`` in its largest unit."""
    return _span((datetime.now(UTC) - then).total_seconds())


def _span(seconds: float) -> str:
    seconds = max(0, int(seconds))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def cost_text(cost: Decimal | None, unpriced_turns: int) -> str:
    """Formats what models cost, and that the price of some turns is unknown."""
    if cost is None:
        return "unknown price"
    return f"{dollars(cost)}, and {unpriced_turns:,} turns of unknown price" if unpriced_turns else dollars(cost)


def what_would_change(approval: ApprovalOut) -> Text:
    """Summarizes the effect of a call in a few lines."""
    effects = approval.effects
    lines = [_changed(change) for change in approval.changes[:2]]
    if (more := _count(approval.changes) - len(lines)) > 0 and lines:
        lines.append(Text(f"and {more:,} more", style="dim"))
    if effects.runs:
        lines.append(Text.assemble(("run ", "bold"), one_line(effects.runs, 120)))
    for host in effects.contacts[:2]:
        lines.append(Text.assemble(("contact ", "bold"), one_line(host, 80)))
    if not lines:
        verb = "write " if effects.writes else "read "
        paths = effects.writes or effects.reads
        lines = [Text.assemble((verb, "bold"), one_line(location, 120)) for location in paths[:2]]
    return Text("\n").join(lines or [Text("unknown until it runs", style="dim")])


def what_is_asked(pause: QuestionPauseOut) -> Text:
    """Summarizes the questions of a call, one per line."""
    return Text("\n").join(Text.assemble(("answer ", "bold"), one_line(one.question, 120)) for one in pause.questions)


def _count(changes: Sequence[PreviewChangeOut]) -> int:
    return sum(1 if change.count is None else change.count for change in changes)


def _changed(change: PreviewChangeOut) -> Text:
    """Summarizes a change for a list."""
    if change.path is None:
        return Text(change_head(change.model_dump(by_alias=True)), style="dim")
    path = one_line(change.path, 1_000)
    # The end of a path identifies it best.
    path = f"…{path[1 - _BRIEF_PATH :]}" if len(path) > _BRIEF_PATH else path
    text = Text.assemble((f"{change.change} ", "bold"), path)
    if change.added is not None:
        text.append(f" +{change.added}", style="green")
        text.append(f" -{change.removed}", style="red")
    return text


def shown_approval(approval: ApprovalOut, workspace: str) -> list[Line]:
    """Formats the call, why it needs approval, and its effect."""
    who, *what = approval_text(approval)
    return [who, Text(f"in {_asked_when(approval, workspace)}", style="dim"), *what, Text()]


def approval_text(approval: ApprovalOut) -> list[HangingLine]:
    """Formats a call and its effect: the lines that every client shows."""
    return [styled(line) for line in approval.lines]


def styled(line: ShownLine) -> HangingLine:
    """Formats a line. Marks for what would not be seen have a style of their own."""
    text = Text(style=_STYLES.get(line.style, ""), no_wrap=True)
    for part, is_mark in line.parts:
        text.append(part, style=_MARK if is_mark else None)
    return HangingLine(line.gutter, text, by_words=line.style == "note")


def _asked_when(pause: PausedCallOut, workspace: str) -> str:
    expires = _span((pause.expires_at - datetime.now(UTC)).total_seconds())
    return f"{one_line(workspace, 80)}, asked {age(pause.created_at)} ago, expires in {expires}"


def shown_diff(diff: str, most: int | None = None) -> list[HangingLine]:
    """Formats a unified diff, at most so many lines of it; then it ends with how many are missing."""
    lines = [styled(ShownLine(line.kind, f"  {SIGNS[line.kind]}", line.parts)) for line in diff_lines(diff)]
    if most is None or len(lines) <= most:
        return lines
    more = HangingLine("  ", Text(f"… {len(lines) - most:,} more lines of this diff", style="dim"))
    return [*lines[:most], more]


def rule_text(rule: GrantRuleOut) -> str:
    """Describes a grant."""
    if rule.hosts is not None and rule.commands is None and "bash" in rule.tools:
        # It approves no command.
        return f"{_listed(rule.tools)} may contact {_listed(rule.hosts)}; commands are decided as before"
    text = f"any call of {_listed(rule.tools)}"
    if rule.commands is not None:
        text += f" that runs:{_commands(rule.commands)}"
    if rule.paths is not None:
        text += f" on {_listed(rule.paths)}"
    if rule.arguments is not None:
        text += f" with {_listed([f'{name}={glob}' for name, glob in rule.arguments.items()])}"
    if rule.hosts is not None:
        text += f"; it may contact {_listed(rule.hosts)}"
    if access := shown_access(rule.access or ()):
        text += f"; it has access to {_listed(access)}"
    return text


def _commands(commands: Sequence[str]) -> str:
    """A command on the same line; below, line by line, if there are several or if it has several lines."""
    lines = [shown_line(line) for command in commands for line in command.split("\n")]
    return f" {lines[0]}" if len(lines) == 1 else "".join(f"\n  │ {line}" for line in lines)


def _listed(names: Sequence[str], separator: str = ", ") -> str:
    more = f" and {len(names) - 20:,} more" if len(names) > 20 else ""
    return separator.join(one_line(name, 200) for name in names[:20]) + more


def shown_question(question: QuestionPauseOut, workspace: str) -> list[Text]:
    """Formats the questions of a call, each with its choices or the expected answer."""
    lines = [Text(f"In {_asked_when(question, workspace)}", style="dim")]
    for item in question.questions:
        lines += [Text(), Text.assemble((one_line(item.name, 100), "bold"), ": ", plain(item.question))]
        lines += [Text(f"  {number}. {one_line(one.label, 200)}") for number, one in enumerate(item.buttons, start=1)]
        if not item.buttons:
            lines.append(Text(f"  {expected(item.schema_)}", style="dim"))
    return [*lines, Text()]


def expected(schema: Mapping[str, Any]) -> str:
    """Describes the expected answer in one line."""
    if isinstance(schema.get("enum"), list):
        return "one of " + ", ".join(one_line(one, 60) for one in schema["enum"][:20])
    items = schema.get("items")
    if schema.get("type") == "array" and isinstance(items, Mapping) and isinstance(items.get("enum"), list):
        return 'a list, such as ["A", "B"], of ' + ", ".join(one_line(one, 60) for one in items["enum"][:20])
    return one_line(json.dumps(schema, ensure_ascii=False), 300)


_UNDONE = {"created": "restored", "deleted": "removed", "modified": "changed back", "moved": "moved back"}
_REDONE = {**_UNDONE, "modified": "changed again", "moved": "moved again"}


def change_lines(found: Mapping[str, Any], *, undone: bool) -> list[Text]:
    """Formats what an undo or a redo changed or would change, and the files that it skipped."""
    would, verbs = "would be " if found.get("dry_run") else "", _UNDONE if undone else _REDONE
    lines = []
    in_git = Counter(path for change in found["changes"] if (path := git_folder(change["path"])))
    for change in found["changes"]:
        if git_folder(change["path"]):
            continue
        source = f" (from {one_line(change['from_path'], 100)})" if change.get("from_path") else ""
        verb = verbs.get(change["change"], change["change"])
        lines.append(Text(f"  {would}{verb}: {one_line(change['path'], 100)}{source}"))
    for folder, number in in_git.items():
        lines.append(Text(f"  {would}{verbs['modified']}: {one_line(folder, 100)} ({counted(number)} of git)"))
    for clash in found["conflicts"]:
        text = f"  skipped: {one_line(clash['path'], 100)} ({one_line(clash['reason'], 200)})"
        lines.append(Text(text, style="yellow"))
    count = found["total_changes"]
    listed = len(found["changes"]) + len(found["conflicts"])
    if (more := count + found["total_conflicts"] - listed) > 0:
        lines.append(Text(f"  … and {more:,} more"))
    if reopened := found.get("reopened"):
        again = "would wait" if would else "waits" if len(reopened) == 1 else "wait"
        lines.append(Text(f"  {again} for a review again: {counted(len(reopened))}"))
    files = counted(count)
    done, do = ("Undone", "undo") if undone else ("Redone", "redo")
    end = Text(f"{f'Would {do}' if would else done}: {files}.")
    if skipped := found["total_conflicts"]:
        end.append(
            f" Skipped: {counted(skipped)}, listed above with the reason. To {do} them too: toolcrib {do} "
            "--force; to choose line by line: toolcrib review.",
            style="yellow",
        )
    return [*lines, end]


def git_folder(path: str) -> str | None:
    """Returns git's own folder that a file is in, if it is in one."""
    above, found, _ = path.partition("/.git/")
    return f"{above}/.git" if found else None


def counted(files: int) -> str:
    """Formats a number of files."""
    return "1 file" if files == 1 else f"{files:,} files"


_LENGTH = 140
_NAMING = ("path", "command", "pattern", "query", "plan_file_path", "name", "url")
_ENDINGS = {
    "turn-limit": "Stopped: turn limit reached.",
    "budget": "Stopped: a budget is used up, or the context is full.",
    "deadline": "Stopped: time limit reached.",
    "cancelled": "Cancelled.",
    "violation": "Stopped: sandbox violation.",
}


def about(given: object) -> str:
    """Summarizes the input of a call."""
    if not isinstance(given, Mapping):
        return ""
    if "source" in given and "destination" in given:
        return f"{one_line(given['source'], 70)} to {one_line(given['destination'], 70)}"
    for name in _NAMING:
        if isinstance(given.get(name), str):
            return one_line(given[name], _LENGTH)
    paths = given.get("paths")
    return one_line(", ".join(map(str, paths)), _LENGTH) if isinstance(paths, list) else ""


# Lines of a failed command's result that say why, below what the command itself wrote.
_WHY = ("The command timed out", "[the network is closed")


def call_failure(output: str) -> str:
    """Summarizes why a call failed, from its output."""
    why = [line.strip("[]") for line in output.split("\n") if line.startswith(_WHY)]
    return one_line(why[0] if why else output.strip(), 200)


def failure(payload: Mapping[str, Any]) -> str | None:
    """Returns why a run failed, from its last event; None if it did not fail."""
    error = payload.get("error")
    if not isinstance(error, Mapping):
        return None
    flaws = _flaws(error.get("fields") or {}) if error.get("code") == "VALIDATION_ERROR" else []
    return one_line("; ".join(flaws) or error.get("message"), 1_000)


def stop(payload: Mapping[str, Any]) -> str | None:
    """Returns why a run ended early; None if it did not."""
    return _ENDINGS.get(str(payload.get("endReason")))


def compacted(payload: Mapping[str, Any]) -> str:
    """Formats that a summary has replaced older messages."""
    tokens = (payload.get("usage") or {}).get("contextTokens")
    size = "" if tokens is None else f" The context has about {tokens:,} tokens now."
    return f"Older messages are replaced by a summary for the model.{size}"


def print_facts(facts: Mapping[str, str | None]) -> None:
    """Prints facts with their names, one per line, without those that are empty."""
    width = max(map(len, facts)) + 2
    for name, fact in facts.items():
        if fact:
            typer.echo(f"{name + ':':<{width}}{fact}")


def provider_wait(payload: Mapping[str, Any]) -> str | None:
    """Returns until when a run waits for its provider, or that it waits for its credential; None if it does not."""
    if payload.get("waitsFor") == "credential":
        return "The limits of the credential leave no room. The run goes on when other requests have ended."
    if payload.get("waitsFor") != "provider":
        return None
    until = datetime.fromisoformat(str(payload.get("until"))).astimezone()
    return f"The provider limits requests. The run goes on at {until:%H:%M:%S}."


def run_wait(payload: Mapping[str, Any]) -> str | None:
    """Returns what a run waits for, in a few words; None if it does not, or if it waits for a person."""
    match payload.get("waitsFor"):
        case "provider":
            until = datetime.fromisoformat(str(payload.get("until"))).astimezone()
            return f"waits for the provider until {until:%H:%M}"
        case "child":
            return "waits for child runs"
        case _:
            return None


def plan_written(payload: Mapping[str, Any]) -> str | None:
    """Returns the path of the plan that a call writes, if any."""
    given = payload.get("input")
    if payload.get("toolName") != "plan_write" or not isinstance(given, Mapping):
        return None
    return str(given.get("path") or "") or None

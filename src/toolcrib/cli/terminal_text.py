"""Formats approvals, questions and events for a terminal. Escapes text from agents: no markup, no control codes."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from toolcrib.client import ApprovalData, GrantRuleData, QuestionData
from toolcrib.core.display_text import escape

_MAX_LINES = 200
_MAX_ARGUMENT_LINES = 40
_BRIEF_PATH = 26


def plain(text: object) -> str:
    """Escapes characters that make text look different from what it is."""
    return escape(str(text))


def one_line(given_text: object, most: int = 400) -> str:
    text = plain(given_text).replace("\n", "\\n").replace("\t", " ")
    return text if len(text) <= most else f"{text[: most - 1]}…"


def age(then: datetime) -> str:
    """Formats the time since ``then`` in its largest unit."""
    return _span((datetime.now(UTC) - then).total_seconds())


def left(then: datetime) -> str:
    return _span((then - datetime.now(UTC)).total_seconds())


def _span(seconds: float) -> str:
    seconds = max(0, int(seconds))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def what_would_change(approval: ApprovalData) -> Text:
    """Summarizes the effect of a call in a few lines."""
    effects = approval.effects
    lines = [_changed(change, brief=True) for change in approval.changes[:2]]
    if (more := _count(approval.changes) - len(lines)) > 0 and lines:
        lines.append(Text(f"and {more:,} more", style="dim"))
    if effects.get("runs"):
        lines.append(Text.assemble(("run ", "bold"), one_line(effects["runs"], 120)))
    for host in (effects.get("contacts") or [])[:2]:
        lines.append(Text.assemble(("contact ", "bold"), one_line(host, 80)))
    if not lines:
        paths = effects.get("writes") or effects.get("reads") or []
        verb = "write " if effects.get("writes") else "read "
        lines = [Text.assemble((verb, "bold"), one_line(location, 120)) for location in paths[:2]]
    return Text("\n").join(lines or [Text("unknown until it runs", style="dim")])


def _count(changes: Sequence[Mapping[str, Any]]) -> int:
    return sum(int(change.get("count", 1)) for change in changes)


def _changed(change: Mapping[str, Any], *, brief: bool = False) -> Text:
    if change.get("path") is None:
        return Text(f"{change.get('count', 0):,} more files", style="dim")
    path = one_line(change["path"], 1_000)
    # The end of a path identifies it best.
    path = f"…{path[1 - _BRIEF_PATH :]}" if brief and len(path) > _BRIEF_PATH else path
    text = Text.assemble((f"{change['change']} ", "bold"), path)
    if change.get("from") and not brief:
        text.append(f" (from {one_line(change['from'], 120)})")
    if "added" in change:
        text.append(f" +{change['added']}", style="green")
        text.append(f" -{change['removed']}", style="red")
    elif not brief and (sha256 := (change.get("after") or {}).get("sha256")):
        text.append(f" sha256 {one_line(sha256, 64)}", style="dim")
    return text


def show_approval(console: Console, approval: ApprovalData, workspace: str) -> None:
    """Prints the call, why it needs approval, and its effect."""
    who, *why = about_approval(approval)
    when = Text(
        f"in {one_line(workspace, 80)}, asked {age(approval.created_at)} ago, expires in {left(approval.expires_at)}",
        style="dim",
    )
    what = [*given_arguments(approval.shown), *proposed_changes(approval)]
    for line in [who, when, *why, Text(), *what]:
        console.print(line, soft_wrap=True)


def about_approval(approval: ApprovalData) -> list[Text]:
    """Formats the agent, the tool, and why the call needs approval."""
    who = one_line(approval.agent_name or "someone", 80)
    lines = [
        Text.assemble((who, "bold"), " wants to use ", (one_line(approval.tool, 80), "bold")),
        Text(one_line(approval.reason), style="dim"),
    ]
    if approval.replaces:
        lines.append(Text("The effect changed since the first request.", style="yellow"))
    if approval.isolation:
        lines.append(Text(f"Isolation: {one_line(approval.isolation)}"))
    return lines


def given_arguments(shown: Any) -> list[Text]:
    """Formats the arguments of a call."""
    lines = json.dumps(shown, indent=2, ensure_ascii=False).splitlines()
    text = [Text("  " + one_line(line, 2_000)) for line in lines[:_MAX_ARGUMENT_LINES]]
    if (more := len(lines) - _MAX_ARGUMENT_LINES) > 0:
        text.append(Text(f"  … {more:,} more lines of arguments", style="dim"))
    return [*text, Text()]


def proposed_changes(approval: ApprovalData) -> list[Text]:
    """Formats the proposed changes, with diffs."""
    if not approval.changes:
        return [what_would_change(approval), Text()]
    lines: list[Text] = []
    for change in approval.changes:
        if len(lines) >= _MAX_LINES:
            lines.append(Text("… truncated. The web UI shows all changes.", style="dim"))
            break
        lines.append(_changed(change))
        diff = [line for line in str(change.get("diff") or "").split("\n") if line]
        lines += [diff_line(line) for line in diff[: _MAX_LINES - len(lines)]]
    return [*lines, Text()]


def diff_line(line: str) -> Text:
    """Formats a line of a unified diff. The line must not be empty."""
    style = {"+": "green", "-": "red", "@": "cyan"}.get(line[0], "")
    return Text("  " + plain(line).replace("\t", "    "), style=style)


def rule_text(rule: GrantRuleData) -> str:
    """Describes a grant."""
    text = f"any call of {one_line(rule.tool, 80)}"
    if rule.commands is not None:
        text += " that runs exactly: " + "; ".join(one_line(one, 200) for one in rule.commands)
    if rule.paths is not None:
        text += " on " + ", ".join(one_line(one, 200) for one in rule.paths[:20])
        text += f" and {len(rule.paths) - 20:,} more" if len(rule.paths) > 20 else ""
    return text


def show_question(console: Console, question: QuestionData, workspace: str) -> None:
    console.print(
        Text(
            f"In {one_line(workspace, 80)}, asked {age(question.created_at)} ago, "
            f"expires in {left(question.expires_at)}",
            style="dim",
        )
    )
    for item in question.questions:
        console.print()
        console.print(Text.assemble((one_line(item["name"], 100), "bold"), ": ", plain(item["question"])))
        for number, button in enumerate(item.get("buttons") or (), start=1):
            console.print(Text(f"  {number}. {one_line(button['label'], 200)}"))
        if not item.get("buttons"):
            console.print(Text(f"  {expected(item['schema'])}", style="dim"))
    console.print()


def expected(schema: Mapping[str, Any]) -> str:
    """Describes the expected answer in one line."""
    if isinstance(schema.get("enum"), list):
        return "one of " + ", ".join(one_line(one, 60) for one in schema["enum"][:20])
    items = schema.get("items")
    if schema.get("type") == "array" and isinstance(items, Mapping) and isinstance(items.get("enum"), list):
        return 'a list, such as ["A", "B"], of ' + ", ".join(one_line(one, 60) for one in items["enum"][:20])
    return one_line(json.dumps(schema, ensure_ascii=False), 300)


_VERBS = {"created": "restored", "deleted": "removed", "modified": "changed back", "moved": "moved back"}


def print_changes(found: Mapping[str, Any], *, undone: bool) -> None:
    """Prints what an undo changed or would change, and the files that it skipped."""
    console = Console()
    for line in change_lines(found, undone=undone):
        console.print(line, soft_wrap=True)


def change_lines(found: Mapping[str, Any], *, undone: bool) -> list[Text]:
    would = "would be " if found.get("dry_run") else ""
    lines = []
    for change in found["changes"]:
        source = f" (from {one_line(change['from_path'], 100)})" if change.get("from_path") else ""
        verb = _VERBS.get(change["change"], change["change"])
        lines.append(Text(f"  {would}{verb}: {one_line(change['path'], 100)}{source}"))
    for clash in found["conflicts"]:
        text = f"  skipped: {one_line(clash['path'], 100)} ({one_line(clash['reason'], 200)})"
        lines.append(Text(text, style="yellow"))
    count = len(found["changes"])
    files = "1 file" if count == 1 else f"{count:,} files"
    all_in_all = (
        ("Would undo" if undone else "Would redo") if found.get("dry_run") else ("Undone" if undone else "Redone")
    )
    return [*lines, Text(f"{all_in_all}: {files}.")]


_LENGTH = 140
_NAMING = ("path", "command", "pattern", "query", "plan_file_path", "name", "url")
_ENDINGS = {
    "turn-limit": "Stopped: turn limit reached.",
    "budget": "Stopped: context limit reached.",
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


def failure(payload: Mapping[str, Any]) -> str | None:
    """Returns why a run failed, from its last event; None if it did not fail."""
    error = payload.get("error")
    if not isinstance(error, Mapping):
        return None
    fields = "; ".join(str(value) for value in (error.get("fields") or {}).values())
    message = fields if fields and error.get("code") == "VALIDATION_ERROR" else error.get("message")
    return one_line(message, 1_000)


def stop(payload: Mapping[str, Any]) -> str | None:
    """Returns why a run ended early; None if it did not."""
    return _ENDINGS.get(str(payload.get("endReason")))


def plan_written(payload: Mapping[str, Any]) -> str | None:
    """Returns the path of the plan that a call writes, if any."""
    given = payload.get("input")
    if payload.get("toolName") != "plan_write" or not isinstance(given, Mapping):
        return None
    return str(given.get("path") or "") or None

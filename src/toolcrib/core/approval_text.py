"""A call and its effect as text: the same lines in the terminal, the API and MCP clients.

The web UI shows the same facts and the same lines of diffs (``web/src/components/shownText.ts``).
``tests/shown_text_cases.json`` has the cases that both must agree on.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from toolcrib.core.display_text import SIGNS, Part, diff_lines, escape, escape_line, shown_parts
from toolcrib.core.mcp_servers import shown_access

LineStyle = Literal["title", "plain", "note", "warning", "change", "hunk", "same", "gone", "new"]
_FOLDER_MODE: Final = "755"
_FILE_MODE: Final = "644"
_REASONS: Final = {
    "binary": "binary",
    "large": "too large to show here",
    "secret": "may be secret, not shown",
    "unread": "not compared here",
    "costly": "takes too long to compare",
    "failed": "the server failed to compare it",
}
# A string that would look like another value without quotes.
_LIKE_JSON: Final = re.compile(r"true|false|null|[-0-9\[{\"].*|", re.DOTALL)
_NAME: Final = re.compile(r"[\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A line: its indentation and sign, which continued rows of it keep free, and its parts."""

    style: LineStyle
    gutter: str
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The line as plain text."""
        return (self.gutter + "".join(part for part, _ in self.parts)).rstrip()


def approval_lines(
    *,
    agent: str | None,
    tool: str,
    reason: str,
    isolation: str | None,
    is_renewed: bool,
    arguments: Mapping[str, Any] | str,
    effects: Mapping[str, Any],
    changes: Sequence[Mapping[str, Any]],
) -> list[ShownLine]:
    """Return who wants to do what, and why it is asked about; then the command, the changes and the arguments."""
    lines = [
        _line("title", f"{escape_line(agent or 'Someone')} wants to use {escape_line(tool)}"),
        _line("note", escape_line(reason)),
    ]
    if is_renewed:
        lines.append(_line("warning", "The effect changed since the first request."))
    if isolation:
        lines.append(_line("plain", f"Isolation: {escape_line(isolation)}"))
    command = effects.get("runs")
    lines += [_line("title", "Runs:"), *block(command)] if command else []
    lines += [_line("plain", f"Contacts {escape_line(host)}") for host in effects.get("contacts") or ()]
    lines += [_line("plain", f"Has access to {escape_line(one)}") for one in shown_access(effects.get("access") or ())]
    if changes:
        lines += change_lines(changes)
    elif not command and not effects.get("contacts"):
        for verb, key in (("Writes", "writes"), ("Reads", "reads")):
            lines += [_line("plain", f"{verb} {escape_line(path)}") for path in effects.get(key) or ()]
    given = list(argument_lines(arguments, without=command))
    return [*lines, _line("title", "Arguments:"), *given] if given else lines


def change_lines(changes: Sequence[Mapping[str, Any]]) -> list[ShownLine]:
    """Return the totals, and each change with its diff."""
    lines = [_line("title", totals(changes))]
    for change in changes:
        lines.append(_line("change", change_head(change)))
        diff = diff_lines(change.get("diff") or "")
        lines += [ShownLine(line.kind, f"  {SIGNS[line.kind]}", line.parts) for line in diff]
    return lines


def totals(changes: Sequence[Mapping[str, Any]]) -> str:
    """Return how many files and lines the changes are, and how many of them are not shown."""
    files = sum(change.get("count") or 1 for change in changes)
    added, removed = (sum(change.get(key) or 0 for change in changes) for key in ("added", "removed"))
    text = f"{_files(files)} changed, +{added:,} -{removed:,}"
    if without := sum(_lacks_diff(change) for change in changes):
        text += f", {without:,} without a diff"
    if unlisted := sum(change.get("count") or 0 for change in changes if change["change"] == "omitted"):
        text += f", {unlisted:,} not listed"
    return text


def change_head(change: Mapping[str, Any]) -> str:
    """Return what happens to one file, without its lines."""
    if change["change"] == "omitted":
        return f"and {change.get('count') or 0:,} more files"
    names = [escape_line(name) for name in (change.get("from"), change["path"]) if name]
    text = f"{change['change']} {' → '.join(names)}"
    if change.get("added") is not None:
        text += f" +{change['added']:,} -{change['removed']:,}"
    facts = change_facts(change)
    return f"{text} ({', '.join(facts)})" if facts else text


def change_facts(change: Mapping[str, Any]) -> list[str]:
    """Return what a diff does not say: links, modes, and why there is no diff."""
    kind, before, after = change.get("kind"), change.get("before"), change.get("after")
    facts = [f"was a {change['was_kind']}"] if change.get("was_kind") else []
    if kind == "link":
        target, was = change.get("target"), change.get("was_target")
        facts.append(f"link to {escape_line(target)}" if target is not None else "link")
        facts += [f"was to {escape_line(was)}"] if was is not None and was != target else []
    elif kind == "folder":
        facts.append("folder")
    if kind != "link" and before and after and before["mode"] != after["mode"]:
        facts.append(f"mode {before['mode']} → {after['mode']}")
    elif after and not before and kind in ("file", "folder"):
        usual = _FOLDER_MODE if kind == "folder" else _FILE_MODE
        facts += [f"mode {after['mode']}"] if after["mode"] != usual else []
    if change.get("diff_omitted"):
        facts.append("diff not loaded")
    elif _lacks_diff(change):
        facts.append(_REASONS.get(str(change["no_diff"]), "not shown"))
        facts.append(" → ".join(f"{side['size']:,} bytes" for side in (before, after) if side))
    elif kind == "file" and not any(side and side["size"] for side in (before, after)):
        facts.append("empty")
    if after and after["sha256"] and (_lacks_diff(change) or kind == "folder"):
        facts.append(f"sha256 {after['sha256']}")
    return facts


def argument_lines(arguments: Any, *, without: str | None = None) -> Iterator[ShownLine]:
    """Yield one line per value. A text keeps its lines.

    Args:
        without: A text that is already shown, such as the command.
    """
    if isinstance(arguments, str):
        yield from block(arguments)
        return
    for name, value in _flattened("", arguments) if arguments else ():
        if not isinstance(value, str):
            yield _line("plain", f"{name}: {json.dumps(value)}", "  ")
        elif value == without:
            continue
        elif "\n" in value:
            yield _line("plain", f"{name}:", "  ")
            yield from block(value)
        else:
            quoted = json.dumps(value, ensure_ascii=False) if _LIKE_JSON.fullmatch(value) else value
            yield ShownLine("plain", "  ", ((f"{name}: ", False), *shown_parts(quoted)))


def block(text: str) -> list[ShownLine]:
    """Return the lines of a text, each behind a bar, so that none of them looks like one of ours."""
    return [ShownLine("plain", "  │ ", tuple(shown_parts(line))) for line in text.split("\n")]


def _flattened(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values inside, such as ``edits[0].old_string``."""
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            shown = key if _NAME.fullmatch(key) else json.dumps(escape(key), ensure_ascii=False)
            yield from _flattened(f"{name}.{shown}" if name else shown, one)
    elif isinstance(value, list | tuple) and value:
        for number, one in enumerate(value):
            yield from _flattened(f"{name}[{number}]", one)
    else:
        yield name, value


def _lacks_diff(change: Mapping[str, Any]) -> bool:
    """Whether the content changes and its lines are not shown."""
    return not change.get("diff") and bool(change.get("no_diff") or change.get("diff_omitted"))


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


def _line(style: LineStyle, text: str, gutter: str = "") -> ShownLine:
    return ShownLine(style, gutter, ((text, False),))

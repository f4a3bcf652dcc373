"""``toolcrib log``: shows the calls in a directory, their authors and their changes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

import typer
from rich.text import Text

from toolcrib.cli.command_options import (
    HistoryLocation,
    JsonOption,
    WorkspaceLocation,
    WorkspaceSelection,
    with_options,
)
from toolcrib.cli.terminal_text import (
    Line,
    counted,
    git_folder,
    one_line,
    print_json,
    print_lines,
    short_id,
    shown_diff,
)
from toolcrib.client import AuditRecordOut
from toolcrib.core.display_text import escape_line
from toolcrib.core.errors import NotFound, ToolcribError
from toolcrib.schemas.audit import AuditFileOut, FileDisplaced

_MAX_DIFF_LINES = 200
_MAX_FILES = 20
_NAMING = ("command", "path", "source", "pattern", "query")


@with_options(WorkspaceSelection)
def log(
    selection: WorkspaceSelection,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Number of calls.")] = 20,
    diff: Annotated[bool, typer.Option("--diff", "-p", help="Show the diff of each call.")] = False,
    all_calls: Annotated[bool, typer.Option("--all", help="Include read-only calls.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the history: calls that changed files, ran commands or were denied. Newest last.

    Example: toolcrib log --diff
    """
    with ExitStack() as opened:
        # A diff is the result of a tool, which only a server runs.
        tools = opened.enter_context(selection.open()) if diff else None
        history = opened.enter_context(selection.open_history()) if tools is None else tools
        records = newest_records(history, limit, all_calls=all_calls)
        names = author_names(history, records)
        for record in reversed(records):
            diffs = diffs_of(tools, record) if tools is not None else []
            if as_json:
                print_json({**record.model_dump(mode="json"), **({"diffs": diffs} if diff else {})})
            else:
                print_lines([*record_lines(record, names), *diff_lines(diffs)])
        if not records and not as_json:
            typer.echo("No tool calls yet.")


@dataclass(frozen=True, slots=True)
class AuthorNames:
    """Names for ``record_lines``: of the agents, and of the sessions of child runs, by their ids."""

    agents: Mapping[UUID, str]
    child_runs: Mapping[UUID, str]


def author_names(location: WorkspaceLocation | HistoryLocation, records: Sequence[AuditRecordOut]) -> AuthorNames:
    """Returns the names of those who made these calls."""
    child_runs = {}
    for session_id in {one.session_id for one in records if one.agent_id and one.session_id}:
        with suppress(NotFound):
            session = location.client.session(location.id, session_id)
            if session.parent_session_id is not None:
                child_runs[session_id] = session.title or short_id(session_id)
    return AuthorNames({agent.id: agent.name for agent in location.client.agents(location.id)}, child_runs)


def newest_records(
    location: WorkspaceLocation | HistoryLocation, limit: int, *, all_calls: bool = False
) -> list[AuditRecordOut]:
    """Returns records, newest first.

    By default only calls that changed files, contacted hosts, ran commands, failed or were denied.
    """
    found: list[AuditRecordOut] = []
    before = None
    while len(found) < limit:
        page = location.client.audit(location.id, limit=200, before=before)
        found += [record for record in page if all_calls or _matters(record)]
        if len(page) < 200:
            break
        before = page[-1].position
    return found[:limit]


def _matters(record: AuditRecordOut) -> bool:
    return bool(record.files or record.hosts) or record.tool == "bash" or record.outcome != "done"


def record_lines(record: AuditRecordOut, names: AuthorNames) -> list[Text]:
    """Formats a record, with the names of its authors."""
    who = one_line(names.agents.get(record.agent_id, "an agent"), 40) if record.agent_id else "you"
    if record.session_id is not None and (title := names.child_runs.get(record.session_id)):
        who += f' in its child run "{one_line(title, 60)}"'
    about = next((one_line(record.arguments[name], 200) for name in _NAMING if record.arguments.get(name)), "")
    how = record.outcome if record.error_code is None else f"{record.outcome} ({record.error_code})"
    allowed = ", approved by a person" if record.decided_by and record.outcome == "done" else ""
    isolation = f", {one_line(record.isolation, 40)}" if record.isolation else ""
    lines = [
        Text.assemble(
            (f"{record.created_at.astimezone():%m-%d %H:%M:%S} ", "dim"),
            (one_line(record.tool, 40), "bold"),
            f" {about}",
        ),
        Text(f"  {how}{allowed}, by {who}{isolation}, call {record.call_id}", style="dim"),
    ]
    in_git = Counter(folder for file in record.files if (folder := git_folder(_path(file.path))))
    files = [file for file in record.files if not git_folder(_path(file.path))]
    lines += [Text(f"  {_change(file)} {one_line(_path(file.path), 200)}") for file in files[:_MAX_FILES]]
    if len(files) > _MAX_FILES:
        lines.append(Text(f"  and {len(files) - _MAX_FILES:,} more files", style="dim"))
    lines += [
        Text(f"  modified {one_line(folder, 200)} ({counted(number)} of git)") for folder, number in in_git.items()
    ]
    return lines


def _change(file: AuditFileOut | FileDisplaced) -> str:
    if isinstance(file, FileDisplaced):
        return "displaced"
    if file.before == file.after:
        return file.change
    return "created" if file.before is None else "deleted" if file.after is None else "modified"


def _path(path: str) -> str:
    is_mounted = path.startswith("@") and not path.startswith("@project")
    return path if is_mounted else "/" + path.removeprefix("@project").lstrip("/")


def diffs_of(location: WorkspaceLocation, record: AuditRecordOut) -> list[dict[str, str]]:
    """Returns the diffs of a call, or why the history has none."""
    if not record.files:
        return []
    try:
        found = location.client.call(location.id, "changes", {"calls": [str(record.call_id)], "limit": _MAX_FILES})
    except ToolcribError as error:
        return [{"path": "", "diff": "", "why": error.message}]
    return [{"path": one["path"], "diff": one.get("diff") or ""} for one in found["changes"]]


def diff_lines(diffs: list[dict[str, str]]) -> list[Line]:
    lines: list[Line] = []
    for found in diffs:
        if found.get("why"):
            lines.append(Text(f"    {one_line(found['path'], 100)}: {one_line(found['why'])}", style="dim"))
        else:
            lines.append(Text(f"  {escape_line(found['path'])}", style="bold"))
        lines += shown_diff(found["diff"])[: _MAX_DIFF_LINES - len(lines)]
    if len(lines) >= _MAX_DIFF_LINES:
        lines.append(Text("  … truncated; --json shows everything.", style="dim"))
    return lines

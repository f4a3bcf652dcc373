"""``toolcrib log``: shows the calls in a directory, their authors and their changes."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from toolcrib.cli.command_options import (
    HERE,
    DirectoryOption,
    JsonOption,
    ServerOption,
    WorkspaceLocation,
    WorkspaceOption,
    open_workspace,
)
from toolcrib.cli.terminal_text import diff_line, one_line
from toolcrib.client import AuditRecordData
from toolcrib.core.errors import ToolcribError

_MAX_DIFF_LINES = 200
_MAX_FILES = 20
_NAMING = ("command", "path", "source", "pattern", "query")


def log(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Number of calls.")] = 20,
    diff: Annotated[bool, typer.Option("--diff", "-p", help="Show the diff of each call.")] = False,
    all_calls: Annotated[bool, typer.Option("--all", help="Include read-only calls.")] = False,
    as_json: JsonOption = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Show the history: calls that changed files, ran commands or were denied. Newest last.

    Example: toolcrib log --diff
    """
    with open_workspace(directory, server=server, workspace=workspace) as location:
        records = newest_records(location, limit, all_calls=all_calls)
        names = {str(agent.id): agent.name for agent in location.client.agents(location.id)}
        console = Console()
        for record in reversed(records):
            diffs = diffs_of(location, record) if diff else []
            if as_json:
                typer.echo(json.dumps({**record.model_dump(mode="json"), **({"diffs": diffs} if diff else {})}))
                continue
            for line in [*record_lines(record, names), *diff_lines(diffs)]:
                console.print(line, soft_wrap=True)
        if not records and not as_json:
            typer.echo("No tool calls yet.")


def newest_records(location: WorkspaceLocation, limit: int, *, all_calls: bool = False) -> list[AuditRecordData]:
    """Returns records, newest first.

    By default only calls that changed files, contacted hosts, ran commands, failed or were denied.
    """
    found: list[AuditRecordData] = []
    before = None
    while len(found) < limit:
        page = location.client.audit(location.id, limit=200, before=before)
        found += [record for record in page if all_calls or _matters(record)]
        if len(page) < 200:
            break
        before = page[-1].position
    return found[:limit]


def _matters(record: AuditRecordData) -> bool:
    return bool(record.files or record.hosts) or record.tool == "bash" or record.outcome != "done"


def record_lines(record: AuditRecordData, names: Mapping[str, str]) -> list[Text]:
    """Formats a record, with the agents' names."""
    who = names.get(str(record.agent_id), "an agent") if record.agent_id else "you"
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
        Text(f"  {how}{allowed}, by {one_line(who, 40)}{isolation}, call {record.call_id}", style="dim"),
    ]
    lines += [Text(f"  {_change(file)} {one_line(_path(file), 200)}") for file in record.files[:_MAX_FILES]]
    if len(record.files) > _MAX_FILES:
        lines.append(Text(f"  and {len(record.files) - _MAX_FILES:,} more files", style="dim"))
    return lines


def _change(file: Mapping[str, Any]) -> str:
    if file["before"] == file["after"]:
        return one_line(file["change"], 20)
    return "created" if file["before"] is None else "deleted" if file["after"] is None else "modified"


def _path(file: Mapping[str, Any]) -> str:
    return "/" + str(file["path"]).removeprefix("@project").lstrip("/") if not _is_mounted(file) else str(file["path"])


def _is_mounted(file: Mapping[str, Any]) -> bool:
    path = str(file["path"])
    return path.startswith("@") and not path.startswith("@project")


def diffs_of(location: WorkspaceLocation, record: AuditRecordData) -> list[dict[str, str]]:
    """Returns the diffs of a call, or why the history has none."""
    if not record.files:
        return []
    try:
        found = location.client.call(location.id, "changes", {"calls": [str(record.call_id)], "limit": _MAX_FILES})
    except ToolcribError as error:
        return [{"path": "", "diff": "", "why": error.message}]
    return [{"path": one["path"], "diff": one.get("diff") or ""} for one in found["changes"]]


def diff_lines(diffs: list[dict[str, str]]) -> list[Text]:
    lines: list[Text] = []
    for found in diffs:
        if found.get("why"):
            lines.append(Text(f"    {one_line(found['path'], 100)}: {one_line(found['why'])}", style="dim"))
        lines += [diff_line(line) for line in found["diff"].splitlines()[: _MAX_DIFF_LINES - len(lines)] if line]
    if len(lines) >= _MAX_DIFF_LINES:
        lines.append(Text("  … truncated; --json shows everything.", style="dim"))
    return lines

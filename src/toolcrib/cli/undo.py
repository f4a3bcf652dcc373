"""``toolcrib undo`` and ``toolcrib redo``."""

import json
from enum import StrEnum
from typing import Annotated
from uuid import UUID

import typer

from toolcrib.cli.command_options import (
    HERE,
    DirectoryOption,
    JsonOption,
    ServerOption,
    WorkspaceOption,
    open_workspace,
)
from toolcrib.cli.terminal_text import print_changes
from toolcrib.sdk.undo_targets import UndoTarget, last_undo, last_undo_target, run_undo

DryRunOption = Annotated[bool, typer.Option("--dry-run", "-n", help="Only show what would change.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Also undo files that others changed.")]


class UndoRange(StrEnum):
    CALL = "call"
    RUN = "run"
    SESSION = "session"


def undo(
    last: Annotated[UndoRange, typer.Argument(help="What to undo.")] = UndoRange.RUN,
    call: Annotated[list[UUID] | None, typer.Option(help="Undo this call; can be repeated.")] = None,
    run: Annotated[UUID | None, typer.Option(help="Undo this run.")] = None,
    session: Annotated[UUID | None, typer.Option(help="Undo this session.")] = None,
    dry_run: DryRunOption = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Undo the last run, call or session.

    Skips and lists files that others changed since, and then exits with 1. `toolcrib log` shows ids.

    Example: toolcrib undo --dry-run
    """
    with open_workspace(directory, server=server, workspace=workspace) as location:
        named = {"calls": [str(one) for one in call or ()], "run_id": _text(run), "session_id": _text(session)}
        given = {name: value for name, value in named.items() if value}
        arguments = given or last_undo_target(location, whole=last).arguments
        found = run_undo(location, UndoTarget(arguments), dry_run=dry_run, force=force)
    _print(found, undone=True, as_json=as_json)


def redo(
    dry_run: DryRunOption = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Redo the last undo.

    Example: toolcrib redo
    """
    with open_workspace(directory, server=server, workspace=workspace) as location:
        found = run_undo(location, last_undo(location), dry_run=dry_run, force=force)
    _print(found, undone=False, as_json=as_json)


def _print(found: dict[str, object], *, undone: bool, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(found))
    else:
        print_changes(found, undone=undone)
    raise typer.Exit(1 if found["conflicts"] else 0)


def _text(value: UUID | None) -> str | None:
    return None if value is None else str(value)

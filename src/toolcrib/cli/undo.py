"""``toolcrib undo`` and ``toolcrib redo``."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import typer

from toolcrib.cli.command_options import JsonOption, WorkspaceLocation, in_workspace
from toolcrib.cli.sessions import SESSION_HELP, find_session
from toolcrib.cli.terminal_text import change_lines, print_json, print_lines, progress_line, short_id
from toolcrib.core.runs import RunState

_UNFINISHED = (RunState.READY, RunState.RUNNING, RunState.WAITING)
DryRunOption = Annotated[bool, typer.Option("--dry-run", "-n", help="Only show what would change.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Also undo files that others changed.")]


class UndoRange(StrEnum):
    CALL = "call"
    RUN = "run"
    SESSION = "session"


@in_workspace
def undo(
    location: WorkspaceLocation,
    last: Annotated[UndoRange, typer.Argument(help="What to undo.")] = UndoRange.RUN,
    call: Annotated[list[UUID] | None, typer.Option(help="Undo this call; can be repeated.")] = None,
    run: Annotated[UUID | None, typer.Option(help="Undo this run.")] = None,
    session: Annotated[str | None, typer.Option(help=f"Undo this session: {SESSION_HELP}")] = None,
    dry_run: DryRunOption = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Undo the last run, call or session.

    Skips and lists files that others changed since, and then exits with 1. `toolcrib log` shows ids.

    Example: toolcrib undo --dry-run
    """
    given: dict[str, Any] = {}
    if call:
        given["calls"] = [str(one) for one in call]
    if run is not None:
        given["run_id"] = str(run)
    if session is not None:
        given["session_id"] = str(find_session(location, session).id)
    _undo(location, given or {"last": last}, dry_run=dry_run, force=force, as_json=as_json)


@in_workspace
def redo(
    location: WorkspaceLocation,
    dry_run: DryRunOption = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Redo the last undo.

    Example: toolcrib redo
    """
    _undo(location, {"last": "undo"}, dry_run=dry_run, force=force, as_json=as_json)


def _undo(location: WorkspaceLocation, target: Mapping[str, Any], *, dry_run: bool, force: bool, as_json: bool) -> None:
    arguments = {**target, "dry_run": dry_run, "force": force}
    with progress_line() as show:
        found = location.client.call(location.id, "undo", arguments, on_output=show)
    if as_json:
        print_json(found)
    else:
        print_lines(change_lines(found, undone=target.get("last") != "undo"))
        for run in (run for state in _UNFINISHED for run in location.client.runs(location.id, state=state, limit=5)):
            typer.echo(
                f"Run {short_id(run.id)} of session {short_id(run.session_id)} has not finished ({run.state}) and goes "
                f"on without knowing of this. Stop it with: toolcrib runs cancel {short_id(run.id)}",
                err=True,
            )
    raise typer.Exit(1 if found["conflicts"] else 0)

"""``toolcrib undo`` and ``toolcrib redo``."""

import json
from enum import StrEnum
from typing import Annotated
from uuid import UUID

import typer

from toolcrib.cli.deeds import tell_changes
from toolcrib.cli.place import HERE, DirectoryOption, JsonOption, ServerOption, WorkspaceOption, open_place
from toolcrib.library.deeds import Deed, last_deed, last_undo, take_back

DryRunOption = Annotated[bool, typer.Option("--dry-run", "-n", help="Only show what would change.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Also files that others have changed since.")]


class Whole(StrEnum):
    CALL = "call"
    RUN = "run"
    SESSION = "session"


def undo(
    last: Annotated[Whole, typer.Argument(help="How much of the last.")] = Whole.RUN,
    call: Annotated[list[UUID] | None, typer.Option(help="This call; may be repeated.")] = None,
    run: Annotated[UUID | None, typer.Option(help="This run.")] = None,
    session: Annotated[UUID | None, typer.Option(help="This session.")] = None,
    dry_run: DryRunOption = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Take back what the last run did to files, or the last call, or a whole session.

    What others changed since is left alone and told. Ends with 1 if something was. `toolcrib log` shows ids.

    Example: toolcrib undo --dry-run
    """
    with open_place(directory, server=server, workspace=workspace) as place:
        named = {"calls": [str(one) for one in call or ()], "run_id": _text(run), "session_id": _text(session)}
        given = {name: value for name, value in named.items() if value}
        arguments = given or last_deed(place, whole=last).arguments
        found = take_back(place, Deed(arguments), dry_run=dry_run, force=force)
    _tell(found, undone=True, as_json=as_json)


def redo(
    dry_run: DryRunOption = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Do again what was undone last, if nothing was done since.

    Example: toolcrib redo
    """
    with open_place(directory, server=server, workspace=workspace) as place:
        found = take_back(place, last_undo(place), dry_run=dry_run, force=force)
    _tell(found, undone=False, as_json=as_json)


def _tell(found: dict[str, object], *, undone: bool, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(found))
    else:
        tell_changes(found, undone=undone)
    raise typer.Exit(1 if found["conflicts"] else 0)


def _text(value: UUID | None) -> str | None:
    return None if value is None else str(value)

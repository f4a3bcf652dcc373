"""``toolcrib audit``: the book."""

import asyncio
import json
import os
from dataclasses import asdict, dataclass

import typer

from toolcrib.cli.configuration import load_settings
from toolcrib.cli.place import (
    HERE,
    DirectoryOption,
    JsonOption,
    Place,
    ServerOption,
    WorkspaceOption,
    open_place,
)
from toolcrib.settings import Settings

app = typer.Typer(help="Inspect the book of calls.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found, wherever it was recomputed. Problems are none when the book is whole."""

    seals: int
    sealed: int
    unsealed: int
    problems: tuple[str, ...]


@app.callback()
def _commands() -> None:
    """Keeps `verify` a command of its own."""


@app.command()
def verify(
    as_json: JsonOption = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Recompute the book's seals. Ends with status 1 if a record was changed, removed, added or reordered.

    The book of this directory, or of a server's; where TOOLCRIB_DATABASE_URL is set, of that database, server or not.

    Example: toolcrib audit verify --json
    """
    if server is None and "TOOLCRIB_DATABASE_URL" in os.environ:
        found = asyncio.run(_in_database(load_settings()))
    else:
        with open_place(directory, server=server, workspace=workspace) as place:
            found = _asked(place)
    if as_json:
        typer.echo(json.dumps({"whole": not found.problems, **asdict(found)}))
    else:
        _tell(found)
    raise typer.Exit(1 if found.problems else 0)


async def _in_database(settings: Settings) -> _Found:
    from toolcrib.engine.seals import verify as verify_chain
    from toolcrib.storage.audit import Sealing
    from toolcrib.storage.database import Database
    from toolcrib.wiring import audit_key

    async with Database.open(settings.database_url, settings.system_url, pool_size=2) as database:
        found = await verify_chain(Sealing(database), audit_key(settings), anchor=settings.audit_anchor)
        return _Found(found.seals, found.sealed, found.unsealed, found.problems)


def _asked(place: Place) -> _Found:
    """A server recomputes its chain part by part."""
    found = _Found(0, 0, 0, ())
    while True:
        part = place.client.verify_book(place.id, after=found.seals)
        is_over = part.last in (found.seals, part.newest)
        found = _Found(part.last, found.sealed + part.sealed, part.unsealed, (*found.problems, *part.problems))
        if is_over:
            return found


def _tell(found: _Found) -> None:
    for problem in found.problems:
        typer.secho(problem, fg=typer.colors.RED, err=True)
    state = "NOT WHOLE" if found.problems else "whole"
    typer.echo(f"The book is {state}: {found.sealed} records under {found.seals} seals.")
    if found.unsealed:
        typer.echo(f"{found.unsealed} records are not sealed yet, so nothing is said about them.")

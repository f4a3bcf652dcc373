"""``toolcrib audit``: the book."""

import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from toolcrib.cli.configuration import load_settings
from toolcrib.settings import Settings

if TYPE_CHECKING:
    from toolcrib.engine.seals import Verification

app = typer.Typer(help="Inspect the book of calls.", no_args_is_help=True)


@app.callback()
def _commands() -> None:
    """Keeps `verify` a command of its own."""


@app.command()
def verify(
    as_json: Annotated[bool, typer.Option("--json", help="Answer as JSON.")] = False,
) -> None:
    """Recompute the book's seals. Ends with status 1 if a record was changed, removed, added or reordered.

    Example: toolcrib audit verify --json
    """
    found = asyncio.run(_verify(load_settings()))
    if as_json:
        typer.echo(json.dumps({"whole": not found.problems, **asdict(found)}))
    else:
        _tell(found)
    raise typer.Exit(1 if found.problems else 0)


async def _verify(settings: Settings) -> "Verification":
    from toolcrib.engine.seals import verify as verify_chain
    from toolcrib.storage.audit import Sealing
    from toolcrib.storage.database import Database
    from toolcrib.wiring import audit_key

    async with Database.open(settings.database_url, settings.system_url, pool_size=2) as database:
        return await verify_chain(Sealing(database), audit_key(settings), anchor=settings.audit_anchor)


def _tell(found: "Verification") -> None:
    for problem in found.problems:
        typer.secho(problem, fg=typer.colors.RED, err=True)
    state = "NOT WHOLE" if found.problems else "whole"
    typer.echo(f"The book is {state}: {found.sealed} records under {found.seals} seals.")
    if found.unsealed:
        typer.echo(f"{found.unsealed} records are not sealed yet, so nothing is said about them.")

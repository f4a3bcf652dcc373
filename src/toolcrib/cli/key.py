"""``toolcrib key``: manages API keys. A program with your key acts as you."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolcrib.cli.command_options import (
    HERE,
    DirectoryOption,
    JsonOption,
    ServerOption,
    WorkspaceOption,
    open_workspace,
)
from toolcrib.cli.terminal_text import age, one_line
from toolcrib.core.errors import NotFound

app = typer.Typer(invoke_without_command=True)


@app.callback()
def listed(
    context: typer.Context,
    as_json: JsonOption = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """List your API keys. A key can do what you can, except create keys.

    Example: toolcrib key create laptop --days 30
    """
    context.obj = {"directory": directory, "server": server, "workspace": workspace}
    if context.invoked_subcommand is not None:
        return
    with open_workspace(**context.obj) as location:
        found = location.client.keys()
    if as_json:
        typer.echo(json.dumps([one.model_dump(mode="json") for one in found]))
        return
    if not found:
        typer.echo("You have no API keys. `toolcrib key create NAME` creates one.")
        return
    table = Table("id", "name", "prefix", "age", "acts as", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for one in found:
        holder = "an agent" if one.agent_id else "you"
        table.add_row(
            str(one.id)[-8:], Text(one_line(one.name, 40)), one_line(one.hint, 20), age(one.created_at), holder
        )
    Console().print(table)


@app.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A name for the key.")],
    days: Annotated[int | None, typer.Option(min=1, max=3650, help="Days until it expires; by default never.")] = None,
) -> None:
    """Create a key and print its secret to standard output. It is not shown again.

    Example: export TOOLCRIB_TOKEN=$(toolcrib key create ci)
    """
    with open_workspace(**context.obj) as location:
        _, secret = location.client.create_key(name=name, days=days)
    typer.echo("Copy the key now. It is not shown again. Anyone who has it can act as you.", err=True)
    typer.echo(secret)


@app.command()
def revoke(context: typer.Context, key: Annotated[str, typer.Argument(help="The id, or its last characters.")]) -> None:
    """Revoke a key.

    Example: toolcrib key revoke 3f9a2b1c
    """
    with open_workspace(**context.obj) as location:
        own = location.client.keys()
        fitting = [one for one in own if str(one.id).endswith(key.lower()) and len(key) >= 4]
        if len(fitting) != 1:
            raise NotFound(f"{len(fitting)} of your key ids end with {one_line(key, 60)!r}. `toolcrib key` lists them.")
        location.client.revoke_key(fitting[0].id)
    typer.echo(f"Revoked: {one_line(fitting[0].name, 60)}.")

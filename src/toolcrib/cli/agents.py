"""``toolcrib agents``: lists, creates and removes agents."""

import json
import sys
from pathlib import Path
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
from toolcrib.cli.terminal_text import one_line, plain
from toolcrib.core.errors import NotFound
from toolcrib.sdk.default_agent import default_name, make_default, resolve_agent

app = typer.Typer(invoke_without_command=True)

NameArgument = Annotated[str, typer.Argument(help="The agent's name.")]


@app.callback()
def listed(
    context: typer.Context,
    as_json: JsonOption = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """List agents. A star marks the default.

    Example: toolcrib agents add reviewer reviewer.yaml
    """
    context.obj = {"directory": directory, "server": server, "workspace": workspace}
    if context.invoked_subcommand is not None:
        return
    with open_workspace(**context.obj) as location:
        found, default = location.client.agents(location.id), default_name(location)
    if as_json:
        typer.echo(json.dumps([one.model_dump(mode="json") for one in found]))
        return
    if not found:
        typer.echo("No agents yet. `toolcrib run` or `toolcrib chat` creates one.")
        return
    table = Table("", "name", "model", "trust", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for one in found:
        model = f"{one.rules.get('provider') or '-'}/{one.rules.get('model') or '-'}"
        star = "*" if one.name == default else ""
        table.add_row(star, Text(one_line(one.name, 40)), Text(one_line(model, 60)), str(one.rules["trust"]))
    Console().print(table)


@app.command()
def show(context: typer.Context, name: NameArgument) -> None:
    """Show an agent's definition.

    Example: toolcrib agents show assistant > assistant.yaml
    """
    with open_workspace(**context.obj) as location:
        typer.echo(plain(resolve_agent(location, name).definition), nl=False)


@app.command()
def add(
    context: typer.Context,
    name: NameArgument,
    file: Annotated[Path, typer.Argument(help="The definition as a YAML file; `-` reads standard input.")],
) -> None:
    """Create an agent, or replace the definition of an existing one.

    Example: toolcrib agents add reviewer reviewer.yaml
    """
    try:
        definition = sys.stdin.read() if str(file) == "-" else file.read_text()
    except OSError as error:
        raise NotFound(f"Cannot read {file}: {error.strerror}.") from None
    with open_workspace(**context.obj) as location:
        known = next((one for one in location.client.agents(location.id) if one.name == name), None)
        if known is None:
            location.client.create_agent(location.id, name=name, definition=definition)
        else:
            location.client.change_agent(location.id, known.id, definition=definition)
    typer.echo(f"{'Created' if known is None else 'Updated'}: {one_line(name, 60)}.")


@app.command()
def default(context: typer.Context, name: NameArgument) -> None:
    """Set the default agent of this directory.

    Example: toolcrib agents default reviewer
    """
    with open_workspace(**context.obj) as location:
        make_default(location, resolve_agent(location, name).name)
    typer.echo(f"Default agent: {one_line(name, 60)}.")


@app.command()
def remove(context: typer.Context, name: NameArgument) -> None:
    """Remove an agent and revoke its API keys. Its history stays.

    Example: toolcrib agents remove reviewer
    """
    with open_workspace(**context.obj) as location:
        location.client.delete_agent(location.id, resolve_agent(location, name).id)
    typer.echo(f"Removed: {one_line(name, 60)}.")

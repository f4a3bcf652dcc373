"""``toolcrib workspace``: the directories and workspaces that you have."""

import json
from typing import Annotated

import typer

from toolcrib.cli.command_options import (
    HERE,
    DirectoryOption,
    JsonOption,
    ServerOption,
    WorkspaceOption,
    open_workspace,
)
from toolcrib.cli.terminal_text import one_line
from toolcrib.core.agents import TrustLevel

app = typer.Typer(invoke_without_command=True)


@app.callback()
def listed(
    context: typer.Context,
    as_json: JsonOption = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """List your workspaces; the one of this directory has a star.

    Example: toolcrib workspace rename website
    """
    context.obj = {"directory": directory, "server": server, "workspace": workspace}
    if context.invoked_subcommand is not None:
        return
    with open_workspace(**context.obj) as place:
        found = place.client.workspaces()
    if as_json:
        typer.echo(json.dumps([{**one.model_dump(mode="json"), "here": one.id == place.id} for one in found]))
        return
    for one in found:
        typer.echo(f"{'*' if one.id == place.id else ' '} {one.id}  {one_line(one.name, 200)}")


@app.command()
def rename(context: typer.Context, name: Annotated[str, typer.Argument(help="The new name.")]) -> None:
    """Give this workspace another name. The directory keeps its own.

    Example: toolcrib workspace rename website
    """
    with open_workspace(**context.obj) as place:
        place.client.rename_workspace(place.id, name)
    typer.echo(f"It is called {one_line(name, 200)} now.")


@app.command(name="max-trust")
def max_trust(
    context: typer.Context,
    level: Annotated[str, typer.Argument(help="supervised, guided or autonomous; `none` lifts the ceiling.")],
) -> None:
    """Set the most that any session of this workspace may trust an agent. Only its owners may.

    Example: toolcrib workspace max-trust guided
    """
    if level not in (*TrustLevel, "none"):
        raise typer.BadParameter(
            f"There is no trust {one_line(level, 40)!r}. There are: {', '.join(TrustLevel)}, none."
        )
    with open_workspace(**context.obj) as place:
        place.client.limit_trust(place.id, None if level == "none" else level)
    typer.echo("There is no ceiling now." if level == "none" else f"Agents here are trusted {level} at most.")


@app.command()
def delete(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask me.")] = False,
) -> None:
    """Forget this directory's history, sessions and agents, for good. Its files stay as they are.

    Example: toolcrib workspace delete
    """
    with open_workspace(**context.obj) as place:
        if not yes:
            typer.confirm(f"Forget the history of {one_line(place.workspace.name, 200)}? Undo ends with it", abort=True)
        place.client.delete_workspace(place.id)
    typer.echo("Forgotten. The files are still there.")

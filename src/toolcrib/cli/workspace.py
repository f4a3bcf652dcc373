"""``toolcrib workspace``: lists and manages your workspaces."""

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
    """List your workspaces. A star marks the one of this directory.

    Example: toolcrib workspace rename website
    """
    context.obj = {"directory": directory, "server": server, "workspace": workspace}
    if context.invoked_subcommand is not None:
        return
    with open_workspace(**context.obj) as location:
        found = location.client.workspaces()
    if as_json:
        typer.echo(json.dumps([{**one.model_dump(mode="json"), "here": one.id == location.id} for one in found]))
        return
    for one in found:
        typer.echo(f"{'*' if one.id == location.id else ' '} {one.id}  {one_line(one.name, 200)}")


@app.command()
def rename(context: typer.Context, name: Annotated[str, typer.Argument(help="The new name.")]) -> None:
    """Rename this workspace. The directory keeps its name.

    Example: toolcrib workspace rename website
    """
    with open_workspace(**context.obj) as location:
        location.client.rename_workspace(location.id, name)
    typer.echo(f"Renamed to {one_line(name, 200)}.")


@app.command(name="max-trust")
def max_trust(
    context: typer.Context,
    level: Annotated[str, typer.Argument(help="supervised, guided or autonomous; `none` removes the limit.")],
) -> None:
    """Limit the trust level of all sessions in this workspace; owners only.

    Example: toolcrib workspace max-trust guided
    """
    if level not in (*TrustLevel, "none"):
        raise typer.BadParameter(
            f"There is no trust level {one_line(level, 40)!r}. Trust levels: {', '.join(TrustLevel)}, none."
        )
    with open_workspace(**context.obj) as location:
        location.client.limit_trust(location.id, None if level == "none" else level)
    typer.echo("Trust limit removed." if level == "none" else f"Trust limit: {level}.")


@app.command()
def delete(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
) -> None:
    """Delete this workspace: its history, sessions and agents. The files stay.

    Example: toolcrib workspace delete
    """
    with open_workspace(**context.obj) as location:
        if not yes:
            typer.confirm(
                f"Delete workspace {one_line(location.workspace.name, 200)}? You cannot undo its changes afterwards.",
                abort=True,
            )
        location.client.delete_workspace(location.id)
    typer.echo("Deleted. The files are unchanged.")

"""``toolcrib workspace``: lists and manages your workspaces."""

from typing import Annotated

import typer

from toolcrib.cli.command_options import (
    JsonOption,
    WorkspaceLocation,
    YesOption,
    group_in_workspace,
    in_workspace_of_group,
)
from toolcrib.cli.terminal_text import one_line, print_json
from toolcrib.core.agents import TrustLevel

app = typer.Typer(invoke_without_command=True)


@app.callback()
@group_in_workspace
def listed(location: WorkspaceLocation, as_json: JsonOption = False) -> None:
    """List your workspaces. A star marks the one of this directory.

    Example: toolcrib workspace rename website
    """
    found = location.client.workspaces()
    if as_json:
        print_json([{**one.model_dump(mode="json"), "here": one.id == location.id} for one in found])
        return
    for one in found:
        typer.echo(f"{'*' if one.id == location.id else ' '} {one.id}  {one_line(one.name, 200)}")


@app.command()
@in_workspace_of_group
def rename(location: WorkspaceLocation, name: Annotated[str, typer.Argument(help="The new name.")]) -> None:
    """Rename this workspace. The directory keeps its name.

    Example: toolcrib workspace rename website
    """
    location.client.rename_workspace(location.id, name)
    typer.echo(f"Renamed to {one_line(name, 200)}.")


@app.command(name="max-trust")
@in_workspace_of_group
def max_trust(
    location: WorkspaceLocation,
    level: Annotated[str, typer.Argument(help="supervised, guided, review or autonomous; `none` removes the limit.")],
) -> None:
    """Limit the trust level of all sessions in this workspace; owners only.

    Example: toolcrib workspace max-trust guided
    """
    if level not in (*TrustLevel, "none"):
        raise typer.BadParameter(
            f"There is no trust level {one_line(level, 40)!r}. Trust levels: {', '.join(TrustLevel)}, none."
        )
    location.client.limit_trust(location.id, None if level == "none" else level)
    typer.echo("Trust limit removed." if level == "none" else f"Trust limit: {level}.")


@app.command()
@in_workspace_of_group
def delete(location: WorkspaceLocation, yes: YesOption = False) -> None:
    """Delete this workspace: its history, sessions and agents. The files stay.

    Example: toolcrib workspace delete
    """
    if not yes:
        typer.confirm(
            f"Delete workspace {one_line(location.workspace.name, 200)}? You cannot undo its changes afterwards.",
            abort=True,
        )
    location.client.delete_workspace(location.id)
    typer.echo("Deleted. The files are unchanged.")

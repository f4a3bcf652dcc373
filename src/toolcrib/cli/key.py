"""``toolcrib key``: manages API keys. A program with your key acts as you."""

from typing import Annotated

import typer

from toolcrib.cli.command_options import JsonOption, WorkspaceLocation, group_in_workspace, in_workspace_of_group
from toolcrib.cli.terminal_text import Row, age, find_by_id, one_line, print_list, short_id
from toolcrib.client import ApiKeyOut

app = typer.Typer(invoke_without_command=True)


@app.callback()
@group_in_workspace
def listed(location: WorkspaceLocation, as_json: JsonOption = False) -> None:
    """List your API keys. A key can do what you can, except create keys.

    Example: toolcrib key create laptop --days 30
    """

    def row(one: ApiKeyOut) -> Row:
        holder = "an agent" if one.agent_id else "you"
        return short_id(one.id), one_line(one.name, 40), one_line(one.hint, 20), age(one.created_at), holder

    empty = "You have no API keys. `toolcrib key create NAME` creates one."
    headings = ("id", "name", "prefix", "age", "acts as")
    print_list(location.client.keys(), headings, row, as_json=as_json, empty=empty)


@app.command()
@in_workspace_of_group
def create(
    location: WorkspaceLocation,
    name: Annotated[str, typer.Argument(help="A name for the key.")],
    days: Annotated[int | None, typer.Option(min=1, max=3650, help="Days until it expires; by default never.")] = None,
) -> None:
    """Create a key and print its secret to standard output. It is not shown again.

    Example: export TOOLCRIB_TOKEN=$(toolcrib key create ci)
    """
    _, secret = location.client.create_key(name=name, days=days)
    typer.echo("Copy the key now. It is not shown again. Anyone who has it can act as you.", err=True)
    typer.echo(secret)


@app.command()
@in_workspace_of_group
def revoke(
    location: WorkspaceLocation,
    key: Annotated[str, typer.Argument(help="The id, or its first or last characters.")],
) -> None:
    """Revoke a key.

    Example: toolcrib key revoke 3f9a2b1c
    """
    missing = f"You have no key {one_line(key, 60)!r}. `toolcrib key` lists them."
    found = find_by_id(location.client.keys(), key, lambda one: one.id, missing=missing)
    location.client.revoke_key(found.id)
    typer.echo(f"Revoked: {one_line(found.name, 60)}.")

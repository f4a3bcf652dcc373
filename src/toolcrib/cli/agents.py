"""``toolcrib agents``: lists, creates and removes agents."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from toolcrib.cli.command_options import JsonOption, WorkspaceLocation, group_in_workspace, in_workspace_of_group
from toolcrib.cli.terminal_text import Row, error_text, one_line, plain, print_list
from toolcrib.client import AgentOut
from toolcrib.core.errors import BadArguments, NotFound
from toolcrib.sdk.default_agent import default_name, make_default, resolve_agent

app = typer.Typer(invoke_without_command=True)

NameArgument = Annotated[str, typer.Argument(help="The agent's name.")]


@app.callback()
@group_in_workspace
def listed(location: WorkspaceLocation, as_json: JsonOption = False) -> None:
    """List agents. A star marks the default.

    Example: toolcrib agents add reviewer reviewer.yaml
    """
    default = default_name(location)

    def row(one: AgentOut) -> Row:
        model = f"{one.rules.provider or '-'}/{one.rules.model or '-'}"
        star = "*" if one.name == default else ""
        return star, one_line(one.name, 40), one_line(model, 60), one.rules.trust

    empty = "No agents yet. `toolcrib run` or `toolcrib chat` creates one."
    found = location.client.agents(location.id)
    print_list(found, ("", "name", "model", "trust"), row, as_json=as_json, empty=empty)


@app.command()
@in_workspace_of_group
def show(location: WorkspaceLocation, name: NameArgument) -> None:
    """Show an agent's definition.

    Example: toolcrib agents show assistant > assistant.yaml
    """
    typer.echo(plain(resolve_agent(location, name).definition), nl=False)


@app.command(name="skills")
@in_workspace_of_group
def list_skills(location: WorkspaceLocation, as_json: JsonOption = False) -> None:
    """List the project's skills, and why one is not offered to agents.

    Example: toolcrib agents skills
    """
    from toolcrib.workspace.text import skills

    files = [file for folder in skills.FOLDERS for file in _skill_files(location, f"/{folder}", skills.FILE_NAME)]
    found = [asdict(skills.Skill(*fields)) for fields in skills.parse_skills(files)]

    def row(one: dict[str, str]) -> Row:
        return one_line(one["name"], 64), one_line(one["path"], 80), one_line(one["flaw"] or "offered", 200)

    empty = f"No skills. Put one into {skills.FOLDERS[0]}/NAME/{skills.FILE_NAME}."
    print_list(found, ("name", "file", "state"), row, as_json=as_json, empty=empty)


def _skill_files(location: WorkspaceLocation, folder: str, name: str) -> Iterator[tuple[str, bytes]]:
    try:
        entries = location.client.call(location.id, "ls", {"path": folder, "limit": 0})["entries"]
    except NotFound:
        return
    for entry in entries:
        path = f"{entry['path']}/{name}"
        if entry["file_type"] == "Folder":
            with suppress(NotFound):
                yield path, str(location.client.call(location.id, "read", {"path": path})["content"]).encode()


@app.command()
@in_workspace_of_group
def add(
    location: WorkspaceLocation,
    name: NameArgument,
    file: Annotated[Path, typer.Argument(help="The definition as a YAML file; `-` reads standard input.")],
) -> None:
    """Create an agent, or replace the definition of an existing one.

    Example: toolcrib agents add reviewer reviewer.yaml
    """
    definition = _definition_in(file)
    known = next((one for one in location.client.agents(location.id) if one.name == name), None)
    if known is None:
        location.client.create_agent(location.id, name=name, definition=definition)
    else:
        location.client.change_agent(location.id, known.id, definition=definition)
    typer.echo(f"{'Created' if known is None else 'Updated'}: {one_line(name, 60)}.")


@app.command()
@in_workspace_of_group
def check(
    location: WorkspaceLocation,
    file: Annotated[Path, typer.Argument(help="The definition as a YAML file; `-` reads standard input.")],
) -> None:
    """Check a definition: its fields, and the names of tools and toolsets. Changes nothing.

    Exits with 1 if there is a mistake.

    Example: toolcrib agents check reviewer.yaml
    """
    import toolcrib.tools
    from toolcrib.policy.agent_definition import KnownNames, parse_definition, reject_unknown_names
    from toolcrib.tools.tool_registry import ToolRegistry, discover_tools

    built_in = ToolRegistry(discover_tools(toolcrib.tools)).names
    here = (str(one["name"]) for one in location.client.tools(location.id))
    known = KnownNames(built_in.tools.union(here), built_in.toolsets)
    try:
        reject_unknown_names(parse_definition(_definition_in(file)), known)
    except BadArguments as error:
        typer.secho(error_text(error), fg="red", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{file}: no mistakes found.")


@app.command()
@in_workspace_of_group
def default(location: WorkspaceLocation, name: NameArgument) -> None:
    """Set the default agent of this directory.

    Example: toolcrib agents default reviewer
    """
    make_default(location, resolve_agent(location, name).name)
    typer.echo(f"Default agent: {one_line(name, 60)}.")


@app.command()
@in_workspace_of_group
def remove(location: WorkspaceLocation, name: NameArgument) -> None:
    """Remove an agent and revoke its API keys. Its history stays.

    Example: toolcrib agents remove reviewer
    """
    location.client.delete_agent(location.id, resolve_agent(location, name).id)
    typer.echo(f"Removed: {one_line(name, 60)}.")


def _definition_in(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text()
    except OSError as error:
        raise NotFound(f"Cannot read {file}: {error.strerror}.") from None

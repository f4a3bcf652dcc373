"""``toolcrib mcp``: a workspace for MCP clients; and its commands: MCP servers whose tools agents here may use."""

import json
import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolcrib.cli.mcp_pipe import serve
from toolcrib.cli.place import HERE, DirectoryOption, JsonOption, Place, ServerOption, WorkspaceOption, open_place
from toolcrib.cli.showing import one_line, plain
from toolcrib.client import McpServer
from toolcrib.domain.errors import BadArguments, Misconfigured, NotFound

app = typer.Typer(invoke_without_command=True)

NameArgument = Annotated[str, typer.Argument(help="The server's name: its tools are `mcp:NAME/…`.")]


@app.callback()
def served(
    context: typer.Context,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Serve a workspace's tools to an MCP client on standard input and output.

    Without a server, the workspace is the directory. With one, TOOLCRIB_TOKEN is your API key or an agent's; an agent's
    key knows its workspace. The commands are for the other way: MCP servers whose tools agents here may use.

    Example, in a client's configuration: {"command": "toolcrib", "args": ["mcp", "-C", "/path/to/project"]}
    """
    context.obj = {"directory": directory, "server": server, "workspace": workspace}
    if context.invoked_subcommand is None:
        serve(**context.obj)


@app.command()
def add(
    context: typer.Context,
    name: NameArgument,
    command: Annotated[list[str] | None, typer.Argument(help="A program, which runs in the sandbox.")] = None,
    url: Annotated[str | None, typer.Option(help="An address, instead of a program.")] = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(help="A header or variable for it, from the environment: NAME, or NAME=VARIABLE."),
    ] = None,
    safe: Annotated[list[str] | None, typer.Option(help="A tool that needs no approval.")] = None,
) -> None:
    """Add a server and see what it offers; for owners. Its tools are of no use until you accept them.

    Example: toolcrib mcp add files -- node /opt/mcp/server.js /data
    """
    secrets = dict(_from_environment(one) for one in secret or ())
    with open_place(**context.obj) as place:
        made = place.client.create_mcp_server(
            place.id, name=name, command=command or None, url=url, secrets=secrets, safe_tools=safe or []
        )
    _show(made)
    if made.seen:
        typer.echo(f"Nobody can use them yet. Look them through, then: toolcrib mcp accept {made.name}")


@app.command("list")
def listed(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the servers here.

    Example: toolcrib mcp list
    """
    with open_place(**context.obj) as place:
        found = place.client.mcp_servers(place.id)
    if as_json:
        typer.echo(json.dumps([one.model_dump(mode="json") for one in found]))
        return
    if not found:
        typer.echo("There are no MCP servers here yet. `toolcrib mcp add` adds one.")
        return
    table = Table("name", "where", "tools", "state", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for one in found:
        table.add_row(one.name, Text(one_line(_where(one), 60)), str(len(one.approved)), Text(_state(one)))
    Console().print(table)


@app.command()
def show(
    context: typer.Context,
    name: NameArgument,
    again: Annotated[bool, typer.Option("--again", help="Ask the server anew; for owners.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a server offers, what was accepted of it, and what has changed since.

    Example: toolcrib mcp show files --again
    """
    with open_place(**context.obj) as place:
        found = _found(place, name)
        if again:
            found = place.client.look_at_mcp_server(place.id, found.id)
    if as_json:
        typer.echo(found.model_dump_json())
        return
    _show(found)


@app.command()
def accept(
    context: typer.Context,
    name: NameArgument,
    sha256: Annotated[str | None, typer.Option(help="Of the list that you have seen, instead of being asked.")] = None,
) -> None:
    """Let agents use the tools that a server offers now; for owners. One that changes later is off until you do again.

    Example: toolcrib mcp accept files
    """
    with open_place(**context.obj) as place:
        found = _found(place, name)
        if found.seen_sha256 is None:
            raise BadArguments({"name": found.problem or "it offered nothing yet"}, f"{name} has no tools to accept.")
        if sha256 is None:
            _show(found)
            if not sys.stdin.isatty():
                raise Misconfigured(f"Nobody can be asked here. If that is what you want: --sha256 {found.seen_sha256}")
            typer.confirm("Let agents use these, as they are described?", abort=True)
        done = place.client.approve_mcp_server(place.id, found.id, sha256=sha256 or found.seen_sha256)
    typer.echo(f"Accepted: {len(done.approved)} tools of {done.name}. An agent uses what its definition allows.")


@app.command()
def remove(context: typer.Context, name: NameArgument) -> None:
    """Remove a server and its tools; for owners. What they did stays.

    Example: toolcrib mcp remove files
    """
    with open_place(**context.obj) as place:
        place.client.delete_mcp_server(place.id, _found(place, name).id)
    typer.echo(f"Removed: {one_line(name, 60)}.")


def _found(place: Place, name: str) -> McpServer:
    own = place.client.mcp_servers(place.id)
    found = next((one for one in own if one.name == name), None)
    if found is None:
        names = ", ".join(one.name for one in own) or "none"
        raise NotFound(f"There is no MCP server called {name!r} here. There are: {names}.")
    return found


def _from_environment(said: str) -> tuple[str, str]:
    """A secret by the name of the variable that holds it: what stands in a command is seen by all on the machine."""
    name, _, variable = said.partition("=")
    value = os.environ.get(variable or name)
    if value is None:
        raise Misconfigured(f"Put the secret {name!r} into the environment first: {variable or name} is not set there.")
    return name, value


def _show(server: McpServer) -> None:
    """What a server says of its tools is shown as plain text: nothing in it can steer the terminal."""
    typer.echo(f"{server.name}: {one_line(_where(server))} ({_state(server)})")
    if server.problem:
        typer.echo(f"  {one_line(server.problem, 1_000)}")
    accepted = {tool.name: tool.sha256 for tool in server.approved}
    for tool in server.seen if server.seen is not None else server.approved:
        mark = {tool.sha256: "accepted", None: "new"}.get(accepted.get(tool.name), "changed")
        safe = ", safe" if tool.name in server.safe_tools else ""
        typer.echo(f"\n  {one_line(tool.name, 100)} ({mark}{safe})")
        for line in plain(tool.description).splitlines():
            typer.echo(f"    {line}")
        typer.echo(f"    takes {one_line(json.dumps(tool.input_schema.get('properties', {})), 1_000)}")
    if server.seen_sha256:
        typer.echo(f"\n  sha256 {server.seen_sha256}")


def _where(server: McpServer) -> str:
    return server.url or " ".join(server.command)


def _state(server: McpServer) -> str:
    if not server.enabled:
        return "switched off"
    if server.awaits_approval:
        return "to be accepted" if not server.approved else "changed: to be accepted again"
    return "accepted" if server.approved else "nothing offered"

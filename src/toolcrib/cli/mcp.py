"""``toolcrib mcp``: serves a workspace to MCP clients, and manages MCP servers whose tools agents can use."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolcrib.cli.command_options import (
    HERE,
    JsonOption,
    WorkspaceLocation,
    WorkspaceSelection,
    aside,
    in_workspace_of_group,
    with_options,
)
from toolcrib.cli.terminal_text import one_line, plain, print_list
from toolcrib.client import McpServerOut
from toolcrib.core.errors import BadArguments, Misconfigured, NotFound
from toolcrib.core.mcp_servers import McpWorkspaceAccess

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

app = typer.Typer(invoke_without_command=True)

NameArgument = Annotated[str, typer.Argument(help="The server's name: its tools are `mcp:NAME/…`.")]
SecretOption = Annotated[
    list[str] | None,
    typer.Option(
        help="A variable or header to pass: NAME, or NAME=VARIABLE. Its value is that of the environment variable; "
        "if there is none, it is prompted for, or read from a line of standard input."
    ),
]
HostOption = Annotated[
    list[str] | None,
    typer.Option(help="A host that the program may contact, such as api.example.com or db.local:8080."),
]
WorkspaceOption = Annotated[
    McpWorkspaceAccess | None, typer.Option("--workspace-access", help="What the program sees of the workspace.")
]


@app.callback()
@with_options(WorkspaceSelection)
def served(selection: WorkspaceSelection, context: typer.Context) -> None:
    """Serve a workspace's tools to an MCP client on standard input and output.

    Serves the directory. With --server, TOOLCRIB_TOKEN is your API key or an agent's; an agent's key implies its
    workspace. The subcommands manage MCP servers whose tools agents can use.

    Example, in a client's configuration: {"command": "toolcrib", "args": ["mcp", "-C", "/path/to/project"]}
    """
    context.obj = selection
    if context.invoked_subcommand is None:
        with _address(selection) as (url, token):
            asyncio.run(_pass_on(url, token))


@contextmanager
def _address(selection: WorkspaceSelection) -> Iterator[tuple[str, Callable[[], str]]]:
    if selection.server is None:
        from toolcrib.local import open_local

        with open_local(selection.directory, finds_project=selection.directory == HERE, notify=aside) as local:
            yield f"{local.address}/mcp/{local.workspace_id}", local.token
        return
    token = os.environ.get("TOOLCRIB_TOKEN")
    if not token:
        raise Misconfigured("TOOLCRIB_TOKEN is not set. Set it to your API key or an agent's.")
    url = f"{selection.server.rstrip('/')}/mcp"
    if selection.workspace is None:
        yield url, lambda: token
        return
    with selection.open() as location:
        yield f"{url}/{location.id}", lambda: token


async def _pass_on(url: str, token: Callable[[], str]) -> None:
    """Forwards messages both ways, until the client closes our input."""
    import anyio
    import httpx2
    from mcp.client.streamable_http import streamable_http_client
    from mcp.server.stdio import stdio_server

    timeout = httpx2.Timeout(30, read=600)
    protocol = _ProtocolVersion()

    async def add_token(request: httpx2.Request) -> None:
        # For each request, because a directory's token is renewed while this runs.
        request.headers["Authorization"] = f"Bearer {token()}"

    async with (
        httpx2.AsyncClient(timeout=timeout, trust_env=False, event_hooks={"request": [add_token]}) as http,
        stdio_server() as (from_client, to_client),
        streamable_http_client(url, http_client=http) as (from_server, to_server),
        anyio.create_task_group() as group,
    ):

        async def back() -> None:
            async for answer in from_server:
                if not isinstance(answer, Exception):
                    protocol.record(answer)
                    await to_client.send(answer)

        group.start_soon(back)
        async for message in from_client:
            if not isinstance(message, Exception):
                await to_server.send(protocol.with_headers(message))
        group.cancel_scope.cancel()


class _ProtocolVersion:
    """The negotiated protocol version. HTTP headers repeat it, and the method and name of each request."""

    def __init__(self) -> None:
        self._agreed: str | None = None

    def record(self, answer: "SessionMessage") -> None:
        """Stores the version from the response to `initialize`."""
        result = getattr(answer.message, "result", None)
        if self._agreed is None and isinstance(result, dict) and isinstance(result.get("protocolVersion"), str):
            self._agreed = result["protocolVersion"]

    def with_headers(self, message: "SessionMessage") -> "SessionMessage":
        from mcp.shared import inbound
        from mcp.shared.message import ClientMessageMetadata, SessionMessage
        from mcp_types import PROTOCOL_VERSION_META_KEY

        method, params = getattr(message.message, "method", None), getattr(message.message, "params", None)
        given = params if isinstance(params, dict) else {}
        version = (given.get("_meta") or {}).get(PROTOCOL_VERSION_META_KEY)
        headers = {}
        if method is None or method == "initialize":
            return message
        if isinstance(version, str):
            headers = {inbound.MCP_PROTOCOL_VERSION_HEADER: version, inbound.MCP_METHOD_HEADER: method}
            if isinstance(name := given.get("name"), str):
                headers[inbound.MCP_NAME_HEADER] = inbound.encode_header_value(name)
        elif self._agreed:
            headers = {inbound.MCP_PROTOCOL_VERSION_HEADER: self._agreed}
        return SessionMessage(message.message, ClientMessageMetadata(headers=headers)) if headers else message


@app.command()
@in_workspace_of_group
def add(
    location: WorkspaceLocation,
    name: NameArgument,
    command: Annotated[list[str] | None, typer.Argument(help="A program to run in the sandbox.")] = None,
    url: Annotated[str | None, typer.Option(help="A URL instead of a program.")] = None,
    secret: SecretOption = None,
    host: HostOption = None,
    access: WorkspaceOption = None,
    safe: Annotated[list[str] | None, typer.Option(help="A tool that needs no approval.")] = None,
) -> None:
    """Add a server and list its tools; owners only. Agents can use them after `mcp approve`.

    Example: toolcrib mcp add files -- node /opt/mcp/server.js /data
    """
    made = location.client.create_mcp_server(
        location.id,
        name=name,
        command=command or None,
        url=url,
        secrets=dict(map(_read_secret, secret or ())),
        hosts=host or [],
        workspace_access=access or McpWorkspaceAccess.NONE,
        safe_tools=safe or [],
    )
    _show(made)
    if made.offered_tools:
        typer.echo(f"Agents cannot use these tools yet. Review them, then run: toolcrib mcp approve {made.name}")


@app.command()
@in_workspace_of_group
def update(
    location: WorkspaceLocation,
    name: NameArgument,
    secret: SecretOption = None,
    remove_secret: Annotated[list[str] | None, typer.Option(help="The name of a secret to remove.")] = None,
    host: HostOption = None,
    no_hosts: Annotated[bool, typer.Option("--no-hosts", help="Let the program contact no host.")] = False,
    access: WorkspaceOption = None,
) -> None:
    """Change the secrets, the hosts or the workspace access of a server; owners only.

    Given secrets are added or replaced; given hosts replace the list.

    Example: toolcrib mcp update gitlab --host gitlab.example.com --secret GITLAB_PERSONAL_ACCESS_TOKEN
    """
    if host and no_hosts:
        raise Misconfigured("--host and --no-hosts exclude each other. Give one of them.")
    found = _found(location, name)
    removed: dict[str, str | None] = dict.fromkeys(remove_secret or ())
    if unknown := sorted(removed.keys() - set(found.secret_names)):
        known = ", ".join(found.secret_names) or "none"
        raise NotFound(f"{name} has no secret {one_line(unknown[0], 100)!r}. Secrets: {known}.")
    changes: dict[str, Any] = {
        "secrets": {**removed, **dict(map(_read_secret, secret or ()))} or None,
        "hosts": [] if no_hosts else host,
        "workspace_access": access,
    }
    changed = location.client.update_mcp_server(
        location.id, found.id, **{field: value for field, value in changes.items() if value is not None}
    )
    _show(location.client.refresh_mcp_server(location.id, changed.id))


@app.command("list")
@in_workspace_of_group
def listed(location: WorkspaceLocation, as_json: JsonOption = False) -> None:
    """List MCP servers.

    Example: toolcrib mcp list
    """
    print_list(
        location.client.mcp_servers(location.id),
        ("name", "where", "secrets", "hosts", "tools", "state"),
        lambda one: (
            one.name,
            one_line(_where(one), 60),
            one_line(", ".join(one.secret_names), 60),
            one_line(", ".join(one.hosts), 60),
            str(len(one.approved_tools)),
            _state(one),
        ),
        as_json=as_json,
        empty="No MCP servers yet. `toolcrib mcp add` adds one.",
    )


@app.command()
@in_workspace_of_group
def show(
    location: WorkspaceLocation,
    name: NameArgument,
    refresh: Annotated[bool, typer.Option("--refresh", help="Ask the server again; owners only.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the tools of a server: approved, new and changed ones.

    Example: toolcrib mcp show files --refresh
    """
    found = _found(location, name)
    if refresh:
        found = location.client.refresh_mcp_server(location.id, found.id)
    if as_json:
        typer.echo(found.model_dump_json())
    else:
        _show(found)


@app.command()
@in_workspace_of_group
def approve(
    location: WorkspaceLocation,
    name: NameArgument,
    sha256: Annotated[
        str | None, typer.Option(help="Approve the list with this SHA-256 without a confirmation.")
    ] = None,
) -> None:
    """Approve the tools of a server; owners only. A tool that changes later needs a new approval.

    Example: toolcrib mcp approve files
    """
    found = _found(location, name)
    if found.offered_sha256 is None:
        reason = found.last_error or "the server has not offered any tools yet"
        raise BadArguments({"name": reason}, f"{name} has no tools to approve.")
    if sha256 is None:
        _show(found)
        if not sys.stdin.isatty():
            raise Misconfigured(
                f"There is no terminal to confirm at. To approve this list, add --sha256 {found.offered_sha256}"
            )
        typer.confirm("Approve these tools?", abort=True)
    done = location.client.approve_mcp_server(location.id, found.id, sha256=sha256 or found.offered_sha256)
    typer.echo(
        f"Approved {len(done.approved_tools)} tools of {done.name}. Agents can use those that their definition permits."
    )


@app.command()
@in_workspace_of_group
def remove(location: WorkspaceLocation, name: NameArgument) -> None:
    """Remove a server and its tools; owners only. Their history stays.

    Example: toolcrib mcp remove files
    """
    location.client.delete_mcp_server(location.id, _found(location, name).id)
    typer.echo(f"Removed: {one_line(name, 60)}.")


def _found(location: WorkspaceLocation, name: str) -> McpServerOut:
    own = location.client.mcp_servers(location.id)
    found = next((one for one in own if one.name == name), None)
    if found is None:
        names = ", ".join(one.name for one in own) or "none"
        raise NotFound(f"There is no MCP server {name!r}. MCP servers: {names}.")
    return found


def _read_secret(text: str) -> tuple[str, str]:
    """Reads a secret's name and value. No value is an argument: all users of the machine can see those."""
    name, _, variable = text.partition("=")
    value = os.environ.get(variable or name)
    if value is None and not variable:
        shown = one_line(name, 100)
        is_terminal = sys.stdin.isatty()
        value = str(typer.prompt(shown, hide_input=True)) if is_terminal else sys.stdin.readline().rstrip("\r\n")
    if not value:
        raise Misconfigured(f"The environment variable {variable or name} is not set. Set it to the secret {name!r}.")
    return name, value


def _show(server: McpServerOut) -> None:
    """Prints a server and its tools. Escapes the server's text, so that it cannot control the terminal."""
    typer.echo(f"{server.name}: {one_line(_where(server))} ({_state(server)})")
    if server.secret_names:
        typer.echo(f"  secrets: {', '.join(server.secret_names)}")
    if server.hosts:
        typer.echo(f"  hosts: {', '.join(server.hosts)}")
    if server.workspace_access is not McpWorkspaceAccess.NONE:
        typer.echo(f"  workspace: {server.workspace_access}")
    if server.last_error:
        typer.echo(f"  {one_line(server.last_error, 1_000)}")
    accepted = {tool.name: tool.sha256 for tool in server.approved_tools}
    for tool in server.offered_tools if server.offered_tools is not None else server.approved_tools:
        mark = {tool.sha256: "approved", None: "new"}.get(accepted.get(tool.name), "changed")
        safe = ", safe" if tool.name in server.safe_tools else ""
        typer.echo(f"\n  {one_line(tool.name, 100)} ({mark}{safe})")
        for line in plain(tool.description).splitlines():
            typer.echo(f"    {line}")
        typer.echo(f"    arguments {one_line(json.dumps(tool.input_schema.get('properties', {})), 1_000)}")
    if server.offered_sha256:
        typer.echo(f"\n  sha256 {server.offered_sha256}")


def _where(server: McpServerOut) -> str:
    return server.url or " ".join(server.command)


def _state(server: McpServerOut) -> str:
    if not server.enabled:
        return "disabled"
    if server.needs_approval:
        return "needs approval" if not server.approved_tools else "changed, needs approval"
    return "approved" if server.approved_tools else "no tools"

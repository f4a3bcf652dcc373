"""``toolcrib tool``: calls any tool from the shell, through the gate."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from toolcrib.cli.command_options import (
    HERE,
    DirectoryOption,
    JsonOption,
    ServerOption,
    WorkspaceLocation,
    WorkspaceOption,
    open_workspace,
)
from toolcrib.cli.terminal_text import one_line
from toolcrib.core.errors import BadArguments, NotFound, ToolcribError

TAKES_ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True}


def tool(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The tool. Without it, lists all tools.")] = None,
    json_args: Annotated[
        str | None, typer.Option(help="All arguments as a JSON object; `-` reads standard input.")
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Show the schema of the arguments.")] = False,
    as_json: JsonOption = False,
    directory: DirectoryOption = HERE,
    server: ServerOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Call a tool. Pass arguments as --name value; lists and objects as JSON.

    Exits with 1 if the call failed or was denied. `toolcrib tool NAME --schema` shows the arguments.

    Example: toolcrib tool grep --pattern TODO --path /src
    """
    with open_workspace(directory, server=server, workspace=workspace) as location:
        tools = {one["name"]: one for one in location.client.tools(location.id)}
        if name is None:
            _list(tools, as_json=as_json)
            return
        if name not in tools:
            raise NotFound(f"There is no tool {one_line(name, 60)!r}. `toolcrib tool` lists them.")
        takes = tools[name]["inputSchema"]
        if schema:
            typer.echo(json.dumps(takes, indent=2))
            return
        given = _from_json(json_args) if json_args is not None else {}
        given |= _from_options(context.args, takes.get("properties") or {})
        raise typer.Exit(_call(location, name, given, as_json=as_json))


def _call(location: WorkspaceLocation, name: str, given: Mapping[str, Any], *, as_json: bool) -> int:
    try:
        result = location.client.call(location.id, name, given)
    except ToolcribError as error:
        body = {"success": False, "error": error.message, "code": error.code, "fields": error.fields}
        if as_json:
            typer.echo(json.dumps(body))
            return 1
        typer.secho(f"{name}: {one_line(error.message, 2_000)}", fg="red", err=True)
        for field, flaw in error.fields.items():
            typer.echo(f"  {one_line(field, 60)}: {one_line(flaw, 500)}", err=True)
        return 1
    typer.echo(json.dumps(result) if as_json else json.dumps(result, indent=2, ensure_ascii=False))
    return int(isinstance(result, Mapping) and (result.get("is_error") is True or result.get("ok") is False))


def _list(tools: Mapping[str, Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(list(tools.values())))
        return
    width = max(map(len, tools), default=0)
    for name, one in sorted(tools.items()):
        typer.echo(f"{name:<{width}}  {one_line(str(one['description']).partition('. ')[0], 76 - width)}")


def _from_json(text: str) -> dict[str, Any]:
    try:
        given = json.loads(sys.stdin.read() if text == "-" else text)
    except ValueError as error:
        raise BadArguments({"--json-args": f"Not JSON: {error}"}) from None
    if not isinstance(given, dict):
        raise BadArguments({"--json-args": "Expected a JSON object"})
    return given


def _from_options(words: Sequence[str], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Parses ``--name value``, ``--name=value``, and ``--name`` alone for true."""
    given: dict[str, Any] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--") or word == "--":
            raise BadArguments({word: "Expected --name value"})
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if not equals:
            alone = not left or (left[0].startswith("--") and _is_flag(properties.get(name)))
            value = "true" if alone else left.pop(0)
        given[name] = _value(value, properties.get(name))
    return given


def _is_flag(schema: object) -> bool:
    return "boolean" in _types(schema)


def _value(text: str, schema: object) -> Any:
    """Returns the text if the tool takes text; otherwise parses it as JSON."""
    if "string" in _types(schema):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _types(schema: object) -> set[str]:
    if not isinstance(schema, Mapping):
        return set()
    text = schema.get("type")
    own = {text} if isinstance(text, str) else set(text or ())
    return own.union(*(_types(one) for one in schema.get("anyOf") or ()))

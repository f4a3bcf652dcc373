"""``toolcrib tool``: calls any tool from the shell, through the gate."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from toolcrib.cli.command_options import JsonOption, WorkspaceLocation, in_workspace
from toolcrib.cli.sessions import SESSION_HELP, find_session
from toolcrib.cli.terminal_text import error_text, one_line, plain, print_json
from toolcrib.core.errors import BadArguments, NotFound, ToolcribError
from toolcrib.sdk.default_agent import resolve_agent

# The exit codes of --explain; 5 is also that of a run that needs a person.
_EXPLAINED = {"allow": 0, "deny": 1, "ask": 5}
TAKES_ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True}


@in_workspace
def tool(
    location: WorkspaceLocation,
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The tool. Without it, lists all tools.")] = None,
    json_args: Annotated[
        str | None, typer.Option(help="All arguments as a JSON object; `-` reads standard input.")
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Show the schema of the arguments.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show which rule decides the call, and why. Runs nothing.")
    ] = False,
    agent: Annotated[str | None, typer.Option(help="With --explain: as this agent.")] = None,
    session: Annotated[
        str | None, typer.Option(help=f"With --explain: as the agent of this session, {SESSION_HELP}")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Call a tool. Pass arguments as --name value; lists and objects as JSON.

    Exits with 1 if the call failed or was denied. `toolcrib tool NAME --schema` shows the arguments. With --explain it
    exits with 0 if the call is allowed, 1 if it is denied, and 5 if a person is asked.

    Example: toolcrib tool grep --pattern TODO --path-pattern '/src/*'
    """
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
    if explain:
        raise typer.Exit(_explain(location, name, given, agent=agent, session=session, as_json=as_json))
    if agent is not None or session is not None:
        raise BadArguments({"--agent" if agent is not None else "--session": "Only with --explain"})
    raise typer.Exit(_call(location, name, given, as_json=as_json))


def _explain(
    location: WorkspaceLocation,
    name: str,
    given: Mapping[str, Any],
    *,
    agent: str | None,
    session: str | None,
    as_json: bool,
) -> int:
    found = location.client.explain(
        location.id,
        name,
        given,
        agent_id=resolve_agent(location, agent).id if agent is not None else None,
        session_id=find_session(location, session).id if session is not None else None,
    )
    if as_json:
        print_json(found)
    else:
        typer.echo(f"{found['action']}: {plain(found['reason'])}\nRule: {plain(found['rule'])}")
    return _EXPLAINED[found["action"]]


def _call(location: WorkspaceLocation, name: str, given: Mapping[str, Any], *, as_json: bool) -> int:
    try:
        # With its output, which is not shown here, the call may take any time.
        result = location.client.call(location.id, name, given, on_output=lambda _: None)
    except ToolcribError as error:
        if as_json:
            print_json({"success": False, "error": error.message, "code": error.code, "fields": error.fields})
        else:
            typer.secho(f"{name}: {error_text(error)}", fg="red", err=True)
        return 1
    typer.echo(json.dumps(result) if as_json else json.dumps(result, indent=2, ensure_ascii=False))
    return int(isinstance(result, Mapping) and (result.get("is_error") is True or result.get("ok") is False))


def _list(tools: Mapping[str, Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(list(tools.values()))
        return
    width = max(map(len, tools), default=0)
    for name, one in sorted(tools.items()):
        typer.echo(f"{name:<{width}}  {one_line(str(one['description']).partition('. ')[0], 76 - width)}")
    sources = {name: one_line(str(one["source"]), 200) for name, one in sorted(tools.items()) if one.get("source")}
    if sources:
        typer.echo("\nFrom Python packages and modules:")
    for name, source in sources.items():
        typer.echo(f"{name:<{width}}  {source}")


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
            alone = not left or (left[0].startswith("--") and "boolean" in _types(properties.get(name)))
            value = "true" if alone else left.pop(0)
        given[name] = parse_value(value, properties.get(name))
    return given


def parse_value(text: str, schema: object) -> Any:
    """Returns the text if the schema accepts text; otherwise parses it as JSON, if it is JSON."""
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

"""Generate the parts of the documentation that come from the code: routes, settings, tools, fields of agents, the SDK.

A page in docs/reference contains a marker such as ``<!-- from the code: routes -->``. When the site is built, the
generated text replaces the marker, so it cannot be outdated.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property
from types import SimpleNamespace
from typing import Any, cast

from fastapi import FastAPI
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import toolcrib
from toolcrib.api.app import create_app
from toolcrib.core.agents import AgentRules, ToolPermission
from toolcrib.settings import Settings
from toolcrib.tools.tool import Tool
from toolcrib.wiring.tool_runtime import assemble

MARKER = re.compile(r"^<!-- from the code: ([a-z-]+) -->$", re.MULTILINE)
_METHODS = ("get", "post", "put", "patch", "delete")
_TOOLSETS = {
    "workspace": "Paths begin with `/`, the root of the project. The default agent of local mode uses it.",
    "history": "Versions, comparison, restore, undo.",
    "mounts": "Paths begin with a mount: `@project/notes.md`.",
    "project": "Paths are relative to the project.",
    "studio": "A small dialect for chat studios, with web search.",
    "shell": "Commands.",
    "web": "Pages of the web. Needs the extra `web`.",
}


def expanded(markdown: str) -> str:
    """Return a page with its markers replaced by generated text."""
    return MARKER.sub(lambda found: _MADE[found[1]](), markdown)


def routes() -> str:
    """List every route of the API, by resource."""
    document = api()
    about: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method in _METHODS:
            if method in operations:
                about.setdefault(_subject(path), []).append(_operation(document, path, method, operations[method]))
    return "\n".join(f"## {subject}\n\n{''.join(made)}" for subject, made in about.items())


def api() -> dict[str, Any]:
    """Return the OpenAPI document."""
    return application().openapi()


def application() -> FastAPI:
    """Create the application. No request is served, so it has the default settings and no services."""
    return create_app(cast("Any", SimpleNamespace(settings=Settings.model_construct(), metrics=None)))


def settings() -> str:
    """List every setting with its environment variable."""
    rows = [
        (f"`TOOLCRIB_{name.upper()}`", field.description or "", _default(field))
        for name, field in Settings.model_fields.items()
    ]
    return _table(("variable", "meaning", "default"), rows)


def tools() -> str:
    """List every built-in tool, by toolset, with its arguments."""
    by_toolset: dict[str, list[Tool]] = {}
    for tool in built_in_tools():
        by_toolset.setdefault(tool.toolset, []).append(tool)
    order = sorted(by_toolset, key=lambda name: [*_TOOLSETS, name].index(name))
    return "\n".join(
        f"## Toolset `{name}`\n\n{_TOOLSETS.get(name, '')}\n\n"
        + "\n".join(_tool(one) for one in sorted(by_toolset[name], key=lambda one: one.name))
        for name in order
    )


def built_in_tools() -> list[Tool]:
    """Return the tools of a server. None is called, so the database is not used."""
    nowhere = Settings(database_url="postgresql://", jwt_secret=SecretStr(""), audit_seal_key=SecretStr(""))
    return assemble(nowhere, cast("Any", SimpleNamespace())).registry.list_for_scope(None)


def agent_fields() -> str:
    """List the fields of an agent's definition."""
    rows = [(f"`{name}`", _words(field), _default(field)) for name, field in AgentRules.model_fields.items()]
    inner = [(f"`{name}`", _words(field), _default(field)) for name, field in ToolPermission.model_fields.items()]
    head = ("field", "meaning", "default")
    return f"{_table(head, rows)}\n\nUnder `tool_permissions`, for each tool by its name:\n\n{_table(head, inner)}"


def library() -> str:
    """List the public names of ``toolcrib``, with signatures and docstrings."""
    return "\n".join(_offered(name, getattr(toolcrib, name)) for name in sorted(toolcrib._OFFERED, key=str.lower))


_MADE: Mapping[str, Callable[[], str]] = {
    "routes": routes,
    "settings": settings,
    "tools": tools,
    "agent-fields": agent_fields,
    "library": library,
}


def _subject(path: str) -> str:
    """Return the resource of a path: its first named segment, or the second one below a workspace."""
    named = [part for part in path.removeprefix("/api/v1").split("/") if part and not part.startswith("{")]
    subject = named[1] if len(named) > 1 and named[0] == "workspaces" else named[0]
    return subject.replace("-", " ").capitalize()


def _operation(document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]) -> str:
    lines = [
        f"### `{method.upper()} {path}`",
        "",
        str(operation.get("description") or operation["summary"]).strip(),
        "",
    ]
    rows = [
        (f"`{one['name']}`", one["in"], _kind(one["schema"]), one.get("description", ""))
        for one in operation.get("parameters", ())
        if one["in"] != "path"
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    if body is not None:
        rows += _fields(document, body)
    if rows:
        lines += [_table(("name", "in", "type", "meaning"), rows), ""]
    responses = ", ".join(f"{status} {_body(one)}".strip() for status, one in operation["responses"].items())
    return "\n".join([*lines, f"Responses: {responses}.", "", ""])


def _fields(document: Mapping[str, Any], schema: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    found = _resolved(document, schema)
    required = found.get("required", ())
    return [
        (f"`{name}`" + ("" if name in required else " ?"), "body", _kind(one), str(one.get("description", "")))
        for name, one in found.get("properties", {}).items()
    ]


def _resolved(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    found: Mapping[str, Any] = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def _body(response: Mapping[str, Any]) -> str:
    content = response.get("content", {}).get("application/json", {}).get("schema", {})
    name = _kind(content) if content else ""
    return f"`{name}`" if name and name != "ErrorOut" else ""


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(_kind, schema["anyOf"])))
    if "enum" in schema:
        return " ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type") or "any")


def _tool(tool: Tool) -> str:
    facts = f"{tool.danger.capitalize()}; {tool.category}."
    schema = tool.input_schema
    required = schema.get("required", ())
    rows = [
        (f"`{name}`" + ("" if name in required else " ?"), _kind(one), _given(one), str(one.get("description", "")))
        for name, one in schema.get("properties", {}).items()
    ]
    arguments = _table(("argument", "type", "default", "meaning"), rows) if rows else "No arguments."
    whole = json.dumps(schema, indent=2, ensure_ascii=False)
    fold = f'??? note "JSON schema of `{tool.name}`"\n\n' + _indented(f"```json\n{whole}\n```")
    return f"### `{tool.name}`\n\n{tool.description}\n\n{facts}\n\n{arguments}\n\n{fold}\n"


def _given(schema: Mapping[str, Any]) -> str:
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else ""


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())


def _offered(name: str, thing: Any) -> str:
    words = _ALIASES.get(name) or inspect.cleandoc(thing.__doc__ or "")
    lines = [f"## `{name}`", "", words.replace("``", "`"), ""]
    if inspect.isclass(thing) and issubclass(thing, BaseModel):
        lines += [f"- `{field}`: `{_annotation(info)}`" for field, info in thing.model_fields.items()]
    elif inspect.isclass(thing) and issubclass(thing, Enum):
        lines += [f"- `{name}.{one.name}`" for one in thing]
    elif inspect.isclass(thing):
        lines += [f"- `{signature}`{about}" for signature, about in _members(thing)]
    return "\n".join([*lines, ""])


_ALIASES = {
    "AbsolutePath": "The type of an argument that is a path in the workspace, such as `/notes.md`.",
    "AnswerButton": "A button for the answer to a `Question`: what it says, and the answer that it gives.",
    "Event": "Yielded by `stream`: `TextChunk`, `ToolCallStarted`, `ToolOutput`, `ToolCallFinished`, last `RunResult`.",
    "MountPath": "The type of an argument that is a mount and a path inside it, such as `@central/plan.md`.",
}


def _members(thing: type) -> Iterator[tuple[str, str]]:
    """List fields, properties and methods, each with its description."""
    for name, kind in getattr(thing, "__annotations__", {}).items():
        if not name.startswith("_"):
            yield f"{name}: {getattr(kind, '__name__', kind)}".replace("typing.", ""), ""
    for name, member in vars(thing).items():
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property | cached_property)):
            continue
        about = (inspect.getdoc(member) or "").partition("\n")[0].replace("``", "`")
        yield (
            (f"{name}({_parameters(member)})" if inspect.isfunction(member) else name),
            f": {about}" if about else "",
        )


def _parameters(function: Any) -> str:
    """Format the parameters with their defaults."""
    found = [one.replace(annotation=one.empty) for one in inspect.signature(function).parameters.values()]
    return ", ".join(str(one) for one in found if one.name != "self")


def _annotation(field: FieldInfo) -> str:
    said = field.annotation
    return getattr(said, "__name__", None) or str(said).replace("typing.", "")


def _words(field: FieldInfo) -> str:
    return field.description or ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return "the host name" if field.default is PydanticUndefined else ""
    if field.default is None or field.default == () or field.default == "":
        return "none"
    value = field.default
    shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"`{shown}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        cells = (" ".join(cell.split()).replace("|", "\\|") for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)

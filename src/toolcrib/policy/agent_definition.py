"""An agent's rules as YAML text. Errors are reported per field."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from io import StringIO
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

from toolcrib.core.agents import MAX_DEFINITION_CHARACTERS, AgentRules, Phase, ToolPermission
from toolcrib.core.errors import MOST_FIELDS, BadArguments
from toolcrib.policy.permissions import globs_flaw, host_flaw, is_glob
from toolcrib.policy.protected_paths import OUTWARD_LINK, PATTERNS

MAX_DEPTH: Final = 16
_MCP_TOOLSET: Final = re.compile(r"mcp:[a-z0-9][a-z0-9_-]{0,39}")
_MCP_TOOL: Final = re.compile(r"mcp:[a-z0-9][a-z0-9_-]{0,39}/[A-Za-z0-9_.-]{1,100}")
# A name, never an IP address: the resolved address is checked when it is contacted.


def parse_definition(text: str) -> AgentRules:
    """Parse rules from YAML. Empty text means the defaults."""
    data = _parsed(text)
    if data is None:
        return AgentRules()
    if not isinstance(data, dict):
        raise _unreadable(f"Expected fields such as `tool_permissions`, found a {type(data).__name__}.")
    return rules_from_data(data)


def plain_rules_from_yaml(text: str) -> dict[str, Any]:
    """Parse rules into plain values that a worker can return."""
    return parse_definition(text).model_dump(mode="json")


def rules_from_data(data: dict[str, Any]) -> AgentRules:
    """Validate rules from a mapping, beyond their types."""
    try:
        rules = AgentRules.model_validate(data)
    except ValidationError as error:
        fields = {_path(detail): _expected(detail) for detail in error.errors(include_url=False)}
        raise BadArguments(fields, "The agent's definition is not valid") from error
    if fields := dict(_mistakes(rules)):
        raise BadArguments(fields, "The agent's definition is not valid")
    return rules


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The tools and toolsets that exist where an agent is to work. Those of MCP servers need not exist yet."""

    tools: frozenset[str]
    toolsets: frozenset[str]


def reject_unknown_names(rules: AgentRules, known: KnownNames, *, kept: AgentRules | None = None) -> None:
    """Raise ``BadArguments`` if the rules name a tool or toolset that does not exist.

    Args:
        kept: The rules that these replace. What they named may stay: a program's own tools exist only while it runs.
    """
    before = {name for _, name in _names_in(kept)} if kept is not None else set()
    unknown = [one for one in _unknown_names(rules, known) if one.name not in before]
    if unknown:
        fields = {one.field: flaw for one, flaw in zip(unknown, _flaws(unknown, known), strict=True)}
        raise BadArguments(fields, "The agent's definition is not valid")


def unknown_names(rules: AgentRules, known: KnownNames) -> tuple[str, ...]:
    """Return a sentence about each tool or toolset of the rules that does not exist."""
    unknown = {(one.is_toolset, one.name): one for one in _unknown_names(rules, known)}
    return tuple(_flaws(unknown.values(), known))


@dataclass(frozen=True, slots=True)
class _UnknownName:
    """A name in the rules that nothing has, and the field that it is in."""

    field: str
    name: str
    is_toolset: bool


def _unknown_names(rules: AgentRules, known: KnownNames) -> Iterator[_UnknownName]:
    for field, name in _names_in(rules):
        is_toolset = field.startswith("toolsets.")
        names = known.toolsets if is_toolset else known.tools
        if name not in names and not (_MCP_TOOLSET if is_toolset else _MCP_TOOL).fullmatch(name):
            yield _UnknownName(field, name, is_toolset)


def _flaws(unknown: Iterable[_UnknownName], known: KnownNames) -> Iterator[str]:
    """Yield a sentence about each name; with a remedy while a reader would still read it."""
    for number, one in enumerate(unknown):
        sentence = f"Unknown {'toolset' if one.is_toolset else 'tool'} `{one.name}`."
        # Comparing a name with all others takes a third of a millisecond, and a definition has room for thousands.
        remedy = _remedy(one.name, known.toolsets if one.is_toolset else known.tools) if number < MOST_FIELDS else ""
        yield f"{sentence} {remedy}".rstrip()


def _names_in(rules: AgentRules) -> Iterator[tuple[str, str]]:
    """Yield the field and the name of each tool and toolset in the rules."""
    for number, toolset in enumerate(rules.toolsets):
        yield f"toolsets.{number}", toolset
    for tool in rules.tool_permissions or ():
        yield f"tool_permissions.{tool}", tool
    for number, phase in enumerate(rules.phases):
        for tool in phase.tool_permissions:
            yield f"phases.{number}.tool_permissions.{tool}", tool


def _remedy(name: str, names: frozenset[str]) -> str:
    if name.startswith("mcp:"):
        return "A tool of an MCP server is named `mcp:<server>/<tool>`, its toolset `mcp:<server>`."
    # Letters that were swapped or left out; other capitals; `writefile` for `write_file`.
    plain = {re.sub(r"[\W_]", "", one).lower(): one for one in sorted(names)}
    nearest = get_close_matches(re.sub(r"[\W_]", "", name).lower(), plain, n=1)
    return f"Did you mean `{plain[nearest[0]]}`?" if nearest else "`toolcrib tool` lists the tools."


def render_definition(rules: AgentRules) -> str:
    """Render rules as text that ``parse_definition`` parses back to the same rules."""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 4_096
    stream = StringIO()
    yaml.dump(rules.model_dump(mode="json", exclude_none=True), stream)
    return stream.getvalue()


def _parsed(text: str) -> Any:
    if len(text) > MAX_DEFINITION_CHARACTERS:
        raise _unreadable(f"The definition has {len(text):,} characters; the limit is {MAX_DEFINITION_CHARACTERS:,}.")
    try:
        _reject_bombs(text)
        return _loader().load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"Line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise _unreadable(f"{where}{error.problem}.") from error
    except (YAMLError, ValueError) as error:
        raise _unreadable(f"Not YAML: {str(error).splitlines()[0]}.") from error


def _reject_bombs(text: str) -> None:
    """Reject aliases, which can expand beyond all memory, and deep nesting, which takes minutes to load."""
    depth = 0
    for event in _loader().parse(text):
        if isinstance(event, AliasEvent):
            raise _unreadable("Aliases (`*name`) are not supported; write the value out.")
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _unreadable(f"Nested more than {MAX_DEPTH} levels deep.")


def _loader() -> YAML:
    return YAML(typ="safe", pure=True)


def _unreadable(what: str) -> BadArguments:
    return BadArguments({"yaml": what}, "The agent's definition cannot be parsed")


def _path(detail: ErrorDetails) -> str:
    return ".".join(str(step) for step in detail["loc"] if step != "[key]")


def _expected(detail: ErrorDetails) -> str:
    if detail["type"] != "extra_forbidden":
        return detail["msg"]
    match detail["loc"]:
        case (_,):
            model: type[BaseModel] = AgentRules
        case ("phases", _, _):
            model = Phase
        case _:
            model = ToolPermission
    return f"Unknown field. Known fields: {_listed(model.model_fields)}."


def _mistakes(rules: AgentRules) -> Iterator[tuple[str, str]]:
    if rules.trust.exceeds(rules.max_trust):
        yield "trust", f"`{rules.trust}` is higher than `max_trust`, which is `{rules.max_trust}`."
    for number, glob in enumerate(rules.unprotected_paths):
        if glob not in (*PATTERNS, OUTWARD_LINK):
            yield (
                f"unprotected_paths.{number}",
                f"`{glob}` is not a protected pattern. Protected patterns: {_listed((*PATTERNS, OUTWARD_LINK))}.",
            )
    yield from _permission_mistakes("tool_permissions", rules.tool_permissions or {})
    if rules.phases and rules.tool_permissions is not None:
        yield "tool_permissions", "With `phases`, each phase has its own. Move these into the phases."
    names = [phase.name for phase in rules.phases]
    for number, phase in enumerate(rules.phases):
        if phase.name in names[:number]:
            yield f"phases.{number}.name", f"`{phase.name}` is the name of another phase."
        yield from _permission_mistakes(f"phases.{number}.tool_permissions", phase.tool_permissions)


def _permission_mistakes(field: str, permissions: Mapping[str, ToolPermission]) -> Iterator[tuple[str, str]]:
    for name, permission in permissions.items():
        for number, host in enumerate(permission.hosts):
            if flaw := host_flaw(host):
                yield f"{field}.{name}.hosts.{number}", flaw
        if flaw := globs_flaw(permission.paths or ()):
            yield f"{field}.{name}.paths", flaw
            continue
        for number, glob in enumerate(permission.paths or ()):
            if not is_glob(glob):
                yield (
                    f"{field}.{name}.paths.{number}",
                    f"`{glob}` matches nothing. Expected a glob such as `src/**`, `*.md` or `**`.",
                )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)

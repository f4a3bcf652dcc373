"""An agent's rules as YAML text. Errors are reported per field."""

import re
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

from toolcrib.core.agents import AgentRules, Phase, ToolPermission
from toolcrib.core.errors import BadArguments
from toolcrib.policy.permissions import globs_flaw, is_glob
from toolcrib.policy.protected_paths import PATTERNS

MAX_CHARACTERS: Final = 32_768
MAX_DEPTH: Final = 16
# A name, never an IP address: the resolved address is checked when it is contacted.
_HOST: Final = re.compile(r"(\*\.)?(?=[a-z0-9.-]*[a-z])[a-z0-9-]+(\.[a-z0-9-]+)*(:[0-9]{1,5})?")


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


def render_definition(rules: AgentRules) -> str:
    """Render rules as text that ``parse_definition`` parses back to the same rules."""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 4_096
    stream = StringIO()
    yaml.dump(rules.model_dump(mode="json", exclude_none=True), stream)
    return stream.getvalue()


def _parsed(text: str) -> Any:
    if len(text) > MAX_CHARACTERS:
        raise _unreadable(f"The definition has {len(text):,} characters; the limit is {MAX_CHARACTERS:,}.")
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
        if glob not in PATTERNS:
            yield (
                f"unprotected_paths.{number}",
                f"`{glob}` is not a protected pattern. Protected patterns: {_listed(PATTERNS)}.",
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
            if not _HOST.fullmatch(host):
                yield (
                    f"{field}.{name}.hosts.{number}",
                    f"`{host}` is not a host. Use one such as `example.com`, `*.example.org` or `example.org:8080`.",
                )
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

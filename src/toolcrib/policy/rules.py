"""An agent's rules as YAML text. What is wrong in it is told field by field."""

import re
from collections.abc import Iterable, Iterator
from io import StringIO
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

from toolcrib.domain.agents import AgentRules, ToolPermission
from toolcrib.domain.errors import BadArguments
from toolcrib.policy.permissions import is_glob
from toolcrib.policy.protected import PATTERNS

MAX_CHARACTERS: Final = 32_768
MAX_DEPTH: Final = 16
# A name, never an address: what a name stands for is judged when it is contacted.
_HOST: Final = re.compile(r"(\*\.)?(?=[a-z0-9.-]*[a-z])[a-z0-9-]+(\.[a-z0-9-]+)*(:[0-9]{1,5})?")


def rules_from_yaml(text: str) -> AgentRules:
    """The rules that ``text`` declares; an empty text declares the defaults."""
    data = _parsed(text)
    if data is None:
        return AgentRules()
    if not isinstance(data, dict):
        raise _unreadable(f"Expected fields such as `tool_permissions`, found a {type(data).__name__}.")
    return rules_from_data(data)


def rules_from_data(data: dict[str, Any]) -> AgentRules:
    """The rules that a mapping declares, checked beyond their types."""
    try:
        rules = AgentRules.model_validate(data)
    except ValidationError as error:
        fields = {_path(detail): _expected(detail) for detail in error.errors(include_url=False)}
        raise BadArguments(fields, "The agent's rules are not valid") from error
    if fields := dict(_mistakes(rules)):
        raise BadArguments(fields, "The agent's rules are not valid")
    return rules


def rules_to_yaml(rules: AgentRules) -> str:
    """The rules as text that ``rules_from_yaml`` reads back alike."""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 4_096
    stream = StringIO()
    yaml.dump(rules.model_dump(mode="json", exclude_none=True), stream)
    return stream.getvalue()


def _parsed(text: str) -> Any:
    if len(text) > MAX_CHARACTERS:
        raise _unreadable(f"{len(text):,} characters are too many; at most {MAX_CHARACTERS:,} are read.")
    try:
        _refuse_bombs(text)
        return _loader().load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"Line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise _unreadable(f"{where}{error.problem}.") from error
    except (YAMLError, ValueError) as error:
        raise _unreadable(f"Not YAML: {str(error).splitlines()[0]}.") from error


def _refuse_bombs(text: str) -> None:
    """A few aliases of aliases stand for more than fits in memory; deep nesting takes minutes to load."""
    depth = 0
    for event in _loader().parse(text):
        if isinstance(event, AliasEvent):
            raise _unreadable("Aliases (`*name`) are not read; write the value out.")
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _unreadable(f"Nested more than {MAX_DEPTH} levels deep; rules need four.")


def _loader() -> YAML:
    return YAML(typ="safe", pure=True)


def _unreadable(what: str) -> BadArguments:
    return BadArguments({"yaml": what}, "The agent's rules cannot be read")


def _path(detail: ErrorDetails) -> str:
    return ".".join(str(step) for step in detail["loc"] if step != "[key]")


def _expected(detail: ErrorDetails) -> str:
    if detail["type"] != "extra_forbidden":
        return detail["msg"]
    model = AgentRules if len(detail["loc"]) == 1 else ToolPermission
    return f"Unknown field. Known are {_listed(model.model_fields)}."


def _mistakes(rules: AgentRules) -> Iterator[tuple[str, str]]:
    for number, glob in enumerate(rules.unprotect):
        if glob not in PATTERNS:
            yield f"unprotect.{number}", f"`{glob}` is no protected pattern. There are {_listed(PATTERNS)}."
    for name, permission in (rules.tool_permissions or {}).items():
        for number, host in enumerate(permission.hosts):
            if not _HOST.fullmatch(host):
                yield (
                    f"tool_permissions.{name}.hosts.{number}",
                    f"`{host}` is no host. Expected one such as `example.com`, `*.example.org` or `example.org:8080`.",
                )
        for number, glob in enumerate(permission.paths or ()):
            if not is_glob(glob):
                yield (
                    f"tool_permissions.{name}.paths.{number}",
                    f"`{glob}` matches nothing. Expected a glob such as `src/**`, `*.md` or `**`.",
                )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)

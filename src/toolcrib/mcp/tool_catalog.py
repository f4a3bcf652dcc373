"""The tool list of an MCP server, validated and hashed. Nothing in it is trusted.

Names, descriptions and schemas are shown to models, so an owner approves them; a tool that changes afterwards has
another hash. Tools that cannot be shown or validated are left out and reported.
"""

import json
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from toolcrib.core.mcp_servers import McpTool
from toolcrib.policy.json_schema import schema_error

if TYPE_CHECKING:
    from mcp_types import Tool as ProtocolTool

MOST_TOOLS: Final = 200
_LONGEST_DESCRIPTION: Final = 4_000
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
# Terminal escapes, and invisible characters that a model would read: marks of direction, fillers, variation selectors
# and tags, which can carry a whole text.
_UNSEEN: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff]"
)


def build_catalog(tools: Iterable["ProtocolTool"]) -> tuple[tuple[McpTool, ...], tuple[str, ...]]:
    """Return the usable tools by name, and the problems of the others."""
    found: dict[str, McpTool] = {}
    left_out: list[str] = []
    for tool in tools:
        flaw = _flaw(tool, found)
        if flaw is None:
            found[tool.name] = _offered(tool)
        elif len(left_out) < 20:
            left_out.append(f"{strip_invisible(tool.name)[:100]!r}: {flaw}")
    return tuple(found[name] for name in sorted(found)), tuple(left_out)


def strip_invisible(text: str) -> str:
    """Return foreign text without invisible characters."""
    return _UNSEEN.sub("", text.encode("utf-8", "replace").decode())


def without_invisible(value: Any) -> Any:
    """Return foreign JSON without invisible characters in its names and texts."""
    match value:
        case str():
            return strip_invisible(value)
        case dict():
            return {strip_invisible(name): without_invisible(of) for name, of in value.items()}
        case list():
            return [without_invisible(of) for of in value]
        case _:
            return value


def _flaw(tool: "ProtocolTool", found: dict[str, McpTool]) -> str | None:
    if not _NAME.fullmatch(tool.name):
        return "a name has 1 to 100 letters, digits, `_`, `.` or `-`."
    if tool.name in found:
        return "the name is used twice."
    if len(found) >= MOST_TOOLS:
        return f"a server can have at most {MOST_TOOLS} tools."
    schema = without_invisible(tool.input_schema)
    if schema.get("type") != "object":
        return "its input schema is not an object."
    return schema_error(schema)


def _offered(tool: "ProtocolTool") -> McpTool:
    description = strip_invisible(tool.description or "")[:_LONGEST_DESCRIPTION]
    schema = without_invisible(tool.input_schema)
    definition: dict[str, Any] = {"name": tool.name, "description": description, "schema": schema}
    read_only = tool.annotations is not None and tool.annotations.read_only_hint is True
    if read_only:
        # An owner approves the hint with the tool: a server that sets it later must be approved again.
        definition["read_only"] = True
    text = json.dumps(definition, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return McpTool(tool.name, description, schema, sha256(text.encode()).hexdigest(), read_only)

"""The fast path for calls that only read files: answers them without the MCP library.

The library costs a call more time than the gate and the file together. Simple requests are parsed strictly here; the
library handles everything else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS, classify_inbound_request, find_duplicated_routing_header
from mcp_types import SERVER_INFO_META_KEY, CallToolResult, ErrorData
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic_core import from_json, to_json
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from toolcrib.api.auth.principal import Principal
from toolcrib.core.agents import TrustLevel
from toolcrib.core.tool_calls import Danger, ToolCategory
from toolcrib.tools.tool import Tool
from toolcrib.tools.tool_registry import ToolRegistry

_MOST_BYTES: Final = 64_000
_JSON: Final = "application/json"
_MESSAGE: Final = frozenset({"jsonrpc", "id", "method", "params"})
_PARAMS: Final = frozenset({"name", "arguments", "_meta"})


@dataclass(frozen=True, slots=True)
class FastPathCall:
    """A call that can be answered at once. ``session`` exists only in the older protocol versions."""

    id: str | int
    name: str
    arguments: dict[str, Any]
    session: str | None

    def answer(self, result: CallToolResult | ErrorData, *, server: Mapping[str, Any]) -> Response:
        """Return the response that the library would send. ``server`` is its server info."""
        payload = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        is_error, status = isinstance(result, ErrorData), 200
        if self.session is None and isinstance(result, ErrorData):
            status = ERROR_CODE_HTTP_STATUS.get(result.code, status)
        elif self.session is None:
            payload |= {"resultType": "complete", "_meta": {SERVER_INFO_META_KEY: server}}
        body = {"jsonrpc": "2.0", "id": self.id, "error" if is_error else "result": payload}
        headers = {"mcp-session-id": self.session} if self.session else None
        return Response(to_json(body), status, headers, _JSON)


def may_be_plain(scope: Scope) -> bool:
    """Return whether the request is small enough to try the fast path."""
    length = Headers(scope=scope).get("content-length", "")
    return scope["method"] == "POST" and length.isdigit() and int(length) <= _MOST_BYTES


def fast_path_call(scope: Scope, body: bytes, principal: Principal, registry: ToolRegistry) -> FastPathCall | None:
    """Return the call if it only reads files, requests no progress, and needs no approval."""
    headers = Headers(scope=scope)
    if not _is_usual(headers):
        return None
    try:
        given: Any = from_json(body)
    except ValueError:
        return None
    match given:
        case {"jsonrpc": "2.0", "id": str() | int() as number, "method": "tools/call", "params": {"name": str(name)}}:
            params = given["params"]
        case _:
            return None
    arguments, meta = params.get("arguments", {}), params.get("_meta", {})
    if not (given.keys() <= _MESSAGE and params.keys() <= _PARAMS and isinstance(arguments, dict)):
        return None
    if isinstance(number, bool) or not isinstance(meta, dict) or "progressToken" in meta:
        return None
    if not _only_looks(registry.get(name)) or _needs_a_yes(principal):
        return None
    version, session = headers.get("mcp-protocol-version"), headers.get("mcp-session-id")
    if version in HANDSHAKE_PROTOCOL_VERSIONS and session is not None:
        return FastPathCall(number, name, arguments, session)
    route = classify_inbound_request(given, headers=dict(headers)) if version in MODERN_PROTOCOL_VERSIONS else None
    is_right = route is not None and getattr(route, "protocol_version", None) == version and session is None
    return FastPathCall(number, name, arguments, None) if is_right else None


def _is_usual(headers: Headers) -> bool:
    accept = headers.get("accept", "")
    return (
        headers.get("content-type", "").partition(";")[0].strip() == _JSON
        and _JSON in accept
        and "text/event-stream" in accept
        and find_duplicated_routing_header(headers.items()) is None
    )


def _only_looks(tool: Tool | None) -> bool:
    return (
        tool is not None
        and tool.checks_membership
        and tool.category is ToolCategory.FILE
        and tool.danger is Danger.SAFE
    )


def _needs_a_yes(principal: Principal) -> bool:
    """Return whether even reading needs an approval."""
    return principal.agent is not None and principal.agent.rules.trust is TrustLevel.SUPERVISED

"""The principal and the workspace of one MCP request."""

from typing import Final
from uuid import UUID

from starlette.requests import Request

from toolcrib.api.auth.principal import Principal, caller_for
from toolcrib.api.pause_notices import origin_of
from toolcrib.core.callers import Caller

# The key in the ASGI scope.
MCP_REQUEST: Final = "toolcrib.visit"


class McpRequest:
    """An authenticated MCP request to a workspace."""

    def __init__(self, principal: Principal, workspace_id: UUID, request: Request) -> None:
        self.principal = principal
        self.workspace_id = workspace_id
        self._request = request

    @property
    def origin(self) -> str:
        """The origin under which the client reached this server."""
        return origin_of(self._request)

    def caller(self) -> Caller:
        """Return a caller with a new call id."""
        return caller_for(self.principal, self.workspace_id, via="mcp")

    @property
    def name(self) -> str:
        """The owner of its MCP sessions. No other principal can use them."""
        agent = self.principal.agent
        return f"{self.principal.user_id}/{agent.id if agent else ''}/{self.workspace_id}"

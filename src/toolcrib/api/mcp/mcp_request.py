"""Who speaks to the MCP face, for one request."""

from typing import Final
from uuid import UUID

from starlette.requests import Request

from toolcrib.api.auth.principal import Principal, caller_for
from toolcrib.api.pause_notices import origin_of
from toolcrib.core.callers import Caller

# Where a request carries it.
VISIT: Final = "toolcrib.visit"


class McpRequest:
    """Someone who proved who they are, in a workspace, for one request."""

    def __init__(self, principal: Principal, workspace_id: UUID, request: Request) -> None:
        self.principal = principal
        self.workspace_id = workspace_id
        self._request = request

    @property
    def origin(self) -> str:
        """By what name the client calls this server."""
        return origin_of(self._request)

    def caller(self) -> Caller:
        """A caller with a call id of its own."""
        return caller_for(self.principal, self.workspace_id, via="mcp")

    @property
    def name(self) -> str:
        """Whose sessions these are. Nobody else can use them."""
        agent = self.principal.agent
        return f"{self.principal.user_id}/{agent.id if agent else ''}/{self.workspace_id}"

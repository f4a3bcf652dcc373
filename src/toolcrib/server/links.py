"""Where a person is sent who must decide or answer something."""

from uuid import UUID

from starlette.requests import Request


def origin_of(request: Request) -> str:
    """By what name the client calls this server; the edge has let in none but the operator's."""
    return str(request.base_url).rstrip("/")


def waiting_link(origin: str, workspace_id: UUID, kind: str, number: UUID) -> str:
    """The page of an ``approval`` or a ``question``."""
    return f"{origin}/api/v1/workspaces/{workspace_id}/{kind}s/{number}"

"""People who use the API in these tests, and a helper that checks errors."""

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx2

from toolcrib.core.ids import UserId, WorkspaceId

PASSWORD = "correct horse battery staple"
API = "http://localhost/api/v1"


@dataclass(frozen=True)
class Someone:
    """A person with an account and an access token."""

    id: UserId
    email: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return bearer(self.token)

    @property
    def cookie(self) -> dict[str, str]:
        return {"Cookie": f"access_token={self.token}"}


Newcomer = Callable[[], Awaitable[Someone]]
Founder = Callable[[Someone], Awaitable[WorkspaceId]]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def new_email() -> str:
    """Return an address that no other test uses: tests share a database."""
    return f"{secrets.token_hex(8)}@example.com"


def code_of(response: httpx2.Response) -> tuple[int, str]:
    """Check the error envelope and return the status and the code."""
    body = response.json()
    assert body["success"] is False
    assert body["error"]
    assert set(body) <= {"success", "error", "code", "fields"}
    return response.status_code, body["code"]


def keyed(person: Someone, key: str | None = None) -> dict[str, str]:
    """Return the headers of a request with an idempotency key."""
    return {**person.headers, "Idempotency-Key": key or str(uuid4())}


async def sessions_of(client: httpx2.AsyncClient, person: Someone, workspace: WorkspaceId) -> list[dict[str, Any]]:
    found = await client.get(f"/workspaces/{workspace}/sessions", headers=person.headers)
    return list(found.json()["items"])

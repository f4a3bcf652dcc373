"""The book over HTTP."""

from datetime import UTC, datetime

import httpx2
import pytest

from tests.integration.server.people import Newcomer, Someone, code_of
from toolcrib.domain.book import AuditRecord
from toolcrib.domain.callers import Caller, Role
from toolcrib.domain.ids import WorkspaceId
from toolcrib.server.services import Services
from toolcrib.storage.database import Tenant


@pytest.fixture
async def calls(services: Services, ada: Someone, workspace_id: WorkspaceId) -> list[str]:
    """Three calls, the oldest first."""
    callers = [Caller(workspace_id, ada.id, via="rest") for _ in range(3)]
    for caller in callers:
        record = AuditRecord(caller, "read", "allow", "role", {"path": "/a"}, "done", datetime.now(UTC), 120)
        await services.audit.add([record])
    return [str(caller.call_id) for caller in callers]


@pytest.mark.req("AP-3", part="audit")
async def test_an_owner_reads_the_book_from_its_newest_page(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, calls: list[str]
) -> None:
    book = f"/workspaces/{workspace_id}/audit"

    first = (await client.get(book, headers=ada.headers, params={"limit": 2})).json()
    rest = (await client.get(book, headers=ada.headers, params={"limit": 2, "before": first["next"]})).json()

    assert [record["call_id"] for record in first["items"] + rest["items"]] == calls[::-1]
    assert rest["next"] is None
    assert first["items"][0]["input"] == {"path": "/a"}


@pytest.mark.req("AP-3", part="audit")
async def test_only_owners_read_the_book(
    client: httpx2.AsyncClient,
    services: Services,
    ada: Someone,
    newcomer: Newcomer,
    workspace_id: WorkspaceId,
    calls: list[str],
) -> None:
    bob = await newcomer()
    await services.workspaces.add_member(Tenant(workspace_id, ada.id), email=bob.email, role=Role.MEMBER)

    response = await client.get(f"/workspaces/{workspace_id}/audit", headers=bob.headers)

    assert code_of(response) == (403, "FORBIDDEN")


@pytest.mark.parametrize("params", [{"limit": "0"}, {"limit": "1001"}, {"before": "-1"}, {"before": "yesterday"}])
async def test_a_wrong_page_is_refused(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId, params: dict[str, str]
) -> None:
    response = await client.get(f"/workspaces/{workspace_id}/audit", headers=ada.headers, params=params)

    assert code_of(response) == (400, "VALIDATION_ERROR")
    assert set(response.json()["fields"]) == set(params)

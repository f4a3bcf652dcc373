"""The OpenAPI document is complete enough to generate clients from."""

from collections.abc import Iterator
from typing import Any

import httpx2
from fastapi import FastAPI

from toolcrib.api.http_errors import STATUS

PUBLIC = {"register", "registration", "login", "use_link", "refresh", "health", "live", "ready", "accept_invitation",
          "reset_password"}  # fmt: skip


def operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (operation for path in document["paths"].values() for operation in path.values())


async def test_document_is_served_and_pages_with_foreign_scripts_are_not(client: httpx2.AsyncClient) -> None:
    document = await client.get("/openapi.json")
    pages = [await client.get(f"http://localhost/{name}") for name in ("docs", "redoc")]

    assert document.json()["info"]["title"] == "Toolcrib"
    assert all("://" not in page.text for page in pages)


def test_every_operation_has_a_unique_name_and_a_description(app: FastAPI) -> None:
    found = list(operations(app.openapi()))

    names = [operation["operationId"] for operation in found]
    assert len(set(names)) == len(names)
    assert all(operation.get("description") for operation in found)


def test_every_operation_except_a_few_requires_a_token(app: FastAPI) -> None:
    document = app.openapi()

    public = {o["operationId"] for o in operations(document) if o.get("security") == []}
    refusing = {o["operationId"] for o in operations(document) if "401" in o["responses"]}

    assert document["security"] == [{"token": []}, {"cookie": []}]
    assert public == PUBLIC
    assert refusing | PUBLIC == {o["operationId"] for o in operations(document)}


def test_errors_are_documented_as_they_are_returned(app: FastAPI) -> None:
    document = app.openapi()
    envelope = document["components"]["schemas"]["ErrorOut"]

    statuses = {status for operation in operations(document) for status in operation["responses"]}
    # A key that was used for another request is the only reason.
    described = [operation["responses"]["422"] for operation in operations(document) if "422" in operation["responses"]]
    reasons = {code for one in described for code in one["content"]["application/json"]["examples"]}

    assert set(envelope["properties"]) == {"success", "error", "code", "fields"}
    assert envelope["properties"]["code"]["enum"] == list(STATUS)
    assert reasons == {"IDEMPOTENCY_KEY_REUSED"}
    assert {int(status) for status in statuses} <= {200, 201, 202, 204} | set(STATUS.values())

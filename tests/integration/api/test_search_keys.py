"""A person's own search engine key over HTTP: stored, never shown again, sent only to the engine."""

import httpx2
import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.integration.api.accounts import Newcomer, Someone, code_of
from tests.integration.websearch.engines import Brave
from tests.integration.websearch.loopback import loopback
from toolcrib.api.api_services import ApiServices
from toolcrib.core.errors import BadArguments
from toolcrib.websearch.brave import SearchKeys

OWN = "BSA-key-of-ada-0815"


async def test_key_is_stored_encrypted_listed_without_its_secret_and_deleted(
    client: httpx2.AsyncClient, services: ApiServices, ada: Someone, newcomer: Newcomer, database_urls: DatabaseUrls
) -> None:
    bob = await newcomer()
    made = await client.put("/credentials/brave", json={"secret": OWN, "check": False}, headers=ada.headers)
    mine = await client.get("/credentials", headers=ada.headers)
    theirs = await client.get("/credentials", headers=bob.headers)
    with psycopg.connect(database_urls.owner) as connection:
        [(sealed,)] = connection.execute(
            "select encrypted from toolcrib.provider_credentials where user_id = %s", (ada.id,)
        )
    gone = await client.delete("/credentials/brave", headers=ada.headers)

    assert made.status_code == 204
    assert [(one["provider"], one["kind"]) for one in mine.json()["items"]] == [("brave", "search")]
    assert OWN not in mine.text
    assert theirs.json()["items"] == []
    assert OWN.encode() not in bytes(sealed)
    assert gone.status_code == 204
    assert await services.search_keys.engine_of(ada.id) is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"secret": ""}, "secret"),
        ({"secret": "two words"}, "secret"),
        ({"secret": OWN, "base_url": "https://thief.example"}, "base_url"),
    ],
)
async def test_empty_key_and_custom_address_are_rejected(
    client: httpx2.AsyncClient, ada: Someone, body: dict[str, str], field: str
) -> None:
    refused = await client.put("/credentials/brave", json={**body, "check": False}, headers=ada.headers)

    assert code_of(refused) == (400, "VALIDATION_ERROR")
    assert field in refused.json()["fields"]


async def test_key_is_checked_with_the_engine(services: ApiServices) -> None:
    async with loopback(Brave(key=OWN)) as brave:
        keys = SearchKeys(services.access, url=f"{brave.origin}/res/v1/web/search")
        await keys.check(OWN, ask=True)
        with pytest.raises(BadArguments) as wrong:
            await keys.check("BSA-wrong", ask=True)

    assert "rejected the key" in wrong.value.fields["secret"]
    assert "BSA-wrong" not in wrong.value.fields["secret"]

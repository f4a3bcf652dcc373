"""Accounts in the database: when logins end, including concurrent requests."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.integration.storage.accounts import new_email, someone
from toolcrib.core.errors import Conflict, Unauthenticated
from toolcrib.storage.users import ActingUser, RefreshedLogin, UserStore
from toolcrib.wiring.tool_runtime import Stores

MONTH = timedelta(days=30)


@pytest.fixture
def accounts(stores: Stores) -> UserStore:
    return stores.accounts


async def test_login_finds_the_address_in_any_case(accounts: UserStore, stores: Stores) -> None:
    email = new_email()
    ada = await someone(stores, email)

    login = await accounts.find_login(email.upper())

    assert login is not None
    assert (login.user_id, login.email, login.token_version) == (ada.user_id, email, 0)
    assert await accounts.find_login(new_email()) is None


async def test_address_is_unique(stores: Stores) -> None:
    email = new_email()
    await someone(stores, email)

    with pytest.raises(Conflict):
        await someone(stores, email)


async def test_disabled_person_can_do_nothing(accounts: UserStore, stores: Stores, database_urls: DatabaseUrls) -> None:
    email = new_email()
    ada = await someone(stores, email)
    token = await accounts.store_refresh_token(ada.user_id, lifetime=MONTH)
    async with await psycopg.AsyncConnection.connect(database_urls.owner) as connection:
        await connection.execute("update toolcrib.users set disabled_at = now() where id = %s", (ada.user_id,))

    assert await accounts.find_login(email) is None
    with pytest.raises(Unauthenticated):
        await accounts.profile(ada)
    with pytest.raises(Unauthenticated):
        await accounts.rotate_refresh_token(token, lifetime=MONTH)


async def test_of_two_refreshes_with_one_token_at_once_one_wins_and_the_family_is_revoked(
    accounts: UserStore, stores: Stores
) -> None:
    ada = await someone(stores)
    token = await accounts.store_refresh_token(ada.user_id, lifetime=MONTH)

    outcomes = await asyncio.gather(
        *(accounts.rotate_refresh_token(token, lifetime=MONTH) for _ in range(4)), return_exceptions=True
    )

    [won] = [outcome for outcome in outcomes if isinstance(outcome, RefreshedLogin)]
    assert sum(isinstance(outcome, Unauthenticated) for outcome in outcomes) == 3
    with pytest.raises(Unauthenticated):
        await accounts.rotate_refresh_token(won.secret, lifetime=MONTH)


async def test_expired_token_is_rejected_and_revokes_no_other(accounts: UserStore, stores: Stores) -> None:
    ada = await someone(stores)
    expired = await accounts.store_refresh_token(ada.user_id, lifetime=timedelta(seconds=-1))
    living = await accounts.store_refresh_token(ada.user_id, lifetime=MONTH)

    with pytest.raises(Unauthenticated):
        await accounts.rotate_refresh_token(expired, lifetime=MONTH)

    assert (await accounts.rotate_refresh_token(living, lifetime=MONTH)).user_id == ada.user_id


async def test_tokens_are_stored_as_hashes(accounts: UserStore, stores: Stores, database_urls: DatabaseUrls) -> None:
    ada = await someone(stores)
    token = await accounts.store_refresh_token(ada.user_id, lifetime=MONTH)

    async with await psycopg.AsyncConnection.connect(database_urls.owner) as connection:
        cursor = await connection.execute(
            "select t::text from toolcrib.refresh_tokens t where user_id = %s", (ada.user_id,)
        )
        [(row,)] = await cursor.fetchall()

    assert token not in row
    assert token.removeprefix("tcr_").encode().hex() not in row


async def test_ending_all_tokens_revokes_old_versions_and_logins(accounts: UserStore, stores: Stores) -> None:
    ada = await someone(stores)
    token = await accounts.store_refresh_token(ada.user_id, lifetime=MONTH)

    await accounts.end_all_tokens(ada)

    with pytest.raises(Unauthenticated):
        await accounts.profile(ada)
    with pytest.raises(Unauthenticated):
        await accounts.rotate_refresh_token(token, lifetime=MONTH)
    assert (await accounts.profile(ActingUser(ada.user_id, 1))).user_id == ada.user_id

"""Limits of requests by time: headers, shared by nodes over Redis, and without Redis."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx2
import pytest
from limits import parse
from starlette.exceptions import HTTPException

from tests.integration.api.accounts import API, Newcomer, Someone, bearer, code_of
from tests.integration.events.redis_server import RedisServer
from toolcrib.api.api_services import ApiServices
from toolcrib.api.app import create_app
from toolcrib.api.rate_limits import SharedRateLimiter
from toolcrib.storage.users import KEY_PREFIX, ActingUser


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as started:
        yield started


@pytest.fixture
async def nodes(redis: RedisServer) -> AsyncIterator[list[SharedRateLimiter]]:
    both = [SharedRateLimiter(redis.url) for _ in range(2)]
    yield both
    for one in both:
        await one.close()


@asynccontextmanager
async def limited(
    services: ApiServices, limiter: SharedRateLimiter, per_minute: int
) -> AsyncIterator[httpx2.AsyncClient]:
    settings = services.settings.model_copy(update={"max_requests_per_minute": per_minute})
    app = create_app(replace(services, settings=settings, shared_limits=limiter))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=API) as client:
        yield client


async def test_headers_say_what_is_left_and_too_many_requests_are_refused(
    services: ApiServices, ada: Someone, newcomer: Newcomer
) -> None:
    bob = await newcomer()
    async with limited(services, SharedRateLimiter(), 2) as client:
        answers = [await client.get("/workspaces", headers=ada.headers) for _ in range(3)]
        others = await client.get("/workspaces", headers=bob.headers)
        live = await client.get("http://localhost/livez")

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert {answer.headers["ratelimit-policy"] for answer in answers} == {'"requests";q=2;w=60'}
    assert [answer.headers["ratelimit"].split(";")[1] for answer in answers] == ["r=1", "r=0", "r=0"]
    assert code_of(answers[2]) == (429, "RATE_LIMITED")
    assert 1 <= int(answers[2].headers["retry-after"]) <= 60
    assert answers[2].headers["x-content-type-options"] == "nosniff"
    assert others.status_code == 200
    assert "ratelimit" not in live.headers


async def test_failed_tool_call_has_the_headers_too(services: ApiServices, ada: Someone) -> None:
    async with limited(services, SharedRateLimiter(), 9) as client:
        refused = await client.post(f"/workspaces/{ada.id}/tools", headers=ada.headers, json={"tool": "ls", "args": {}})

    assert refused.status_code == 403
    assert refused.headers["ratelimit"].startswith('"requests";r=8;')


async def test_requests_without_a_token_are_counted_by_address(services: ApiServices) -> None:
    async with limited(services, SharedRateLimiter(), 1) as client:
        answers = [await client.get("/auth/registration") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 429]


@pytest.mark.parametrize("prefix", ["", KEY_PREFIX])
async def test_requests_with_invented_tokens_are_counted_by_address(services: ApiServices, prefix: str) -> None:
    async with limited(services, SharedRateLimiter(), 2) as client:
        answers = [await client.get("/workspaces", headers=bearer(f"{prefix}invented{number}")) for number in range(3)]
        login = await client.post("/auth/login", headers=bearer("another"), json={})

    assert [answer.status_code for answer in answers] == [401, 401, 429]
    assert login.status_code == 429


async def test_tokens_of_one_user_are_counted_together(services: ApiServices, ada: Someone) -> None:
    # Two logins within a second would be the same token.
    other = services.tokens.issue(ada.id, 0, id_="another login")
    async with limited(services, SharedRateLimiter(), 2) as client:
        answers = [await client.get("/workspaces", headers=bearer(token)) for token in (ada.token, other, other)]

    assert [answer.status_code for answer in answers] == [200, 200, 429]


async def test_valid_api_key_has_a_limit_of_its_own(services: ApiServices, ada: Someone) -> None:
    _, secret = await services.keys.create(ActingUser(ada.id, 0), name="ci", expires_at=None)
    async with limited(services, SharedRateLimiter(), 2) as client:
        first = await client.get("/workspaces", headers=bearer(secret))
        # Another client at the same address.
        others = [await client.get("/auth/registration") for _ in range(2)]
        rest = [await client.get("/workspaces", headers=bearer(secret)) for _ in range(2)]

    assert first.headers["ratelimit"].startswith('"requests";r=1;')
    assert [answer.status_code for answer in others] == [200, 429]
    assert [answer.status_code for answer in rest] == [200, 429]


async def test_one_network_of_ipv6_addresses_is_counted_together(services: ApiServices) -> None:
    settings = services.settings.model_copy(update={"max_requests_per_minute": 1})
    app = create_app(replace(services, settings=settings, shared_limits=SharedRateLimiter()))
    statuses = []
    for address in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "::ffff:192.0.2.1", "::ffff:192.0.2.2"):
        transport = httpx2.ASGITransport(app, client=(address, 1))
        async with httpx2.AsyncClient(transport=transport, base_url=API) as client:
            statuses.append((await client.get("/auth/registration")).status_code)

    assert statuses == [200, 429, 200, 200, 200]


async def test_openai_client_is_refused_in_its_own_format(services: ApiServices, ada: Someone) -> None:
    async with limited(services, SharedRateLimiter(), 1) as client:
        answers = [await client.get("http://localhost/v1/models", headers=ada.headers) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 429]
    assert answers[1].json()["error"]["code"] == "rate_limit_exceeded"
    assert answers[1].json()["error"]["type"] == "rate_limit_error"
    assert answers[1].headers["retry-after"]


async def test_two_nodes_count_together(services: ApiServices, ada: Someone, nodes: list[SharedRateLimiter]) -> None:
    statuses = []
    for limiter in (*nodes, *nodes):
        async with limited(services, limiter, 3) as client:
            statuses.append((await client.get("/workspaces", headers=ada.headers)).status_code)

    assert statuses == [200, 200, 200, 429]


async def test_without_redis_each_process_goes_on_counting(redis: RedisServer, nodes: list[SharedRateLimiter]) -> None:
    item, limiter = parse("2/minute"), nodes[0]
    assert (await limiter.hit(item, "a"))[0]
    redis.kill()

    assert [(await limiter.hit(item, "a"))[0] for _ in range(3)] == [True, True, False]


async def test_attempts_at_all_nodes_are_counted_together_until_one_succeeds(nodes: list[SharedRateLimiter]) -> None:
    for number in range(20):
        await nodes[number % 2].require_login("192.0.2.1", "ada@example.com")

    with pytest.raises(HTTPException) as refused:
        await nodes[0].require_login("192.0.2.1", "ada@example.com")
    assert refused.value.status_code == 429
    await nodes[1].forget_login("192.0.2.1", "ada@example.com")
    await nodes[0].require_login("192.0.2.1", "ada@example.com")

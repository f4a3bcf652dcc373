"""Too many concurrent requests get 503 with Retry-After at once; the health check still responds."""

import asyncio

import httpx2
from starlette.types import Receive, Scope, Send

from toolcrib.api.request_guard import AllowedHosts, RequestGuard


async def test_requests_beyond_the_limit_get_503() -> None:
    go_on, inside = asyncio.Event(), asyncio.Semaphore(0)

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            inside.release()
            await go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    edge = RequestGuard(slow, hosts=AllowedHosts(("localhost",)), max_request_bytes=100, max_in_flight=2)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(edge), base_url="http://localhost") as client:
        waiting = [asyncio.create_task(client.get("/slow")) for _ in range(2)]
        for _ in waiting:
            await inside.acquire()
        refused, health = await client.get("/other"), await client.get("/health")
        go_on.set()
        answered = [(await one).status_code for one in waiting]
        afterwards = await client.get("/other")

    assert (refused.status_code, refused.headers["retry-after"], refused.json()["code"]) == (503, "1", "OVERLOADED")
    assert health.status_code == 200
    assert answered == [200, 200]
    assert afterwards.status_code == 200


async def test_requests_of_one_token_beyond_its_limit_get_503_and_others_are_served() -> None:
    go_on, inside = asyncio.Event(), asyncio.Semaphore(0)

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        inside.release()
        await go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    edge = RequestGuard(slow, hosts=AllowedHosts(("localhost",)), max_request_bytes=100, max_of_one=2)
    hers, his = {"Authorization": "Bearer hers"}, {"Authorization": "Bearer his"}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(edge), base_url="http://localhost") as client:
        waiting = [asyncio.create_task(client.get("/slow", headers=hers)) for _ in range(2)]
        for _ in waiting:
            await inside.acquire()
        refused = await client.get("/slow", headers=hers)
        respelled = await client.get("/slow", headers={"Authorization": "bEarer   hers"})
        waiting.append(asyncio.create_task(client.get("/slow", headers=his)))
        await inside.acquire()
        go_on.set()
        answered = [(await one).status_code for one in waiting]
        afterwards = await client.get("/slow", headers=hers)

    assert (refused.status_code, refused.headers["retry-after"], refused.json()["code"]) == (503, "1", "OVERLOADED")
    assert respelled.status_code == 503
    assert answered == [200, 200, 200]
    assert afterwards.status_code == 200

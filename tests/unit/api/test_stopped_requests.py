"""What a caller is told whose request a stopping server cancels."""

import asyncio
import socket

import httpx2
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from tests.wait_until import PATIENCE
from toolcrib.api.http_errors import StoppedRequests


@pytest.mark.parametrize(("method", "advice"), [("GET", "Send it again."), ("POST", "the same Idempotency-Key.")])
async def test_request_that_a_stopping_server_cancels_gets_an_answer_of_the_api(method: str, advice: str) -> None:
    reached = asyncio.Event()

    async def never_ends(scope: Scope, receive: Receive, send: Send) -> None:
        reached.set()
        await asyncio.Future()

    config = uvicorn.Config(StoppedRequests(never_ends), log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        async with httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as http:
            asking = asyncio.create_task(http.request(method, url))
            await asyncio.wait_for(reached.wait(), PATIENCE)
            server.should_exit = True
            answer = await asking
        await serving

    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
    assert answer.json()["error"].endswith(advice)

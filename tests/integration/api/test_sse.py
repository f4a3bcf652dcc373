"""Server-sent events over a real socket: resume by Last-Event-ID, and when a stream ends."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from tests.integration.api.accounts import Newcomer, code_of
from tests.integration.api.websocket_room import Room, listening
from tests.wait_until import PATIENCE
from toolcrib.api.connection_limits import ConnectionLimits, ConnectionTimeouts
from toolcrib.api.session_stream import encoded
from toolcrib.core.callers import WorkspaceRole


class Reader:
    """Parses a stream as a browser does: by blank lines."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self) -> dict[str, Any]:
        """Return the fields of the next block that is not only a heartbeat."""
        fields: dict[str, Any] = {}
        async with asyncio.timeout(PATIENCE):
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if line == "" and fields:
                    return fields
                if line:
                    fields[name] = value
        return fields

    async def until_id(self, number: int) -> list[dict[str, Any]]:
        blocks = [await self.next()]
        while blocks[-1].get("id") != str(number):
            assert blocks[-1], blocks
            blocks.append(await self.next())
        return blocks


@asynccontextmanager
async def reading(room: Room, *, headers: dict[str, str] | None = None, **query: Any) -> AsyncIterator[Reader]:
    url = f"{room.http}/sessions/{room.session_id}/events/stream"
    async with (
        httpx2.AsyncClient(trust_env=False, timeout=PATIENCE) as client,
        client.stream("GET", url, headers=room.headers | (headers or {}), params=query) as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Reader(response.aiter_lines())


def ids(blocks: list[dict[str, Any]]) -> list[int]:
    return [int(block["id"]) for block in blocks if "id" in block]


async def test_reader_that_reconnects_resumes_after_its_last_event(room: Room) -> None:
    for number in range(4):
        await room.happens(n=number)
    async with reading(room) as first:
        seen = ids(await first.until_id(2))
    async with reading(room, headers={"Last-Event-ID": "2"}, after=0) as second:
        seen += ids(await second.until_id(4))
        await room.happens(n=4)
        seen += ids(last := await second.until_id(5))

    assert seen == [1, 2, 3, 4, 5]
    assert last[-1]["event"] == "chat:message"
    assert json.loads(last[-1]["data"])["payload"] == {"conversationId": str(room.session_id), "n": 4}


@pytest.mark.parametrize("said", ["x", "-1", "1.5", "9" * 40])
async def test_invalid_event_id_is_rejected(room: Room, client: httpx2.AsyncClient, said: str) -> None:
    response = await client.get(
        f"/workspaces/{room.workspace_id}/sessions/{room.session_id}/events/stream",
        headers=room.headers | {"Last-Event-ID": said},
    )

    assert code_of(response) == (400, "VALIDATION_ERROR")


async def test_stream_sends_heartbeats_and_a_retry_interval(room: Room) -> None:
    async with (
        listening(
            replace(room.services, connection_limits=ConnectionLimits(pace=ConnectionTimeouts(beat=0.05)))
        ) as address,
        reading(replace(room, address=address)) as reader,
    ):
        blocks = [await reader.next() for _ in range(3)]

    assert blocks[0] == {"retry": "2000"}
    assert blocks[1]["event"] == "chat:resumed"
    assert blocks[2] == {"": "still here"}


async def test_stream_ends_for_a_removed_member(room: Room, newcomer: Newcomer) -> None:
    bob = await newcomer()
    await room.services.workspaces.add_member(room.tenant, email=bob.email, role=WorkspaceRole.VIEWER)
    async with reading(replace(room, token=bob.token)) as reader:
        await room.happens(n=1)
        await reader.until_id(1)
        await room.services.workspaces.remove_member(room.tenant, bob.id)
        await room.happens(secret="x")
        last = await reader.next()
        end = await reader.next()

    assert (last["event"], json.loads(last["data"])["payload"]["code"]) == ("chat:error", "FORBIDDEN")
    assert end == {}


async def test_reader_that_does_not_read_is_disconnected(room: Room) -> None:
    async with listening(
        replace(room.services, connection_limits=ConnectionLimits(pace=ConnectionTimeouts(stall=0.3)))
    ) as address:
        with await asyncio.to_thread(_deaf, replace(room, address=address)):
            async with asyncio.timeout(PATIENCE):
                while room.services.live.subscribers_of(room.workspace_id, room.session_id):
                    await room.happens(filler="x" * 100_000)


def _deaf(room: Room) -> socket.socket:
    host, port = room.address.split(":")
    deaf = socket.create_connection((host, int(port)), timeout=PATIENCE)
    path = f"/api/v1/workspaces/{room.workspace_id}/sessions/{room.session_id}/events/stream"
    deaf.sendall(f"GET {path} HTTP/1.1\r\nHost: {room.address}\r\nAuthorization: Bearer {room.token}\r\n\r\n".encode())
    heard = b""
    while b"chat:resumed" not in heard:
        heard += (more := deaf.recv(1_000))
        assert more, heard
    return deaf


async def test_stream_without_follow_ends_after_the_stored_events(room: Room, client: httpx2.AsyncClient) -> None:
    await room.happens(n=1)
    response = await client.get(
        f"/workspaces/{room.workspace_id}/sessions/{room.session_id}/events/stream?follow=false", headers=room.headers
    )

    assert response.text.startswith("id: 1\nevent: chat:message\ndata: {")


def test_payload_stays_one_block_whatever_it_contains() -> None:
    block = encoded({"type": "chat:message", "payload": {"text": "a\n\nevent: forged\r\rid: 9\u2028"}, "seq": 3})

    assert block.count(b"\n\n") == 1
    assert b"\r" not in block
    assert block.startswith(b"id: 3\n")

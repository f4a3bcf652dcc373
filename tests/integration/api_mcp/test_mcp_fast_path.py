"""The older protocol version: read-only calls get a plain body; slow calls, progress and questions get a stream."""

import asyncio
from typing import Any

import pytest
from mcp_types import ElicitResult

from tests.integration.api_mcp.conftest import Served
from tests.integration.api_mcp.test_sessions import ERAS, session, words

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "t", "version": "1"},
}
ACCEPT = {"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2025-11-25"}


def request(number: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


async def kinds(served: Served, key: str | None, *calls: dict[str, Any]) -> list[str]:
    """Make calls of one session at once and return the content types of their responses."""
    async with served.client(key) as http:
        opened = await http.post(served.url, json=request(0, "initialize", **HELLO), headers=ACCEPT)
        head = {**ACCEPT, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
        begun = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await http.post(served.url, json=begun, headers=head)
        answers = await asyncio.gather(
            *(
                http.post(served.url, json=request(number, "tools/call", **call), headers=head)
                for number, call in enumerate(calls, 1)
            )
        )
    assert [answer.status_code for answer in answers] == [200] * len(calls)
    return [answer.headers["content-type"].partition(";")[0] for answer in answers]


async def test_read_only_calls_get_a_plain_body_and_all_others_a_stream(served: Served) -> None:
    look = {"name": "ls", "arguments": {"path": "/"}}
    write = {"name": "write", "arguments": {"path": "/a.txt", "content": "a"}}
    watched = {**look, "_meta": {"progressToken": "p"}}

    found = await kinds(served, None, look, write, watched, look, {"name": "nothing", "arguments": {}})

    plain, stream = "application/json", "text/event-stream"
    assert found == [plain, stream, stream, plain, stream]


@ERAS
async def test_plain_body_equals_the_librarys_response(served: Served, mode: str) -> None:
    async def ignore(progress: float, total: float | None, message: str | None) -> None:
        pass

    calls: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": "/a.txt"}),
        ("read", {"path": "/none"}),
        ("ls", {"path": "/"}),
        ("cat", {"wrong": 1}),
    ]
    async with session(served, mode) as client:
        await client.call_tool("write", {"path": "/a.txt", "content": "a \u2028 \U0001f600\n"})
        for tool, given in calls:
            plain = await client.call_tool(tool, given)
            # With progress, the library answers.
            library = await client.call_tool(tool, given, progress_callback=ignore)
            assert plain.model_dump() == library.model_dump(), tool


async def test_read_that_needs_approval_gets_a_stream(served: Served) -> None:
    key = await served.agent_key(trust="supervised", tool_permissions={"ls": {"allowed": True}})

    async def elicit(*_: Any) -> ElicitResult:
        return ElicitResult(action="decline")

    async with session(served, "legacy", key, elicitation_callback=elicit) as client:
        answer = await client.call_tool("ls", {"path": "/"})

    assert "The person did not respond (decline)" in words(answer)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"method": "tools/call"}', b'{"method": 1, "params": []}'])
async def test_malformed_call_is_rejected_as_before(served: Served, body: bytes) -> None:
    async with served.client() as http:
        opened = await http.post(served.url, json=request(0, "initialize", **HELLO), headers=ACCEPT)
        head = {**ACCEPT, "Mcp-Session-Id": opened.headers["mcp-session-id"], "Content-Type": "application/json"}
        answer = await http.post(served.url, content=body, headers=head)

    assert answer.status_code == 400

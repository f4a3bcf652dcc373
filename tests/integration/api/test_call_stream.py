"""A tool call whose answer is a stream: what the tool shows while it runs, then the usual answer."""

import json
from typing import Any

import httpx2

from tests.integration.api.accounts import Newcomer, Someone
from toolcrib.core.ids import WorkspaceId


async def streamed(
    client: httpx2.AsyncClient, who: Someone, workspace_id: WorkspaceId, tool: str, **args: Any
) -> list[dict[str, Any]]:
    """Call a tool and return the messages of the stream."""
    headers = who.headers | {"Accept": "text/event-stream"}
    address, body = f"/workspaces/{workspace_id}/tools", {"tool": tool, "args": args}
    answer = await client.post(address, json=body, headers=headers)
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.text
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines]


async def test_stream_ends_with_the_answer_of_the_call(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId
) -> None:
    [end] = await streamed(client, ada, workspace_id, "write", path="/a.md", content="a")

    assert (end["type"], end["payload"]["status"]) == ("end", 200)
    assert end["payload"]["body"]["result"]["path"] == "/a.md"


async def test_stream_ends_with_the_error_of_a_call_that_fails(
    client: httpx2.AsyncClient, ada: Someone, workspace_id: WorkspaceId
) -> None:
    [end] = await streamed(client, ada, workspace_id, "read", path="/missing.md")

    assert (end["payload"]["status"], end["payload"]["body"]["code"]) == (404, "NOT_FOUND")


async def test_caller_who_is_no_member_gets_the_error_too(
    client: httpx2.AsyncClient, newcomer: Newcomer, workspace_id: WorkspaceId
) -> None:
    [end] = await streamed(client, await newcomer(), workspace_id, "ls", path="/")

    assert (end["payload"]["status"], end["payload"]["body"]["code"]) == (403, "FORBIDDEN")

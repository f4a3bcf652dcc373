"""Complete sessions of common clients: the official Python SDK in both protocol versions and the official inspector."""

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.session import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult
from structlog.testing import capture_logs

from tests.integration.api_mcp.conftest import Served, founded
from tests.integration.mcp.conftest import NODE, PEERS
from tests.wait_until import PATIENCE
from toolcrib.api.auth.principal import ACCESS_COOKIE
from toolcrib.api.mcp.elicitation import PendingPause
from toolcrib.core.errors import BadArguments
from toolcrib.core.paused_calls import ApprovalDecision
from toolcrib.schemas.paused_calls import ApprovalOut, whole_paused_call_out

INSPECTOR = PEERS / "@modelcontextprotocol" / "inspector-cli"
WRITES = {name: {"allowed": True} for name in ("read", "write")}
ERAS = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])


@asynccontextmanager
async def session(
    served: Served, mode: str, key: str | None = None, *, url: str | None = None, **more: Any
) -> AsyncIterator[Client]:
    async with (
        served.client(key) as http,
        Client(streamable_http_client(url or served.url, http_client=http), mode=mode, **more) as client,
    ):
        yield client


@asynccontextmanager
async def only_forms(served: Served, mode: str, key: str, elicit: Any) -> AsyncIterator[Client]:
    """A client that shows forms and no links, as most do; the official SDK declares support for both."""

    class Silent(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            body = (await request.aread()).replace(b'"form":{},"url":{}', b'"form":{}')
            headers = {**request.headers, "content-length": str(len(body))}
            said = httpx2.Request(request.method, request.url, headers=headers, content=body)
            said.extensions = request.extensions
            return await super().handle_async_request(said)

    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers, transport=Silent(), timeout=PATIENCE) as http,
        Client(streamable_http_client(served.url, http_client=http), mode=mode, elicitation_callback=elicit) as client,
    ):
        yield client


def words(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


@ERAS
async def test_official_sdk_session_reads_writes_and_gets_errors(served: Served, mode: str) -> None:
    async with session(served, mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"ls", "read", "write", "grep", "ask_user", "plan_write"} <= set(tools)
        assert tools["read"].annotations is not None
        assert tools["read"].annotations.read_only_hint is True
        assert tools["rm"].annotations is not None
        assert tools["rm"].annotations.destructive_hint is True
        written = await client.call_tool("write", {"path": "/a.txt", "content": "hello\n"})
        assert not written.is_error
        read = await client.call_tool("read", {"path": "/a.txt"})
        assert json.loads(words(read))["content"] == "hello\n"
        assert read.structured_content is None, "no result twice"
        missing = await client.call_tool("read", {"path": "/nowhere.txt"})
        assert missing.is_error
        assert "NOT_FOUND" in words(missing)
        wrong = await client.call_tool("read", {"pth": "/a.txt"})
        assert "pth: Unknown field" in words(wrong)
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("rm_rf", {})


@ERAS
async def test_agents_client_gets_text_and_reads_on_after_truncation(served: Served, mode: str) -> None:
    allowed = {name: {"allowed": True} for name in ("file_read", "file_write")}
    key = await served.agent_key(trust="autonomous", tool_permissions=allowed)
    large = "".join(f'{number} "x"\n' for number in range(7_000))
    async with session(served, mode, key) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {*allowed, "read_result"}
        await client.call_tool("file_write", {"path": "a.txt", "content": 'She said: "Hi".\n'})
        read = await client.call_tool("file_read", {"path": "a.txt"})
        await client.call_tool("file_write", {"path": "large.txt", "content": large})
        cut = words(await client.call_tool("file_read", {"path": "large.txt"}))
        note = re.search(r'call_id "([0-9a-f-]{36})", offset (\d+)', cut)
        assert note
        rest = await client.call_tool("read_result", {"call_id": note[1], "offset": int(note[2])})

    assert words(read) == 'She said: "Hi".\n'
    assert read.structured_content is None
    assert cut[: int(note[2])] + words(rest) == large


async def test_official_inspector_completes_a_session(served: Served, tmp_path: Path) -> None:
    program = _inspector(tmp_path)

    async def inspect(*arguments: str) -> Any:
        process = await asyncio.create_subprocess_exec(
            NODE, program, served.url, "--transport", "http", "--header", f"Authorization: Bearer {served.key}",
            *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(PATIENCE):
            said, complained = await process.communicate()
        assert process.returncode == 0, complained.decode()
        return json.loads(said)

    listed = await inspect("--method", "tools/list")
    assert "write" in {tool["name"] for tool in listed["tools"]}
    arguments = ("--tool-arg", "path=/seen.txt", "--tool-arg", "content=by the inspector")
    await inspect("--method", "tools/call", "--tool-name", "write", *arguments)
    found = await inspect("--method", "tools/call", "--tool-name", "read", "--tool-arg", "path=/seen.txt")
    assert "by the inspector" in found["content"][0]["text"]


def _inspector(folder: Path) -> Path:
    """The inspector's command-line mode in its usual layout; the full inspector brings a web page and 150 MB."""
    assert INSPECTOR.exists(), "The inspector is not installed. Run: make setup"
    shutil.copytree(INSPECTOR / "build", folder / "cli" / "build")
    shutil.copy(INSPECTOR / "package.json", folder)
    (folder / "node_modules").symlink_to(PEERS)
    return folder / "cli" / "build" / "index.js"


@ERAS
async def test_agent_key_is_offered_what_its_rules_allow_and_asks_a_person(served: Served, mode: str) -> None:
    permissions = {name: {"allowed": True} for name in ("read", "write")}
    key = await served.agent_key(tool_permissions=permissions)
    async with session(served, mode, key) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"read", "write", "read_result"}
        refused = await client.call_tool("rm", {"path": "/a.txt"})
        assert "NOT_PERMITTED" in words(refused)
        waiting = await client.call_tool("write", {"path": "/b.txt", "content": "b"})
        assert waiting.is_error
        (approval,) = await served.services.paused_calls.list(served.tenant)
        assert str(approval.id) in words(waiting), "it names the approval"
        assert (await client.call_tool("read", {"path": "/b.txt"})).is_error, "nothing was written"
        denied = ApprovalDecision(approved=False, reason="no")
        await served.services.paused_calls.decide(served.tenant, approval.id, denied, via="test")


@ERAS
async def test_client_with_links_leads_a_person_to_the_approval(served: Served, mode: str) -> None:
    key = await served.agent_key(tool_permissions={"write": {"allowed": True}})
    shown: list[str] = []

    async def elicit(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert not isinstance(params, ElicitRequestFormParams), "an agent's client is not asked to decide"
        shown.append(params.url)
        (approval,) = await served.services.paused_calls.list(served.tenant)
        assert str(approval.id) in params.url
        await served.services.paused_calls.decide(
            served.tenant, approval.id, ApprovalDecision(approved=True), via="test"
        )
        return ElicitResult(action="accept")

    async with session(served, mode, key, elicitation_callback=elicit) as client:
        written = await client.call_tool("write", {"path": "/c.txt", "content": "c"})
    assert shown
    assert not written.is_error, words(written)


@ERAS
async def test_client_with_forms_only_leads_a_person_to_the_approval(served: Served, mode: str) -> None:
    key = await served.agent_key(tool_permissions={"write": {"allowed": True}})
    shown: list[ElicitRequestFormParams] = []

    async def elicit(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        shown.append(params)
        (approval,) = await served.services.paused_calls.list(served.tenant)
        assert str(approval.id) in params.message
        wire = whole_paused_call_out(approval)
        assert isinstance(wire, ApprovalOut)
        assert wire.text is not None
        assert wire.text in params.message, "what every client shows"
        decision = ApprovalDecision(approved=len(shown) == 1, reason="no")
        await served.services.paused_calls.decide(served.tenant, approval.id, decision, via="test")
        return ElicitResult(action="accept", content={"approved": True})

    async with only_forms(served, mode, key, elicit) as client:
        written = await client.call_tool("write", {"path": "/c.txt", "content": "the new line\u202e\n"})
        denied = await client.call_tool("write", {"path": "/d.txt", "content": "d"})

    assert "created /c.txt +1 -0" in shown[0].message
    assert "+the new line\\u202e" in shown[0].message, "they see what would change"
    assert shown[0].requested_schema == {"type": "object", "properties": {}}, "and are asked for nothing"
    assert not written.is_error, words(written)
    assert "APPROVAL_DENIED" in words(denied), "whatever the client says"


@ERAS
async def test_question_is_put_to_the_person_behind_the_client(served: Served, mode: str) -> None:
    async def elicit(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        return ElicitResult(action="accept", content={"framework": "Vitest"})

    question = {"name": "framework", "question": "Which one?", "schema": {"type": "string"}}
    async with session(served, mode, elicitation_callback=elicit) as client:
        answered = await client.call_tool("ask_user", {"questions": [question]})
    assert "Vitest" in words(answered)
    async with session(served, mode) as client:
        alone = await client.call_tool("ask_user", {"questions": [question]})
    (open_question,) = await served.services.paused_calls.list(served.tenant)
    assert str(open_question.id) in words(alone)


@pytest.mark.gate_cases(1)
@ERAS
async def test_client_that_starts_programs_uses_a_workspace_by_toolcrib_mcp(served: Served, mode: str) -> None:
    program = StdioServerParameters(
        command=str(Path(sys.executable).with_name("toolcrib")),
        args=["mcp", "--server", served.origin],
        env={"TOOLCRIB_TOKEN": await served.agent_key(trust="autonomous", tool_permissions=WRITES)},
    )
    async with asyncio.timeout(PATIENCE), Client(program, mode=mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {*WRITES, "read_result"}
        await client.call_tool("write", {"path": "/by-pipe.txt", "content": "through the pipe"})
        assert "through the pipe" in words(await client.call_tool("read", {"path": "/by-pipe.txt"}))
        assert (await client.call_tool("read", {"path": "/../etc/passwd"})).is_error


async def test_session_cannot_be_used_by_anyone_else(served: Served) -> None:
    other = await founded(served.services, served.origin)
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }  # fmt: skip
    accept = {"Accept": "application/json, text/event-stream"}
    async with served.client() as mine, other.client() as theirs:
        opened = await mine.post(served.url, json=hello, headers=accept)
        stolen = {**accept, "Mcp-Session-Id": opened.headers["mcp-session-id"], "Mcp-Protocol-Version": "2025-11-25"}
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert (await theirs.post(other.url, json=listing, headers=stolen)).status_code == 404
        assert (await theirs.post(served.url, json=listing, headers=stolen)).status_code == 404
        foreign = await theirs.post(served.url, json=hello, headers=accept)
        mine_now = {**accept, "Mcp-Session-Id": foreign.headers["mcp-session-id"]}
        refused = await theirs.post(served.url, json=listing, headers=mine_now)
        assert "not a member" in refused.text
        call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "ls", "arguments": {"path": "/"}}}
        assert "not a member" in (await theirs.post(served.url, json=call, headers=mine_now)).text


@ERAS
async def test_internal_error_is_logged_and_not_disclosed(served: Served, mode: str) -> None:
    with capture_logs() as logged:
        async with session(served, mode) as client:
            with pytest.raises(MCPError, match="under id") as result:
                await client.call_tool("our_own_fault", {})
    assert "secret" not in str(result.value)
    (entry,) = [one for one in logged if one["event"] == "internal_error"]
    assert entry["error_id"] in str(result.value)


@pytest.mark.long
async def test_one_client_cannot_use_up_every_session(served: Served) -> None:
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }  # fmt: skip
    accept = {"Accept": "application/json, text/event-stream"}
    other = await founded(served.services, served.origin)
    async with served.client() as greedy, other.client() as modest:
        opened = [(await greedy.post(served.url, json=hello, headers=accept)).status_code for _ in range(101)]
        assert opened == [200] * 100 + [429]
        said = {**accept, "Mcp-Protocol-Version": "2025-11-25"}
        assert (await greedy.post(served.url, json=hello, headers=said)).status_code == 429
        assert (await modest.post(other.url, json=hello, headers=accept)).status_code == 200


async def test_only_a_key_in_the_header_authenticates(served: Served) -> None:
    assert served.tenant.user_id is not None
    token = served.services.tokens.issue(served.tenant.user_id, 0)
    async with httpx2.AsyncClient(trust_env=False) as nobody:
        for headers in ({}, {"Cookie": f"{ACCESS_COOKIE}={token}"}, {"Authorization": "Bearer tck_wrong"}):
            answer = await nobody.post(served.url, json={}, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        assert (await nobody.post(f"{served.url}?key={served.key}", json={})).status_code == 401
    async with served.client() as known:
        page = await known.post(served.url, json={}, headers={"Origin": "https://evil.example"})
        assert page.status_code == 403
        assert (await known.post(f"{served.origin}/mcp", json={})).status_code == 400, "which workspace?"
        assert (await known.post(f"{served.origin}/mcp/x", json={})).status_code == 400
        key = await served.agent_key(tool_permissions={"ls": {"allowed": True}})
    async with session(served, "auto", key, url=f"{served.origin}/mcp") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["ls", "read_result"], "an agent's key implies its workspace"


def test_malformed_state_is_rejected() -> None:
    for state in ("", "approval", "approval:1:2", "rule:00000000-0000-0000-0000-000000000000:x"):
        with pytest.raises(BadArguments):
            PendingPause.read(state)

"""Every route that needs a workspace's files works at any node: what needs the disk is forwarded to the home."""

import asyncio
import json
import secrets
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from websockets.asyncio.client import connect

from tests.databases import migrated_database, urls_of
from tests.fakes.packages import AGENT, DOCUMENT, package_of
from tests.faults.node_pair import PairedWorkspace, node_pair, workspace_of_first
from tests.faults.server import Server, client_of
from tests.wait_until import PATIENCE


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    with (
        migrated_database() as name,
        node_pair(tmp_path_factory.mktemp("pair"), urls_of(name)) as pair,
    ):
        yield pair


@pytest.fixture
async def shared(servers: tuple[Server, Server]) -> PairedWorkspace:
    return await workspace_of_first(*servers)


async def test_file_is_written_read_searched_and_undone_at_the_home(shared: PairedWorkspace) -> None:
    text = "first line\nsecond line\n"
    await shared.result("write", path="/notes.md", content=text)
    here, there = [await shared.result("read", path="/notes.md", at=node) for node in (shared.first, shared.second)]
    found = await shared.result("grep", pattern="second")
    listed = await shared.result("ls", path="/")
    on_disk = (shared.project / "notes.md").read_text()
    await shared.result("undo", last="call")

    assert here == there
    assert on_disk == text
    assert "second line" in json.dumps(found)
    assert "notes.md" in json.dumps(listed)
    assert not (shared.project / "notes.md").exists()
    # Nothing of the workspace is on the other node's disk.
    assert not (shared.second.data_dir / "workspaces" / str(shared.workspace)).exists()


async def test_no_edit_of_writers_at_both_nodes_is_lost(shared: PairedWorkspace) -> None:
    await shared.result("write", path="/list.txt", content="BEGIN\n")
    conflicts = 0

    async def write(number: int, node: Server) -> None:
        """Append three lines, each to what was read; a conflict is read again."""
        nonlocal conflicts
        for line in [f"{number}.{n}" for n in range(3)]:
            while True:
                read = await shared.result("read", path="/list.txt", at=node)
                answer = await shared.answer(
                    "edit", at=node, path="/list.txt", old_string="BEGIN\n", new_string=f"BEGIN\n{line}\n",
                    last_read_hash=read["hash"],
                )  # fmt: skip
                if answer.status_code != 409:
                    break
                conflicts += 1
            assert answer.status_code == 200, answer.text

    await asyncio.gather(*(write(number, (shared.first, shared.second)[number % 2]) for number in range(8)))

    begin, *lines = (shared.project / "list.txt").read_text().split()
    assert (begin, sorted(lines)) == ("BEGIN", [f"{number}.{n}" for number in range(8) for n in range(3)])
    # Otherwise they wrote one after the other, and the test showed nothing.
    assert conflicts > 0


async def test_errors_are_those_of_the_home(shared: PairedWorkspace, servers: tuple[Server, Server]) -> None:
    stranger = await workspace_of_first(*servers)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": "/missing.md"}),
        ("read", {}),
        ("read", {"path": "/\ud800"}),
        ("nothing", {}),
        ("edit", {"path": "/missing.md", "old_string": "a", "new_string": "b"}),
    ]
    for tool, arguments in calls:
        body = json.dumps({"tool": tool, "args": arguments}).encode()
        answers = []
        for node in servers:
            async with shared.client(node) as http:
                headers = {"Content-Type": "application/json"}
                answer = await http.post(f"{shared.url}/tools", content=body, headers=headers)
            answers.append((answer.status_code, answer.json()))
        assert answers[0] == answers[1]
        assert answers[0][0] >= 400
    async with client_of(shared.second, stranger.token) as http:
        refused = await http.post(f"{shared.url}/tools", json={"tool": "ls", "args": {"path": "/"}})
    assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")


async def test_output_of_a_command_is_streamed(shared: PairedWorkspace) -> None:
    whole = await shared.streamed("bash", command="for n in 1 2 3; do echo line $n; done; echo made > made.txt")

    assert [one["type"] for one in whole][-1] == "end"
    assert "".join(one["payload"]["text"] for one in whole[:-1]) == "line 1\nline 2\nline 3\n"
    assert whole[-1]["payload"]["body"]["result"]["output"] == "line 1\nline 2\nline 3\n"
    assert (shared.project / "made.txt").read_text() == "made\n"


@pytest.mark.long
async def test_long_silent_call_is_answered(shared: PairedWorkspace) -> None:
    result = await shared.result("bash", command="sleep 3; echo done")

    assert result["output"] == "done\n"


async def test_versions_and_restore_of_a_file(shared: PairedWorkspace) -> None:
    await shared.result("write", path="/a.txt", content="one\n")
    await shared.result("write", path="/a.txt", content="two\n", overwrite=True)
    await shared.result("bash", command="rm a.txt")
    async with shared.client() as http:
        [deleted] = (await http.get(f"{shared.url}/deleted-files")).json()["result"]["files"]
        file = f"{shared.url}/files/{deleted['file_id']}"
        versions = (await http.get(f"{file}/versions")).json()["result"]["versions"]
        first = next(one["version_id"] for one in versions if one["number"] == 1)
        content = (await http.get(f"{shared.url}/versions/{first}")).json()["result"]
        restored = await http.post(f"{file}/restore", json={"version_id": first})

    assert content["content"] == "one\n"
    assert restored.status_code == 200, restored.text
    assert (shared.project / "a.txt").read_text() == "one\n"


async def test_review_is_shown_and_decided(shared: PairedWorkspace) -> None:
    async with shared.client() as http:
        definition = "trust: autonomous\ntool_permissions:\n  write: {allowed: true}\n"
        agent = await http.post(f"{shared.url}/agents", json={"name": "writer", "definition": definition})
        assert agent.status_code == 201, agent.text
        session = await shared.session(agent_id=agent.json()["id"])
        key = await http.post(f"{shared.url}/agents/{agent.json()['id']}/keys", json={"name": "key"})
        async with client_of(shared.second, key.json()["secret"]) as by_agent:
            call = {"tool": "write", "args": {"path": "/made.txt", "content": "made\n"}, "session_id": session}
            assert (await by_agent.post(f"{shared.url}/tools", json=call)).status_code == 200
        review = await http.get(f"{shared.url}/sessions/{session}/review")
        assert review.status_code == 200, review.text
        [file] = review.json()["files"]
        assert file["path"] == "/made.txt"
        shown = (shared.project / "made.txt").read_text()
        decision = {"version": review.json()["version"], "all": "revert"}
        decided = await http.post(f"{shared.url}/sessions/{session}/review", json=decision)

    assert shown == "made\n"
    assert decided.status_code == 200, decided.text
    assert not (shared.project / "made.txt").exists()


async def test_message_brings_files_of_the_home_and_of_the_person(shared: PairedWorkspace) -> None:
    image = b"\x89PNG\r\n\x1a\n\x00\x01"
    await shared.result("write", path="/a.txt", content="a")
    (shared.project / "plan.png").write_bytes(image)
    async with shared.client() as http:
        definition = "provider: anthropic\nmodel: claude-fable-5\n"
        agent = await http.post(f"{shared.url}/agents", json={"name": "seer", "definition": definition})
        session = await shared.session(agent_id=agent.json()["id"])
        given = ["/plan.png", {"name": "shot.png", "data": b64encode(image).decode()}]
        messages = f"{shared.url}/sessions/{session}/messages"
        sent = await http.post(messages, json={"text": "Look.", "attachments": given})
        assert sent.status_code == 202, sent.text
        message = (await http.get(messages)).json()["items"][0]
        attached = message["metadata"]["attachments"]
        stored = (await http.get(f"{shared.url}/calls/{attached[1]['call_id']}")).json()

    assert [one["path"] for one in attached] == ["/plan.png", "shot.png"]
    assert stored["result"]["media"][0]["data"] == b64encode(image).decode()


@pytest.mark.parametrize(
    ("rules", "action"), [({}, "allow"), ({"definition": "tool_permissions:\n  read: {allowed: true}\n"}, "deny")]
)
async def test_call_is_explained(shared: PairedWorkspace, rules: dict[str, str], action: str) -> None:
    """That of a person, and of an agent that is not stored yet."""
    question = {"tool": "write", "args": {"path": "/x.md", "content": "x"}, **rules}
    answers = []
    for node in (shared.first, shared.second):
        async with shared.client(node) as http:
            answers.append((await http.post(f"{shared.url}/explain", json=question)).json())

    assert answers[0]["action"] == action, answers[0]
    assert answers[0] == answers[1]


async def test_paused_call_is_decided_at_the_other_node_and_runs_at_the_home(shared: PairedWorkspace) -> None:
    async with shared.client() as http:
        definition = "trust: supervised\ntool_permissions:\n  write: {allowed: true}\n"
        agent = await http.post(f"{shared.url}/agents", json={"name": "asker", "definition": definition})
        key = await http.post(f"{shared.url}/agents/{agent.json()['id']}/keys", json={"name": "key"})
        async with client_of(shared.second, key.json()["secret"]) as by_agent:
            call = {"tool": "write", "args": {"path": "/asked.txt", "content": "yes\n"}}
            asked = await by_agent.post(f"{shared.url}/tools", json=call)
        assert asked.status_code == 202, asked.text
        paused = asked.json()["result"]
        shown = (await http.get(f"{shared.url}/paused-calls/{paused['pause_id']}")).json()
        decision = {"approved": True, "arguments_sha256": shown["arguments_sha256"]}
        decided = await http.post(f"{shared.url}/paused-calls/{paused['pause_id']}/decision", json=decision)
        assert decided.status_code == 200, decided.text
        async with asyncio.timeout(PATIENCE):
            while (await http.get(f"{shared.url}/calls/{paused['call_id']}")).json()["state"] != "done":
                pass
            # The call is done when it is in the history. The disk follows.
            read = await http.post(f"{shared.url}/tools", json={"tool": "bash", "args": {"command": "cat asked.txt"}})
            assert "yes" in read.text

    assert (shared.project / "asked.txt").read_text() == "yes\n"


async def test_mcp_client_reads_writes_and_sees_progress(shared: PairedWorkspace) -> None:

    shown: list[str] = []

    async def show(progress: float, total: float | None, message: str | None) -> None:
        shown.append(message or "")

    async with shared.client() as http:
        key = (await http.post("/api-keys", json={"name": "mcp"})).json()
    async with client_of(shared.second, key["secret"]) as http:
        transport = streamable_http_client(f"{shared.second.origin}/mcp/{shared.workspace}", http_client=http)
        async with Client(transport) as client:
            await client.call_tool("write", {"path": "/by-mcp.txt", "content": "mcp\n"})
            read = await client.call_tool("read", {"path": "/by-mcp.txt"})
            ran = await client.call_tool("bash", {"command": "echo shown"}, progress_callback=show)

    assert (shared.project / "by-mcp.txt").read_text() == "mcp\n"
    assert "mcp" in str(read.content)
    assert "shown" in str(ran.content)
    assert "".join(shown) == "shown\n"


async def test_session_of_an_older_mcp_client_is_known_to_its_node_only(shared: PairedWorkspace) -> None:
    async with shared.client() as http:
        key = (await http.post("/api-keys", json={"name": "older"})).json()["secret"]
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "older", "version": "1"}}
    headers = {"Accept": "application/json, text/event-stream"}
    async with client_of(shared.second, key) as http:
        request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        made = await http.post(f"{shared.second.origin}/mcp/{shared.workspace}", json=request, headers=headers)
        assert made.status_code == 200, made.text
        headers |= {"Mcp-Session-Id": made.headers["mcp-session-id"], "Mcp-Protocol-Version": "2025-06-18"}
        statuses = []
        for node in (shared.second, shared.first):
            request = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
            answer = await http.post(f"{node.origin}/mcp/{shared.workspace}", json=request, headers=headers)
            statuses.append(answer.status_code)

    assert statuses == [200, 404]


async def test_websocket_call_runs_at_the_home(shared: PairedWorkspace) -> None:
    session = await shared.session()
    url = f"{shared.second.origin.replace('http', 'ws')}/api/v1/workspaces/{shared.workspace}/ws"
    headers = {"Authorization": f"Bearer {shared.token}"}
    call = {"conversationId": session, "tool": "write", "args": {"path": "/ws.txt", "content": "ws\n"}}
    async with connect(url, proxy=None, additional_headers=headers) as socket, asyncio.timeout(PATIENCE):
        await socket.send(json.dumps({"type": "chat:tool-call", "payload": call, "id": 1}))
        ended: dict[str, Any] = {}
        while ended.get("type") != "chat:tool-result":
            ended = json.loads(await socket.recv())

    assert ended["payload"].get("error") is None
    assert (shared.project / "ws.txt").read_text() == "ws\n"


async def test_package_is_installed_used_and_removed(shared: PairedWorkspace) -> None:
    files = {"docs/guide.md": "# Guide\n", "agents/planner.yaml": AGENT, "workflow.md": DOCUMENT}
    async with shared.client() as http:
        made = await http.post(f"{shared.url}/packages", content=package_of(files=files))
        assert made.status_code == 201, made.text
        guide = await shared.result("fs.read", path="@pkg/docs/guide.md")
        session = await shared.session(package="demo")
        call = {"tool": "fs.read", "args": {"path": "@state/workflow.md"}, "session_id": session}
        document = (await http.post(f"{shared.url}/tools", json=call)).json()["result"]
        refused = await http.post(f"{shared.url}/packages", content=b"no archive")
        removed = await http.delete(f"{shared.url}/packages/demo")
        gone = await shared.result("fs.read", path="@pkg/docs/guide.md")

    assert (made.json()["name"], made.json()["agents"]) == ("demo", ["demo.planner"])
    assert guide["content"] == "# Guide\n"
    assert document["content"] == DOCUMENT
    assert (refused.status_code, refused.json()["code"]) == (400, "VALIDATION_ERROR")
    assert removed.status_code == 204
    assert gone.get("content") is None


async def test_mcp_program_that_reads_the_files_is_started_at_the_home(shared: PairedWorkspace) -> None:
    """It is no MCP server, so both nodes report how it failed; neither says that it lacks the files."""
    problems = []
    for number, node in enumerate((shared.first, shared.second)):
        async with shared.client(node) as http:
            given = {"name": f"p{number}", "command": ["/bin/false"], "workspace_access": "read-only"}
            made = await http.post(f"{shared.url}/mcp-servers", json=given)
            assert made.status_code == 201, made.text
            problems.append(made.json()["last_error"].replace(given["name"], "p"))

    assert problems[0]
    assert problems[0] == problems[1]


async def test_large_file_is_written_and_read(shared: PairedWorkspace) -> None:
    content = "".join(f"line {number} of a long file\n" for number in range(100_000))
    await shared.result("write", path="/large.txt", content=content)
    answer = await shared.result("read", path="/large.txt", at=shared.first)

    assert (shared.project / "large.txt").read_text() == content
    assert await shared.result("read", path="/large.txt") == answer


async def test_client_that_disconnects_ends_the_command_at_the_home(shared: PairedWorkspace) -> None:
    command = f"echo begun; sleep 86400.{secrets.randbelow(10**9)}"
    body, accept = {"tool": "bash", "args": {"command": command}}, {"Accept": "text/event-stream"}
    async with (
        asyncio.timeout(PATIENCE),
        shared.client() as http,
        http.stream("POST", f"{shared.url}/tools", json=body, headers=accept) as answer,
    ):
        async for line in answer.aiter_lines():
            if "begun" in line:
                break
        assert is_running(command)

    await ended(command)


async def test_cancelled_websocket_call_ends_at_the_home(shared: PairedWorkspace) -> None:
    session = await shared.session()
    command = f"sleep 86400.{secrets.randbelow(10**9)}"
    url = f"{shared.second.origin.replace('http', 'ws')}/api/v1/workspaces/{shared.workspace}/ws"
    headers = {"Authorization": f"Bearer {shared.token}"}
    async with connect(url, proxy=None, additional_headers=headers) as socket, asyncio.timeout(PATIENCE):
        call = {"conversationId": session, "tool": "bash", "args": {"command": command}}
        await socket.send(json.dumps({"type": "chat:tool-call", "payload": call, "id": 1}))
        while not await asyncio.to_thread(is_running, command):
            pass
        await socket.send(json.dumps({"type": "chat:cancel", "payload": {"conversationId": session}, "id": 2}))
        result: dict[str, Any] = {}
        while result.get("type") != "chat:tool-result":
            result = json.loads(await socket.recv())

    await ended(command)
    assert "cancelled" in json.dumps(result)


def is_running(command: str) -> bool:
    """Whether a process of this machine has this command's last word in its command line."""
    word = command.split()[-1].encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if word in (entry / "cmdline").read_bytes():
                    return True
    return False


async def ended(command: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(is_running, command):
            pass


async def test_new_workspaces_get_homes_on_both_nodes_and_none_on_one_that_drains(
    servers: tuple[Server, Server], shared: PairedWorkspace
) -> None:
    def homes() -> dict[str, int]:
        listed = json.loads(servers[0].command("nodes", "list", "--json").stdout)
        assert all(node["address"].startswith("http://127.0.0.1:") for node in listed)
        return {node["name"]: node["workspaces"] for node in listed}

    async def create(number: int) -> None:
        async with shared.client(servers[0]) as http:
            for _ in range(number):
                assert (await http.post("/workspaces", json={"name": "new"})).status_code == 201

    before = await asyncio.to_thread(homes)
    await create(abs(before["first"] - before["second"]) + 6)
    even = await asyncio.to_thread(homes)
    await asyncio.to_thread(servers[0].command, "nodes", "drain", "second")
    try:
        await create(3)
        drained = await asyncio.to_thread(homes)
    finally:
        await asyncio.to_thread(servers[0].command, "nodes", "drain", "--undo", "second")

    assert even["first"] == even["second"]
    assert drained["first"] >= even["first"] + 3

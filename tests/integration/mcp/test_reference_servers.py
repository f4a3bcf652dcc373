"""The official reference servers, used through our client: in the sandbox and over HTTP, by people and by runs."""

import asyncio
import os
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tests.fakes.model_server import ModelServer
from tests.integration.conftest import WorkspaceFixture
from tests.integration.gate.test_approvals import asked, decide
from tests.integration.mcp.conftest import added, reference
from tests.integration.runs.conftest import opened_office, says
from tests.wait_until import PATIENCE
from toolcrib.core.errors import BadArguments, ToolFailed
from toolcrib.core.paused_calls import ApprovalDecision, GrantScope
from toolcrib.core.runs import RunEnding
from toolcrib.providers.provider_registry import ProviderRegistry

# It listens on every interface and has no option to change that.
_ON_LOOPBACK = (
    "data:text/javascript,import net from 'node:net'; const listen = net.Server.prototype.listen;"
    "net.Server.prototype.listen = function (port, ...rest) {"
    " return listen.call(this, {port: 0, host: '127.0.0.1'}, () => {"
    " console.error('on port ' + this.address().port + '.'); rest.at(-1)?.() }) }"
)


@asynccontextmanager
async def everything_over_http() -> AsyncIterator[str]:
    node, *rest = reference("everything", "streamableHttp")
    process = await asyncio.create_subprocess_exec(
        node, "--import", _ON_LOOPBACK, *rest, env={**os.environ, "PORT": "3001"}, stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PATIENCE):
            while not (found := re.search(rb"on port (\d+)\.", line := await process.stderr.readline())):
                assert line, "The server ended before it listened."
        reading = asyncio.create_task(process.stderr.read())
        yield f"http://127.0.0.1:{found[1].decode()}/mcp"
    finally:
        process.kill()
        await process.wait()
    await reading


async def test_three_reference_servers_run_in_the_sandbox_and_respond(workspace: WorkspaceFixture) -> None:
    await asyncio.gather(
        added(workspace, "everything", command=reference("everything", "stdio")),
        added(workspace, "memory", command=reference("memory"), secrets={"MEMORY_FILE_PATH": "/data/memory.jsonl"}),
        added(workspace, "filesystem", command=reference("filesystem", "/data")),
    )
    assert (await workspace.result("mcp:everything/echo", message="hi"))["text"] == "Echo: hi"
    summed = await workspace.result("mcp:everything/get-structured-content", location="Chicago")
    assert summed["structured"]["temperature"] == 36
    picture = await workspace.result("mcp:everything/get-tiny-image")
    assert picture["media"][0]["mime_type"] == "image/png"

    await workspace.result("mcp:filesystem/write_file", path="/data/note.txt", content="kept")
    assert (await workspace.result("mcp:filesystem/read_text_file", path="/data/note.txt"))["text"] == "kept"
    outside = await workspace.call("mcp:filesystem/read_text_file", path="/etc/passwd")
    assert isinstance(outside.error, ToolFailed)
    assert "Access denied" in outside.error.message

    entity = {"name": "Ada", "entityType": "person", "observations": ["counts"]}
    await workspace.result("mcp:memory/create_entities", entities=[entity])
    graph = await workspace.result("mcp:memory/read_graph")
    assert [found["name"] for found in graph["structured"]["entities"]] == ["Ada"]


async def test_program_sees_neither_the_workspace_nor_the_servers_environment(workspace: WorkspaceFixture) -> None:
    (workspace.project / "private.txt").write_text("private")
    command = ["/bin/sh", "-c", "ls -R / 2>/dev/null | grep -c private.txt >&2; env >&2; exit 4"]
    server = await added(workspace, "spy", command=command, approve=False)
    assert server.last_error is not None
    assert "exited with status 4: 0" in server.last_error
    assert "DATABASE" not in server.last_error


async def test_reference_server_responds_over_http(workspace: WorkspaceFixture) -> None:
    async with everything_over_http() as url:
        await added(workspace, "far", url=url)
        assert (await workspace.result("mcp:far/echo", message="hi"))["text"] == "Echo: hi"
        assert "5" in (await workspace.result("mcp:far/get-sum", a=2, b=3))["text"]
        wrong = await workspace.call("mcp:far/get-sum", a="two")
        assert isinstance(wrong.error, BadArguments)
        await workspace.engine.toolbox.close()


async def test_run_uses_tools_of_a_server_like_any_tool(
    workspace: WorkspaceFixture, model: ModelServer, providers: ProviderRegistry
) -> None:
    await added(workspace, "everything", command=reference("everything", "stdio"))
    run_fixture = await opened_office(
        workspace, model, providers, toolsets=["mcp:everything"],
        tool_permissions={"mcp:everything/echo": {"allowed": True}},
    )  # fmt: skip
    run = await run_fixture.send(
        "Say it.", says("", ("mcp_everything_echo", {"message": "out loud"})), says("It was said.")
    )
    assert run.end_reason is RunEnding.DONE, run.error
    assert [tool["function"]["name"] for tool in run_fixture.model.received[0].body["tools"]] == ["mcp_everything_echo"]
    answered = [one for one in run_fixture.model_input() if one["role"] == "tool"]
    assert "Echo: out loud" in answered[0]["content"]


async def test_at_trust_review_only_tools_that_are_not_declared_read_only_are_asked_about(
    workspace: WorkspaceFixture,
) -> None:
    server = await added(workspace, "everything", command=reference("everything", "stdio"))
    hinted = {one.name: one.read_only for one in server.approved_tools}
    names = "echo", "toggle-simulated-logging"
    permissions = {f"mcp:everything/{name}": {"allowed": True} for name in names}
    rules = {"toolsets": ["mcp:everything"], "tool_permissions": permissions}
    agent, guided = await workspace.agent(trust="review", **rules), await workspace.agent(trust="guided", **rules)
    message = "line\n" * 5_000

    asked = await workspace.call("mcp:everything/toggle-simulated-logging", agent)

    assert (hinted["echo"], hinted["toggle-simulated-logging"]) == (True, False)
    assert (await workspace.call("mcp:everything/echo", agent, message="hi")).succeeded
    assert asked.is_waiting
    assert "does not declare it as read-only" in asked.metadata["reason"]
    long = await workspace.call("mcp:everything/echo", guided, message=message)
    approval = await workspace.engine.paused_calls.get(workspace.tenant, long.metadata["pause_id"])
    assert approval.approval.input == {"message": message}
    assert approval.approval.effects["runs"] == "mcp:everything"


async def test_a_grant_limits_the_arguments_of_a_tool(workspace: WorkspaceFixture) -> None:
    await added(workspace, "everything", command=reference("everything", "stdio"))
    tool = "mcp:everything/echo"
    agent = await workspace.agent(toolsets=("mcp:everything",), tool_permissions={tool: {"allowed": True}})
    approval = await asked(workspace, agent, tool, message="hello [you]")
    wide, same = approval.approval.suggested_rule, approval.approval.other_rules[-1]
    assert (wide.arguments, same.arguments) == (None, {"message": "hello [[]you]"})
    for arguments, field in (({"message": "bye *"}, "rule"), ({"text": "*"}, "rule.arguments.text")):
        rule = replace(same, arguments=arguments)
        with pytest.raises(BadArguments) as refused:
            await decide(workspace, approval, ApprovalDecision(approved=True, scope=GrantScope.ALWAYS, rule=rule))
        assert list(refused.value.fields) == [field]

    rule = replace(same, arguments={"message": "hello *"})
    await decide(workspace, approval, ApprovalDecision(approved=True, scope=GrantScope.ALWAYS, rule=rule))

    assert agent.agent is not None
    fresh = replace(agent, agent=(await workspace.stores.agents.get(workspace.tenant, agent.agent.id)).as_caller)
    again = await workspace.call(tool, fresh, message="hello all")
    assert again.result["text"] == "Echo: hello all"
    assert (await workspace.call(tool, fresh, message="oh, hello all")).is_waiting


async def test_an_image_of_a_servers_result_is_shown_to_the_model(
    workspace: WorkspaceFixture, model: ModelServer, providers: ProviderRegistry
) -> None:
    await added(workspace, "everything", command=reference("everything", "stdio"))
    tool = "mcp:everything/get-tiny-image"
    office = await opened_office(
        workspace, model, providers, toolsets=["mcp:everything"], tool_permissions={tool: {"allowed": True}}
    )
    run = await office.send("Look.", says("", ("mcp_everything_get-tiny-image", {})), says("A tiny image."))

    assert run.end_reason is RunEnding.DONE
    asked_again = office.model_input()
    (result,) = [message["content"] for message in asked_again if message["role"] == "tool"]
    assert "Here's the image you requested" in result
    assert "[Attached: image 1 (image/png," in result
    assert "iVBOR" not in result
    parts = [part for message in asked_again if isinstance(message["content"], list) for part in message["content"]]
    (image,) = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert image.startswith("data:image/png;base64,iVBOR")

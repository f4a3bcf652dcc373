"""Our client with our server: the newer version of the protocol, which the reference servers do not support yet."""

from dataclasses import replace

import pytest

from tests.integration.api_mcp.conftest import Served, founded
from toolcrib.core.callers import Caller
from toolcrib.core.ids import CallId, new_id
from toolcrib.core.mcp_servers import McpTransport
from toolcrib.core.tool_calls import Outcome, ToolCall
from toolcrib.mcp import mcp_connections


async def call(served: Served, tool: str, **arguments: object) -> Outcome:
    assert served.tenant.user_id is not None
    caller = Caller(served.workspace_id, served.tenant.user_id)
    return await served.services.executor.execute(ToolCall(tool, arguments), replace(caller, call_id=CallId(new_id())))


async def test_workspace_uses_another_workspace_as_an_mcp_server(served: Served) -> None:
    other = await founded(served.services, served.origin)
    box = served.services.toolbox
    key = await other.agent_key(
        trust="autonomous", tool_permissions={"write": {"allowed": True}, "read": {"allowed": True}}
    )
    made = await box.rows.create(
        served.tenant, name="other", transport=McpTransport.HTTP, url=f"{served.origin}/mcp",
        secrets={"Authorization": f"Bearer {key}"},
    )  # fmt: skip
    looked = await box.refresh(served.tenant, made.id)
    assert looked.offered_tools is not None, looked.last_error
    assert looked.offered_sha256 is not None
    assert {tool.name for tool in looked.offered_tools} == {"read", "read_result", "write"}
    await box.approve(served.tenant, made.id, looked.offered_sha256)
    written = await call(served, "mcp:other/write", path="/sent.txt", content="across")
    assert written.succeeded, written.error
    assert (await call(other, "read", path="/sent.txt")).succeeded, "it is in the other workspace"
    assert not (await call(served, "read", path="/sent.txt")).succeeded, "and not in this one"
    connections = await box._connections()
    (held,) = connections._held.values()
    assert (await held._opened).protocol_version == "2026-07-28"
    refused = await call(served, "mcp:other/read", path="/../x")
    assert refused.error is not None
    assert "returned an error" in refused.error.message


async def test_idle_connection_ends_and_the_next_call_opens_another(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_connections, "_IDLE_SECONDS", 0.05)
    key = await served.agent_key(tool_permissions={"ls": {"allowed": True}})
    box = served.services.toolbox
    made = await box.rows.create(
        served.tenant, name="self", transport=McpTransport.HTTP, url=f"{served.origin}/mcp",
        secrets={"Authorization": f"Bearer {key}"},
    )  # fmt: skip
    looked = await box.refresh(served.tenant, made.id)
    assert looked.offered_sha256 is not None, looked.last_error
    await box.approve(served.tenant, made.id, looked.offered_sha256)
    held = (await box._connections())._held[served.workspace_id, made.id]
    await held._task

    assert held.is_over
    assert (await call(served, "mcp:self/ls", path="/")).succeeded


async def test_disabled_or_removed_server_has_no_tools(served: Served) -> None:
    key = await served.agent_key(tool_permissions={"ls": {"allowed": True}})
    box = served.services.toolbox
    made = await box.rows.create(
        served.tenant, name="self", transport=McpTransport.HTTP, url=f"{served.origin}/mcp",
        secrets={"Authorization": f"Bearer {key}"},
    )  # fmt: skip
    looked = await box.refresh(served.tenant, made.id)
    assert looked.offered_sha256 is not None, looked.last_error
    await box.approve(served.tenant, made.id, looked.offered_sha256)
    assert (await call(served, "mcp:self/ls", path="/")).succeeded
    await box.rows.update(served.tenant, made.id, enabled=False)
    assert "not found" in str((await call(served, "mcp:self/ls", path="/")).error)
    await box.rows.update(served.tenant, made.id, enabled=True)
    assert (await call(served, "mcp:self/ls", path="/")).succeeded
    await box.rows.delete(served.tenant, made.id)
    assert "not found" in str((await call(served, "mcp:self/ls", path="/")).error)
    await box.disconnect(looked)

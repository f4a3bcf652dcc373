"""Adding a tool needs one file: its metadata says where it is offered, and nothing else is edited."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import toolcrib.tools
from tests.conftest import new_settings
from tests.databases import DatabaseUrls
from tests.integration.api_mcp.conftest import Served, founded, listening
from tests.integration.api_mcp.test_sessions import session
from toolcrib.core.agents import AgentRules
from toolcrib.core.callers import SessionMode
from toolcrib.sdk.default_agent import ModelChoice, definition
from toolcrib.wiring.server import services as open_services

MODULE = '''
"""A tool that nothing else knows."""

from pydantic import BaseModel

from toolcrib import AbsolutePath, Danger, ToolContext, tool


class LineCount(BaseModel):
    path: str
    lines: int


@tool(toolset="workspace", danger=Danger.SAFE, idempotent=True)
async def count_lines(path: AbsolutePath, context: ToolContext) -> LineCount:
    """Count the lines of a file.

    Args:
        path: The file.
    """
    text = await context.files.read_text(path)
    return LineCount(path=path.path, lines=len(text.splitlines()))
'''


@pytest.fixture
async def extended(
    database_urls: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Served]:
    """A server whose tools have one more module."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "line_count.py").write_text(MODULE)
    monkeypatch.setattr(toolcrib.tools, "__path__", [*toolcrib.tools.__path__, str(folder)])
    settings = new_settings(database_urls, tmp_path / "data", node_name="new-tool-node", secure_cookies=False)
    try:
        async with open_services(settings) as services, listening(services) as origin:
            yield await founded(services, origin)
    finally:
        sys.modules.pop("toolcrib.tools.line_count", None)


async def test_new_module_is_all_that_a_new_tool_needs(extended: Served) -> None:
    registry = extended.services.registry
    async with extended.client() as client:
        base = f"{extended.origin}/api/v1/workspaces/{extended.workspace_id}/tools"
        listed = {one["name"]: one for one in (await client.get(base)).json()}
        await client.post(base, json={"tool": "write", "args": {"path": "/a.txt", "content": "1\n2\n"}})
        counted = (await client.post(base, json={"tool": "count_lines", "args": {"path": "/a.txt"}})).json()
        document = (await client.get(f"{extended.origin}/api/v1/openapi.json")).json()
    async with session(extended, "2026-07-28") as over_mcp:
        by_mcp = {one.name: one for one in (await over_mcp.list_tools()).tools}

    assert listed["count_lines"]["inputSchema"]["properties"]["path"]["description"] == "The file."
    assert counted["result"] == {"path": "/a.txt", "lines": 2}
    hints = by_mcp["count_lines"].annotations
    assert hints is not None
    assert hints.read_only_hint is True
    schemas = document["components"]["schemas"]
    assert schemas["ToolResults"]["properties"]["count_lines"] == {"$ref": "#/components/schemas/LineCount"}
    assert set(schemas["LineCount"]["properties"]) == {"path", "lines"}
    # An agent without permissions has it, in plan mode too; and so has the default agent.
    reader = {one.name: one for one in registry.list_for_scope(AgentRules())}
    assert SessionMode.PLAN in reader["count_lines"].modes
    assert "  count_lines: {allowed: true}\n" in definition(ModelChoice("openai", "gpt-5"))

"""The configurations of the clients' page, used against a real server by the official SDKs of MCP and OpenAI.

The applications themselves are not run. Only the server's address and the keys are replaced.
"""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from openai import OpenAI

from tests.docs.blocks import ROOT, blocks_of
from tests.docs.docs_server import Stage
from tests.docs.page_runner import parse_variables, run_page
from tests.wait_until import PATIENCE

PAGE = "docs/tutorials/clients.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
SAMPLE_ADDRESS = "https://toolcrib.example.com"
AGENT_TOOLS = {"read", "write", "read_result"}


@dataclass(frozen=True)
class Site:
    """A server as the page leaves it, and what a reader replaces in the configurations."""

    origin: str
    workspace_id: str
    agent_key: str
    own_key: str

    def configuration(self, title: str) -> str:
        """A file of the page, with the address of this server."""
        (found,) = [block.body for block in blocks_of(PAGE) if block.title == title]
        assert SAMPLE_ADDRESS in found
        return found.replace(SAMPLE_ADDRESS, self.origin)


@pytest.fixture(scope="module")
def site(team_server: Stage) -> Site:
    run_page(PAGE, team_server)
    origin, *others = team_server.bash('echo "$TOOLCRIB_SERVER $WORKSPACE $AGENT_KEY $OWN_KEY"').split()
    return Site(origin, *others)


def desktop_program(site: Site) -> StdioServerParameters:
    """The program that Claude Desktop starts, with the agent's key."""
    (server,) = json.loads(site.configuration("claude_desktop_config.json"))["mcpServers"].values()
    assert server["env"] == {"TOOLCRIB_TOKEN": "the agent's key"}
    return StdioServerParameters(
        command=str(Path(sys.executable).with_name(server["command"])),
        args=server["args"],
        env={"TOOLCRIB_TOKEN": site.agent_key},
    )


async def use_as_agent(client: Client) -> None:
    """Use the tools of the page's agent, which reads and asks before it writes."""
    assert {tool.name for tool in (await client.list_tools()).tools} == AGENT_TOOLS
    found = await client.call_tool("read", {"path": "/notes.md"})
    assert "# Notes" in words(found), "the file of the team server's tutorial"
    waiting = await client.call_tool("write", {"path": "/by-client.md", "content": "x"})
    assert waiting.is_error
    assert re.search(r"approv", words(waiting), re.IGNORECASE)
    assert (await client.call_tool("read", {"path": "/by-client.md"})).is_error, "nothing was written"


async def use_as_owner(client: Client) -> None:
    """Use tools with a person's own key: nobody is asked."""
    written = await client.call_tool("write", {"path": "/by-owner.md", "content": "mine", "overwrite": True})
    assert not written.is_error, words(written)
    assert "mine" in words(await client.call_tool("read", {"path": "/by-owner.md"}))


def words(result: Any) -> str:
    return " ".join(part.text for part in result.content if part.type == "text")


async def test_claude_desktops_command_reaches_the_agents_tools(site: Site) -> None:
    async with asyncio.timeout(PATIENCE), Client(desktop_program(site)) as client:
        await use_as_agent(client)


@pytest.mark.long
async def test_claude_desktops_command_takes_a_persons_key_and_the_workspaces_name(site: Site) -> None:
    (text,) = re.findall(r'`"args": (\["mcp", "--server", .*?"--workspace".*?\])`', TEXT)
    arguments = json.loads(text.replace(SAMPLE_ADDRESS, site.origin))
    given = desktop_program(site)
    program = StdioServerParameters(command=given.command, args=arguments, env={"TOOLCRIB_TOKEN": site.own_key})
    async with asyncio.timeout(PATIENCE), Client(program) as client:
        await use_as_owner(client)


@pytest.mark.long
async def test_claude_desktops_command_serves_a_directory(team_server: Stage) -> None:
    (text,) = re.findall(r'`"args": (\["mcp", "--directory", .*?\])`', TEXT)
    arguments = json.loads(text.replace("/path/to/project", str(team_server.project)))
    program = StdioServerParameters(
        command=str(Path(sys.executable).with_name("toolcrib")),
        args=arguments,
        env={name: value for name, value in team_server.environment.items() if name != "TOOLCRIB_DATABASE_URL"},
    )
    async with asyncio.timeout(PATIENCE), Client(program) as client:
        assert "TODO: numbers" in words(await client.call_tool("read", {"path": "/parser.py"}))


async def test_vs_codes_url_and_headers_reach_the_agents_tools(site: Site) -> None:
    configuration = json.loads(site.configuration("mcp.json"))
    (prompt,) = configuration["inputs"]
    (server,) = configuration["servers"].values()
    assert (prompt["type"], prompt["password"], server["type"]) == ("promptString", True, "http")
    headers = headers_of(server, prompt, site.agent_key)
    async with asyncio.timeout(PATIENCE), opened(server["url"], headers) as client:
        await use_as_agent(client)


async def test_vs_codes_url_takes_a_persons_key_with_the_workspaces_id(site: Site) -> None:
    configuration = json.loads(site.configuration("mcp.json"))
    (prompt,), (server,) = configuration["inputs"], configuration["servers"].values()
    url = f"{server['url']}/{site.workspace_id}"
    headers = headers_of(server, prompt, site.own_key)
    async with asyncio.timeout(PATIENCE), opened(url, headers) as client:
        await use_as_owner(client)


def headers_of(server: Mapping[str, Any], prompt: Mapping[str, Any], key: str) -> dict[str, str]:
    """The headers, after the client asked for the key."""
    variable = f"${{input:{prompt['id']}}}"
    assert variable in server["headers"]["Authorization"]
    return {name: value.replace(variable, key) for name, value in server["headers"].items()}


@asynccontextmanager
async def opened(url: str, headers: Mapping[str, str]) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


def test_open_webuis_variables_list_the_agents_and_chat_with_one(site: Site) -> None:
    variables = parse_variables(site.configuration("open-webui.env"))
    assert variables["OPENAI_API_KEY"] == "your own key"
    with (
        httpx2.Client(trust_env=False) as http,
        OpenAI(
            base_url=variables["OPENAI_API_BASE_URL"], api_key=site.own_key, http_client=http, timeout=PATIENCE
        ) as client,
    ):
        assert [model.id for model in client.models.list()] == ["website/assistant"]
        messages: Any = [{"role": "user", "content": "Say hello"}]
        answer = client.chat.completions.create(model="website/assistant", messages=messages)
        streamed = client.chat.completions.create(model="website/assistant", messages=messages, stream=True)
        text = "".join(part.choices[0].delta.content or "" for part in streamed if part.choices)
        tools: Any = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
        with pytest.raises(Exception, match="tools"):
            client.chat.completions.create(model="website/assistant", messages=messages, tools=tools)
    assert answer.choices[0].message.content == text == "Done."


def test_the_page_names_the_versions_that_are_tested() -> None:
    assert f"mcp {version('mcp')}" in TEXT
    assert f"openai {version('openai')}" in TEXT
    assert (ROOT / "tests/integration/api_mcp/test_sessions.py").exists()

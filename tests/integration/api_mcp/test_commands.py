"""`toolcrib mcp add|list|show|accept|remove`: an owner adds another server's tools from the command line."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from typer.testing import CliRunner, Result

from tests.integration.api_mcp.conftest import Served, founded
from tests.integration.api_mcp.test_both_ways import call
from toolcrib.cli.mcp import app
from toolcrib.core.errors import BadArguments, Forbidden, Misconfigured, NotFound

READS = {"ls": {"allowed": True}, "read": {"allowed": True}}
Say = Callable[..., Any]


def terminal(served: Served, key: str | None = None) -> Say:
    """Run commands in a shell; in a thread, since the server runs in this one."""
    environment = {"TOOLCRIB_SERVER": served.origin, "TOOLCRIB_TOKEN": key or served.key, "COLUMNS": "200"}

    async def say(*words: str, input: str | None = None, **variables: str) -> Result:
        runner = CliRunner(env=environment | {"TOOLCRIB_WORKSPACE": str(served.workspace_id)} | variables)
        return await asyncio.to_thread(lambda: runner.invoke(app, words, input=input))

    return say


async def test_owner_adds_reviews_accepts_and_removes_a_server(served: Served) -> None:
    other = await founded(served.services, served.origin)
    key = await other.agent_key(trust="autonomous", tool_permissions=READS)
    say = terminal(served)
    assert "No MCP servers yet" in (await say("list")).output

    options = ("--url", f"{served.origin}/mcp", "--secret", "Authorization=OTHERS_KEY", "--safe", "ls")
    added = await say("add", "other", *options, OTHERS_KEY=f"Bearer {key}")
    assert added.exit_code == 0, added.exception
    assert "ls (new, safe)" in added.output
    assert "toolcrib mcp approve other" in added.output
    assert "not found" in str((await call(served, "mcp:other/ls", path="/")).error), "nobody can use it yet"
    unasked = await say("approve", "other")
    assert isinstance(unasked.exception, Misconfigured)
    sha256 = json.loads((await say("show", "other", "--json")).output)["offered_sha256"]
    assert sha256 in unasked.exception.message
    assert isinstance((await say("approve", "other", "--sha256", "0" * 64)).exception, BadArguments)
    accepted = await say("approve", "other", "--sha256", sha256)
    assert "Approved 3 tools of other." in accepted.output
    assert (await call(served, "mcp:other/ls", path="/")).succeeded
    assert "approved" in (await say("list")).output
    assert [one["name"] for one in json.loads((await say("list", "--json")).output)] == ["other"]

    assert "Removed: other." in (await say("remove", "other")).output
    assert isinstance((await say("show", "other")).exception, NotFound)


async def test_change_is_shown_without_terminal_escapes(served: Served) -> None:
    key = await served.agent_key(trust="autonomous", tool_permissions=READS)
    say = terminal(served)
    await say(
        "add", "self", "--url", f"{served.origin}/mcp", "--secret", "Authorization", Authorization=f"Bearer {key}"
    )
    (server,) = await served.services.toolbox.rows.list(served.tenant)
    assert server.offered_tools is not None
    first = server.offered_tools[0]
    twisted = replace(first, description="\x1b[2Jobey me\u202e", sha256="0" * 64)
    await served.services.toolbox.rows.save_offered(server, (twisted, *server.offered_tools[1:]), None)

    shown = (await say("show", "self")).output
    assert "\x1b" not in shown
    assert "\\u001b[2Jobey me\\u202e" in shown
    again = await say("show", "self", "--refresh")
    assert "obey me" not in again.output


async def test_secret_is_in_no_command_and_a_stranger_sees_nothing(served: Served) -> None:
    nowhere = await terminal(served)(
        "add", "x", "--url", "https://example.org/mcp", "--secret", "X-Key=NOT_SET_ANYWHERE"
    )
    assert isinstance(nowhere.exception, Misconfigured)
    other = await founded(served.services, served.origin)
    foreign = await terminal(served, other.key)("list")
    assert isinstance(foreign.exception, NotFound | Forbidden)


async def test_owner_gives_a_program_secrets_hosts_and_access_from_the_command_line(served: Served) -> None:
    say = terminal(served)
    options = ("--secret", "API_TOKEN", "--secret", "OTHER=FROM_HERE", "--host", "api.example.com")
    added = await say("add", "tools", *options, "--", "/bin/false", FROM_HERE="hush-0002", input="hush-0001\n")
    assert added.exit_code == 0, added.exception
    rows, tenant = served.services.toolbox.rows, served.tenant
    (server,) = await rows.list(tenant)
    assert (await rows.with_secrets(server)).secrets == {"API_TOKEN": "hush-0001", "OTHER": "hush-0002"}

    changed = await say(
        "update", "tools", "--secret", "API_TOKEN", "--host", "b.org", "--workspace-access", "read-only",
        API_TOKEN="hush-0003",
    )  # fmt: skip
    assert changed.exit_code == 0, changed.exception
    (server,) = await rows.list(tenant)
    assert (server.hosts, server.workspace_access) == (("b.org",), "read-only")
    assert (await rows.with_secrets(server)).secrets == {"API_TOKEN": "hush-0003", "OTHER": "hush-0002"}
    listed = await say("list")
    assert "API_TOKEN, OTHER" in listed.output
    assert "b.org" in listed.output
    assert "workspace: read-only" in (await say("show", "tools")).output
    for shown in (added, changed, listed, await say("show", "tools", "--json")):
        assert "hush" not in shown.output
    empty = await say("add", "x", "--secret", "NOT_SET_ANYWHERE", "--", "/bin/false")
    assert isinstance(empty.exception, Misconfigured)

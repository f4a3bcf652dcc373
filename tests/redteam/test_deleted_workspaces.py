"""A deleted workspace leaves no row, no file and no process, whenever its server dies and whatever is in progress."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.databases import DatabaseUrls
from tests.faults.cluster import ServerCluster
from tests.faults.server import Server, client_of
from tests.wait_until import PATIENCE

# The audit log outlives the workspace; the mark records the deletion for a day.
KEPT = {"audit_records", "deleted_workspaces"}
GUIDED = "trust: guided\ntool_permissions: {write: {allowed: true}}"
MCP = {"name": "m", "command": ["/bin/true"]}


@pytest.fixture
def server(tmp_path: Path, urls: DatabaseUrls) -> Iterator[Server]:
    with Server(tmp_path, urls) as server:
        server.environment |= {"TOOLCRIB_HEARTBEAT_LEASE_SECONDS": "2", "TOOLCRIB_AUDIT_SEAL_INTERVAL_SECONDS": "600"}
        server.start()
        yield server


async def test_deleted_workspace_leaves_nothing(server: Server, urls: DatabaseUrls) -> None:
    cluster, beside = await filled(server)
    before = of_workspace(urls, cluster.workspace)
    expected = {"files", "versions", "blobs", "tool_calls", "change_sets", "paused_calls", "sessions"}
    assert expected <= before.keys(), before

    await cluster.send(server, "DELETE", f"/workspaces/{cluster.workspace}")

    async with client_of(server, cluster.token) as http:
        assert (await http.get(f"/workspaces/{cluster.workspace}")).status_code == 403
        assert (await http.post(cluster.at("tools"), json=write("/late.txt"))).status_code == 403
    await until_gone(server, urls, cluster.workspace)
    # Other workspaces are unchanged.
    model_input = await cluster.send(server, "POST", f"/workspaces/{beside}/tools", read("/kept.txt"))
    assert model_input["result"]["content"] == "/kept.txt\n"


@pytest.mark.long
async def test_deletion_continues_after_the_server_is_killed(server: Server, urls: DatabaseUrls) -> None:
    cluster, beside = await filled(server)
    for _ in range(3):
        await cluster.send(
            server, "POST", cluster.at("tools"), bash("for i in $(seq 400); do echo $i > $RANDOM-$i; done")
        )
    # Late calls: one may commit after everything was marked, none may leave anything.
    late = [asyncio.create_task(quietly(server, cluster, write(f"/late-{number}.txt"))) for number in range(10)]
    await cluster.send(server, "DELETE", f"/workspaces/{cluster.workspace}")
    server.kill()
    await asyncio.gather(*late)
    assert of_workspace(urls, cluster.workspace).keys() - KEPT, "it died before it was done"

    await asyncio.to_thread(server.start)

    await until_gone(server, urls, cluster.workspace)
    await cluster.send(server, "POST", f"/workspaces/{beside}/tools", read("/kept.txt"))


@pytest.mark.redteam
async def test_command_and_process_of_a_deleted_workspace_leave_nothing(server: Server, urls: DatabaseUrls) -> None:
    cluster, _ = await filled(server)
    started = await cluster.send(
        server,
        "POST",
        cluster.at("tools"),
        {"tool": "bash_start", "args": {"command": "while :; do date > now.txt; done"}},
    )
    assert started["success"], started
    running = asyncio.create_task(quietly(server, cluster, bash("sleep 3; echo late > late.txt")))
    await until(urls, "select count(*) from toolcrib.background_processes where ended_ns is null", 1)

    await cluster.send(server, "DELETE", f"/workspaces/{cluster.workspace}")

    model_input = await running
    assert model_input is None or not model_input.get("success"), model_input
    await until_gone(server, urls, cluster.workspace)


async def test_persons_own_directory_is_never_deleted(server: Server, urls: DatabaseUrls, tmp_path: Path) -> None:
    own = tmp_path / "mine"
    own.mkdir()
    (own / "thesis.txt").write_text("years of work\n")
    cluster, _ = await filled(server)
    # A link leads out of the data directory, too: its target stays.
    folder = server.data_dir / "workspaces" / cluster.workspace
    (folder / "project" / "link").symlink_to(own)
    server.kill()
    with psycopg.connect(urls.owner) as connection:
        # As in local mode: the tree is the person's directory.
        connection.execute("update toolcrib.workspaces set root_path = %s where id = %s", (str(own), cluster.workspace))
    await asyncio.to_thread(server.start)
    model_input = await cluster.send(server, "POST", cluster.at("tools"), write("/by-tool.txt"))
    assert model_input["success"]

    await cluster.send(server, "DELETE", f"/workspaces/{cluster.workspace}")

    await until_gone(server, urls, cluster.workspace)
    assert (own / "thesis.txt").read_text() == "years of work\n"
    assert (own / "by-tool.txt").exists()


@pytest.mark.redteam
async def test_only_an_owner_deletes(server: Server, urls: DatabaseUrls) -> None:
    cluster, _ = await filled(server)
    eve = {"email": "eve@example.com", "password": "correct horse battery staple"}
    async with client_of(server) as http:
        (await http.post("/auth/register", json=eve)).raise_for_status()
        token = (await http.post("/auth/login", json=eve)).raise_for_status().json()["access_token"]
    await cluster.send(server, "POST", cluster.at("members"), {"email": eve["email"], "role": "member"})
    async with client_of(server, token) as http:
        assert (await http.delete(f"/workspaces/{cluster.workspace}")).status_code == 403
    assert "deleted_workspaces" not in of_workspace(urls, cluster.workspace)


async def filled(server: Server) -> tuple[ServerCluster, str]:
    """A workspace with one of everything, and another one beside it."""
    cluster = await ServerCluster.opened(server)
    beside = str((await cluster.send(server, "POST", "/workspaces", {"name": "beside"}))["id"])
    await cluster.send(server, "POST", f"/workspaces/{beside}/tools", write("/kept.txt"))
    agent = (await cluster.send(server, "POST", cluster.at("agents"), {"name": "a", "definition": GUIDED}))["id"]
    key = (await cluster.send(server, "POST", cluster.at(f"agents/{agent}/keys"), {"name": "k"}))["secret"]
    session = await cluster.session(server, agent)
    await cluster.say(server, session, "Nobody answers this: the agent has no model.")
    for path in ("/a.txt", "/folder/b.txt"):
        await cluster.send(
            server, "POST", cluster.at("tools"), {**write(path), "session_id": session, "as_person": True}
        )
    # Ignored and displaced: this is in the trash.
    await cluster.send(server, "POST", cluster.at("tools"), bash("echo 'ign/' > .gitignore; mkdir ign; echo x > ign/x"))
    await cluster.send(server, "POST", cluster.at("tools"), bash("rm -r ign"))
    async with client_of(server, key) as http:
        (await http.post(cluster.at("tools"), json=write("/asked.txt"))).raise_for_status()
    return cluster, beside


def write(path: str) -> dict[str, Any]:
    return {"tool": "write", "args": {"path": path, "content": f"{path}\n"}}


def read(path: str) -> dict[str, Any]:
    return {"tool": "read", "args": {"path": path}}


def bash(command: str) -> dict[str, Any]:
    return {"tool": "bash", "args": {"command": command}}


async def quietly(server: Server, cluster: ServerCluster, call: dict[str, Any]) -> dict[str, Any] | None:
    """Make a call whose server may die, or reject it."""
    try:
        async with client_of(server, cluster.token) as http:
            answer = await http.post(cluster.at("tools"), json=call)
        return dict(answer.json()) if answer.is_success else None
    except Exception:  # noqa: BLE001 - of whatever kind: the server was killed under it
        return None


def of_workspace(urls: DatabaseUrls, workspace: str) -> dict[str, int]:
    """Return the number of a workspace's rows in every table that can have any."""
    found = {}
    with psycopg.connect(urls.owner) as connection:
        tables = connection.execute(
            "select table_name, column_name from information_schema.columns where table_schema = 'toolcrib' "
            "and (column_name = 'workspace_id' or (table_name, column_name) = ('workspaces', 'id'))"
        ).fetchall()
        for table, column in tables:
            statement = sql.SQL("select count(*) from toolcrib.{} where {} = %s")
            counted = connection.execute(
                statement.format(sql.Identifier(table), sql.Identifier(column)), (workspace,)
            ).fetchone()
            assert counted is not None
            if counted[0]:
                found[table] = int(counted[0])
    return found


def on_disk(server: Server, workspace: str) -> list[str]:
    """Return every path below the data directory that names the workspace."""
    return [
        os.path.join(above, name)
        for above, folders, files in os.walk(server.data_dir)
        for name in [*folders, *files]
        if workspace in os.path.join(above, name)
    ]


async def until_gone(server: Server, urls: DatabaseUrls, workspace: str) -> None:
    left: Any = None
    try:
        async with asyncio.timeout(PATIENCE):
            while left := (
                (await asyncio.to_thread(of_workspace, urls, workspace)).keys() - KEPT or on_disk(server, workspace)
            ):
                pass
    except TimeoutError:
        raise AssertionError(f"left: {left}\n{server.logged()[-3000:]}") from None


async def until(urls: DatabaseUrls, query: str, expected: int) -> None:
    def look() -> Any:
        with psycopg.connect(urls.owner) as connection:
            return connection.execute(query).fetchone()

    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(look) != (expected,):
            pass

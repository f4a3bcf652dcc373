"""Nodes with different names and disks share a database: when one dies or freezes, another serves its workspaces."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.databases import DatabaseUrls
from tests.faults.server import Server, client_of
from tests.faults.test_shell_kills import newcomer
from tests.wait_until import PATIENCE

LEASE = 3.0
FILES = {f"/src/part{number}.py": f"print({number})\n" * 50 for number in range(20)}


@dataclass(frozen=True)
class Cluster:
    """Two nodes, and a workspace whose home is the first."""

    first: Server
    second: Server
    token: str
    workspace: UUID

    async def call(self, server: Server, tool: str, **arguments: Any) -> dict[str, Any]:
        async with client_of(server, self.token) as http:
            answer = await http.post(f"/workspaces/{self.workspace}/tools", json={"tool": tool, "args": arguments})
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()["result"]
        return result

    async def served_after(self, server: Server, path: str) -> float:
        """Wait until a server reads a file. Returns the seconds."""
        started = time.monotonic()
        async with client_of(server, self.token) as http, asyncio.timeout(PATIENCE):
            while True:
                call = {"tool": "read", "args": {"path": path}}
                answer = await http.post(f"/workspaces/{self.workspace}/tools", json=call)
                if answer.status_code == 200:
                    return time.monotonic() - started
                assert answer.status_code == 409, answer.text

    def project(self, server: Server) -> Path:
        return server.data_dir / "workspaces" / str(self.workspace) / "project"


@pytest.fixture
def servers(tmp_path: Path, urls: DatabaseUrls) -> Iterator[tuple[Server, Server]]:
    with ExitStack() as opened:
        made: list[Server] = []
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            server = opened.enter_context(Server(tmp_path / name, urls))
            server.environment |= {
                "TOOLCRIB_NODE_NAME": name,
                "TOOLCRIB_HEARTBEAT_LEASE_SECONDS": str(LEASE),
                "TOOLCRIB_TAKE_OVER_HOMES": "true",
                **{
                    secret: made[0].environment[secret]
                    for secret in ("TOOLCRIB_JWT_SECRET", "TOOLCRIB_AUDIT_SEAL_KEY")
                    if made
                },
            }
            made.append(server)
            server.start()
        yield made[0], made[1]


@pytest.fixture
async def cluster(servers: tuple[Server, Server]) -> Cluster:
    first, second = servers
    token, workspace = await newcomer(first)
    made = Cluster(first, second, token, workspace)
    for path, content in FILES.items():
        await made.call(first, "write", path=path, content=content)
    await made.call(first, "bash", command="mkdir out && seq 1000 > out/numbers.txt && chmod 750 out/numbers.txt")
    return made


async def test_files_of_a_killed_node_are_served_by_another_within_the_lease(
    cluster: Cluster, urls: DatabaseUrls
) -> None:
    async with client_of(cluster.second, cluster.token) as http:
        call = {"tool": "read", "args": {"path": "/src/part7.py"}}
        elsewhere = await http.post(f"/workspaces/{cluster.workspace}/tools", json=call)
    cluster.first.kill()

    took = await cluster.served_after(cluster.second, "/src/part7.py")
    command = "ls -l out/numbers.txt | cut -c1-10; wc -l < out/numbers.txt; ls src | wc -l"
    shown = await cluster.call(cluster.second, "bash", command=command)
    await cluster.call(cluster.second, "write", path="/after.txt", content="on the other node\n")

    # Without an internal listener a node forwards nothing, and says which node has the files.
    assert (elsewhere.status_code, "is on node 'first'" in elsewhere.text) == (409, True)
    assert took <= LEASE + 5
    assert shown["output"].split() == ["-rwxr-x---", "1000", "20"]
    project = cluster.project(cluster.second)
    assert {path: (project / path[1:]).read_text() for path in FILES} == FILES
    # A missing tree is not a deletion: every file has its first version only.
    with psycopg.connect(urls.owner) as database:
        versions = database.execute("select distinct version_number from toolcrib.files where path like '/src/%'")
        assert versions.fetchall() == [(1,)]


@pytest.mark.long
async def test_node_that_comes_back_discards_its_old_tree(cluster: Cluster) -> None:
    cluster.first.freeze()
    await cluster.served_after(cluster.second, "/src/part0.py")
    await cluster.call(cluster.second, "write", path="/src/part0.py", content="new\n", overwrite=True)

    cluster.first.thaw()
    # Whoever wakes writes nothing, into the history or over what others wrote.
    async with client_of(cluster.first, cluster.token) as http:
        call = {"tool": "write", "args": {"path": "/zombie.txt", "content": "z\n"}}
        late = await http.post(f"/workspaces/{cluster.workspace}/tools", json=call)
    cluster.second.kill()
    await cluster.served_after(cluster.first, "/src/part0.py")
    read = await cluster.call(cluster.first, "read", path="/src/part0.py")

    # Its database sessions were ended, or the workspace has another home.
    assert late.status_code in (409, 503)
    assert "new" in read["content"]
    project = cluster.project(cluster.first)
    assert (project / "src/part0.py").read_text() == "new\n"
    assert {path: (project / path[1:]).read_text() for path in FILES if path != "/src/part0.py"} == {
        path: content for path, content in FILES.items() if path != "/src/part0.py"
    }

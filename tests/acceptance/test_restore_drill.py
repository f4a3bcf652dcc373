"""The restore drill: a dump of the database in a new one, an empty data directory, and the server that starts there."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from tests.databases import DatabaseUrls, migrated_database, new_database, urls_of
from tests.fakes.model_server import Answer, ModelServer, Received, model_server, plain
from tests.faults.cluster import ServerCluster
from tests.faults.scripted import said
from tests.faults.server import Server, client_of
from tests.wait_until import PATIENCE

RULES = """
provider: openai-compatible
model: fake
trust: autonomous
tool_permissions: {write: {allowed: true}, read: {allowed: true}}
"""
# Requests at a time.
_AT_ONCE = 8


class Script:
    """A model that never ends its first turn; when it is asked again, it reads a file and writes what it has read."""

    def __init__(self) -> None:
        self.speaks = asyncio.Event()
        self._never = asyncio.Event()

    def answer(self, request: Received) -> Answer:
        if "messages" not in request.body:
            return plain(200, {"object": "list", "data": []})
        last = request.body["messages"][-1]
        if last["role"] == "user":
            held = None if self.speaks.is_set() else self._never
            self.speaks.set()
            return said("I look.", ("read", {"path": "/src/1.txt"}), held=held)
        if "of workspace" in last["content"]:
            return said("I write.", ("write", {"path": "/copy.txt", "content": "It is about workspace 0."}))
        return said("Done.")


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
async def model(script: Script) -> AsyncIterator[ModelServer]:
    async with model_server(ModelServer(responder=script.answer)) as serving:
        yield serving


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """The server before the disaster, not started yet."""
    (tmp_path / "before").mkdir()
    with migrated_database() as name, Server(tmp_path / "before", urls_of(name)) as server:
        server.environment |= {"TOOLCRIB_ALLOWED_PRIVATE_MODEL_HOSTS": "*", "TOOLCRIB_HEARTBEAT_LEASE_SECONDS": "5"}
        yield server


@contextmanager
def restored(server: Server, directory: Path) -> Iterator[tuple[Server, DatabaseUrls]]:
    """Dump the server's database, kill the server, and return another one with the dump and an empty disk."""
    (directory / "after").mkdir()
    dump = directory / "toolcrib.dump"
    before = urls_from(server).owner
    subprocess.run(["pg_dump", "--format=custom", f"--file={dump}", before], check=True)
    server.kill()
    shutil.rmtree(server.data_dir)
    with new_database() as name:
        urls = urls_of(name)
        subprocess.run(["pg_restore", "--exit-on-error", f"--dbname={urls.owner}", dump], check=True)
        with Server(directory / "after", urls) as after:
            ours = ("DATABASE_URL", "SYSTEM_DATABASE_URL", "DATA_DIR")
            own = {key: after.environment[key] for key in (f"TOOLCRIB_{name}" for name in ours)}
            after.environment = server.environment | own
            yield after, urls


def urls_from(server: Server) -> DatabaseUrls:
    return urls_of(server.environment["TOOLCRIB_DATABASE_URL"].rpartition("/")[2])


@dataclass(frozen=True)
class Drill:
    """Ada's workspaces, and her requests."""

    cluster: ServerCluster
    workspaces: tuple[str, ...]

    @classmethod
    async def prepared(cls, server: Server, count: int) -> "Drill":
        cluster = await ServerCluster.opened(server)
        async with client_of(server, cluster.token) as http:

            async def prepare(number: int) -> str:
                made = cluster.workspace
                if number:
                    made = (await http.post("/workspaces", json={"name": f"w{number}"})).raise_for_status().json()["id"]
                for path, content in files_of(number).items():
                    await call(http, made, "write", path=path, content=content)
                return made

            return cls(cluster, tuple(await few_at_once(count, prepare)))

    async def check_all_served(self, server: Server) -> None:
        """Check that every file of every workspace has its content, and that nothing else is there."""
        async with client_of(server, self.cluster.token) as http:

            async def check(number: int) -> None:
                workspace, wanted = self.workspaces[number], files_of(number)
                for path, content in wanted.items():
                    assert (await call(http, workspace, "read", path=path))["content"] == content
                listed = await call(http, workspace, "ls", path="/", recursive=True)
                found = {entry["path"] for entry in listed["entries"] if entry["path"] in wanted}
                assert found == set(wanted)

            await few_at_once(len(self.workspaces), check)


def files_of(number: int) -> dict[str, str]:
    return {f"/src/{n}.txt": f"file {n} of workspace {number}\n" * n for n in range(1, 4)} | {"/empty": ""}


async def call(http: httpx2.AsyncClient, workspace: str, tool: str, **arguments: Any) -> Any:
    answer = await http.post(f"/workspaces/{workspace}/tools", json={"tool": tool, "args": arguments})
    assert answer.is_success, answer.text
    return answer.json()["result"]


async def few_at_once(count: int, work: Any) -> list[Any]:
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> Any:
        async with room:
            return await work(number)

    return await asyncio.gather(*map(one, range(count)))


def rows(urls: DatabaseUrls, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(urls.owner) as connection:
        return connection.execute(query).fetchall()


async def until(urls: DatabaseUrls, query: str, wanted: list[tuple[Any, ...]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(rows, urls, query) != wanted:
            pass


def are_rebuilding(markers: Sequence[Path]) -> bool:
    return any(json.loads(marker.read_bytes())["rebuild_id"] for marker in markers)


async def drill(server: Server, script: Script, model: ModelServer, directory: Path, *, workspaces: int) -> None:
    await asyncio.to_thread(server.start)
    drill = await Drill.prepared(server, workspaces)
    agent = await drill.cluster.agent(server, model, RULES, provider="openai-compatible")
    await drill.cluster.say(server, await drill.cluster.session(server, agent), "What is it about?")
    async with asyncio.timeout(PATIENCE):
        await script.speaks.wait()

    with restored(server, directory) as (after, urls):
        await asyncio.to_thread(after.start)
        await drill.check_all_served(after)

        await until(urls, "select end_reason from toolcrib.runs", [("done",)])
        async with client_of(after, drill.cluster.token) as http:
            copy = await call(http, drill.workspaces[0], "read", path="/copy.txt")
        assert copy["content"] == "It is about workspace 0."
        assert rows(urls, "select path from toolcrib.versions where deleted") == []
        # In the background, every tree becomes whole.
        await until(urls, "select file_id from toolcrib.pending_applies", [])
        markers = [after.data_dir / "workspaces" / one / "marker.json" for one in drill.workspaces]
        async with asyncio.timeout(PATIENCE):
            while await asyncio.to_thread(are_rebuilding, markers):
                pass
        for number, workspace in enumerate(drill.workspaces):
            project = after.data_dir / "workspaces" / workspace / "project"
            on_disk = {path: (project / path[1:]).read_text() for path in files_of(number)}
            assert on_disk == files_of(number)


@pytest.mark.long
async def test_database_restored_without_its_disk_serves_everything(
    server: Server, script: Script, model: ModelServer, tmp_path: Path
) -> None:
    await drill(server, script, model, tmp_path, workspaces=20)


@pytest.mark.long
async def test_thousand_workspaces_are_served_again(
    server: Server, script: Script, model: ModelServer, tmp_path: Path
) -> None:
    await drill(server, script, model, tmp_path, workspaces=1_000)


@pytest.mark.long
async def test_operator_restores_all_workspaces_of_a_node(server: Server, tmp_path: Path) -> None:
    await asyncio.to_thread(server.start)
    drill = await Drill.prepared(server, 3)
    async with client_of(server, drill.cluster.token) as http:
        await call(http, drill.workspaces[1], "write", path="/.gitignore", content="build/\n")
        await call(http, drill.workspaces[1], "bash", command="mkdir build; echo made > build/out")
        await call(http, drill.workspaces[1], "bash", command="rm -r build")
        await call(http, drill.workspaces[1], "undo", last="call")

    with restored(server, tmp_path) as (after, _):
        one = await asyncio.to_thread(after.command, "restore", drill.workspaces[2])
        assert one.returncode == 0, one.stderr
        assert one.stdout == (
            "w2: 5 files and folders restored.\n"
            f"Node {server.node}: 1 workspaces, of which 1 were restored and 0 had their files; 0 losses.\n"
        )
        assert (after.data_dir / "workspaces" / drill.workspaces[2] / "project/src/1.txt").exists()

        done = await asyncio.to_thread(after.command, "restore")
        assert done.returncode == 0, done.stderr
        assert "w1: 6 files and folders restored.\n  Lost: /build (an ignored folder" in done.stdout
        assert (
            f"Node {server.node}: 3 workspaces, of which 3 were restored and 0 had their files; 1 losses."
            in done.stdout
        )

        as_json = await asyncio.to_thread(after.command, "restore", "--json")
        assert {one["name"]: [lost["path"] for lost in one["lost"]] for one in json.loads(as_json.stdout)} == {
            "w": [],
            "w1": ["/build"],
            "w2": [],
        }
        unknown = await asyncio.to_thread(after.command, "restore", "nothing")
        assert (unknown.returncode, "no workspace 'nothing'" in unknown.stderr) == (2, True)

        await asyncio.to_thread(after.start)
        await drill.check_all_served(after)

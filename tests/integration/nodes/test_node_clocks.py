"""The clocks of the nodes' machines need not agree, and a listener may be reached at another address than its own."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import migrated_database, urls_of
from tests.faults.node_pair import PairedWorkspace, node_pair, workspace_of_first
from tests.faults.server import Server

# The server, on a machine whose clock is an hour fast.
_AN_HOUR_FAST = """
import sys, time
machine_time = time.time
time.time = lambda: machine_time() + 3600
from toolcrib.cli.main import main
sys.argv[0] = "toolcrib"
main()
"""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    with migrated_database() as name, node_pair(tmp_path, urls_of(name)) as (first, second):
        for server in (first, second):
            server.signal(signal.SIGTERM)
            assert server.await_death() == 0
        port = first.environment["TOOLCRIB_INTERNAL_PORT"]
        # As behind an address translation: it listens on another address of this machine than it is reached at.
        first.environment |= {
            "TOOLCRIB_INTERNAL_HOST": "0.0.0.0",
            "TOOLCRIB_INTERNAL_URL": f"http://127.0.0.2:{port}",
        }
        second.program = [sys.executable, "-c", _AN_HOUR_FAST]
        first.start()
        second.start()
        yield first, second


@pytest.mark.long
async def test_calls_are_forwarded_between_machines_whose_clocks_differ(servers: tuple[Server, Server]) -> None:
    shared: PairedWorkspace = await workspace_of_first(*servers)

    await shared.result("write", path="/a.txt", content="a\n")

    assert (shared.project / "a.txt").read_text() == "a\n"
    assert "http://127.0.0.2:" in servers[1].command("nodes", "list").stdout

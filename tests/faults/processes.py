"""Processes of the program's parts that start quickly: all are forked from one that has already imported everything."""

import multiprocessing
import os
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool
from pydantic import SecretStr

import toolcrib.tools
from toolcrib.cli.main import main
from toolcrib.settings import Settings
from toolcrib.storage.database import Connection, Database, Pool, Tenant
from toolcrib.tools.tool_registry import discover_tools
from toolcrib.wiring.tool_runtime import ToolRuntime, assemble

# Each tool has its own module. Imported here, they are loaded when a process is forked.
TOOLS = tuple(discover_tools(toolcrib.tools))

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["toolcrib.cli.main", "tests.faults.crasher", "tests.faults.writers"])


@dataclass(frozen=True)
class Site:
    """Where an engine runs. Two engines of one site are two processes of one node."""

    app_url: str
    system_url: str
    data_dir: Path
    node: str


@asynccontextmanager
async def engine_at(site: Site) -> AsyncIterator[ToolRuntime]:
    """Open an engine with few connections, none of them in advance: dozens of engines share one database server."""
    settings = Settings(
        database_url=site.app_url,
        system_database_url=site.system_url,
        jwt_secret=SecretStr(secrets.token_urlsafe(48)),
        audit_seal_key=SecretStr(secrets.token_urlsafe(48)),
        data_dir=site.data_dir,
        node_name=site.node,
    )
    async with _pool(site.app_url) as app, _pool(site.system_url) as system:
        yield assemble(settings, Database(app, system))


async def recover_node(engine: ToolRuntime) -> None:
    """Recover all workspaces of the engine's node, as its server does in the background."""
    services = engine.workspace_services
    for workspace_id, home_epoch in (await services.files.workspaces_pending(services.node)).items():
        await services.sync.recover(Tenant(workspace_id), home_epoch)


@dataclass(frozen=True)
class Ended:
    """How a command ended, and its output."""

    status: int | None
    said: str


def run_command(*arguments: str, environment: Mapping[str, str], scratch: Path) -> Ended:
    """Run ``toolcrib`` as its own process, from its entry point, with nothing else in its environment."""
    output = scratch / f"said-{secrets.token_hex(4)}"
    process = FORKED.Process(target=_command, args=(arguments, dict(environment), output))
    process.start()
    process.join()
    return Ended(process.exitcode, output.read_text())


def _command(arguments: tuple[str, ...], environment: dict[str, str], output: Path) -> None:
    with output.open("wb") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["toolcrib", *arguments]
    main()


def _pool(dsn: str) -> Pool:
    conninfo = make_conninfo(dsn, options="-c search_path=toolcrib -c jit=off")
    options = {"autocommit": True, "prepare_threshold": 1}
    return AsyncConnectionPool(
        conninfo, min_size=0, max_size=2, open=False, kwargs=options, connection_class=Connection
    )

"""Processes of the program's parts, quickly made: all are forked from one that has imported everything already."""

import multiprocessing
import secrets
from contextlib import asynccontextmanager
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import make_conninfo
from psycopg_pool import AsyncConnectionPool

from toolcrib.settings import Settings
from toolcrib.storage.database import Database, Pool
from toolcrib.wiring import Engine, assemble

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["toolcrib.wiring"])


@dataclass(frozen=True)
class Site:
    """Where an engine works. Two engines of one site are two processes of one node."""

    app_url: str
    system_url: str
    data_dir: Path
    node: str


@asynccontextmanager
async def engine_at(site: Site) -> AsyncIterator[Engine]:
    """An engine with few connections, and none before it is needed: dozens of us share one database server."""
    settings = Settings(
        database_url=site.app_url,
        system_database_url=site.system_url,
        jwt_secret=secrets.token_urlsafe(48),
        audit_key=secrets.token_urlsafe(48),
        data_dir=site.data_dir,
        node=site.node,
    )
    async with _pool(site.app_url) as app, _pool(site.system_url) as system:
        yield assemble(settings, Database(app, system))


def _pool(dsn: str) -> Pool:
    conninfo = make_conninfo(dsn, options="-c search_path=toolcrib -c jit=off")
    options = {"autocommit": True, "prepare_threshold": 1}
    return AsyncConnectionPool(conninfo, min_size=0, max_size=2, open=False, kwargs=options)

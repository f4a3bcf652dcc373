"""``toolcrib serve``: the HTTP server."""

import asyncio
from typing import Annotated

import structlog
import typer
import uvicorn

from toolcrib.cli.configuration import load_settings
from toolcrib.cli.logs import configure_logs
from toolcrib.server.app import create_app
from toolcrib.settings import Settings
from toolcrib.wiring import services

log = structlog.get_logger(__name__)


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
) -> None:
    """Serve the HTTP API.

    Needs TOOLCRIB_DATABASE_URL, TOOLCRIB_JWT_SECRET and TOOLCRIB_AUDIT_KEY; prepare the database with
    `toolcrib db upgrade` first.

    Example: toolcrib serve --port 3000
    """
    configure_logs()
    settings = load_settings()
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    try:
        import uvloop

        uvloop.run(run(settings.model_copy(update=given)))
    except ImportError:
        asyncio.run(run(settings.model_copy(update=given)))


async def run(settings: Settings) -> None:
    """Serves until told to stop. Recovery is done before the first request is taken."""
    async with services(settings) as opened:
        config = uvicorn.Config(
            create_app(opened),
            host=settings.host,
            port=settings.port,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=settings.trusted_proxies is not None,
            forwarded_allow_ips=settings.trusted_proxies,
            date_header=False,
            ws="websockets-sansio",
            # What a client may make us hold before we know who it is. Large files are written over HTTP.
            ws_max_size=1_000_000,
            # Many small messages: it would cost more time than it saves in size.
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=10,
        )
        log.info("serving", address=f"http://{settings.host}:{settings.port}", node=settings.node)
        await uvicorn.Server(config).serve()

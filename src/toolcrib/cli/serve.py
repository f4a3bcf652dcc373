"""``toolcrib serve``: the HTTP server."""

import asyncio
from typing import Annotated

import structlog
import typer

from toolcrib.cli.configuration import load_settings
from toolcrib.cli.logs import configure_logs
from toolcrib.domain.platforms import require_linux
from toolcrib.settings import Settings

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
    require_linux()
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
    # Here, as in the other commands: what a command needs is loaded when it runs, so that all of them start quickly.
    from toolcrib.server.listening import listener
    from toolcrib.wiring import services

    async with services(settings) as opened:
        log.info("serving", address=f"http://{settings.host}:{settings.port}", node=settings.node)
        await listener(opened).serve()

"""``toolcrib serve``: the HTTP server."""

import asyncio
import signal
import sys
from contextlib import suppress
from typing import Annotated

import structlog
import typer

from toolcrib.runtime.process_setup import require_linux
from toolcrib.settings import Settings, load_settings


def configure_logs() -> None:
    """Configures structlog: one JSON object per line, or plain lines in a terminal.

    Its default shows local variables in tracebacks, and with them tokens and passwords.
    """
    in_terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if in_terminal else structlog.processors.JSONRenderer(default=str),
        ],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


log = structlog.get_logger(__name__)


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
) -> None:
    """Serve the HTTP API. SIGTERM ends it in order, with exit code 0.

    Requires TOOLCRIB_DATABASE_URL, TOOLCRIB_JWT_SECRET and TOOLCRIB_AUDIT_SEAL_KEY. Prepare the database with
    `toolcrib db upgrade` first.

    Example: toolcrib serve --port 3000
    """
    require_linux()
    configure_logs()
    settings = load_settings()
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        import uvloop

        uvloop.run(run(settings.model_copy(update=given)))
    except ImportError:
        asyncio.run(run(settings.model_copy(update=given)))


def _show_setup_link(settings: Settings, secret: str) -> None:
    from toolcrib.api.access_tokens import SETUP_MINUTES

    host = "localhost" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104 - compared, not bound
    typer.echo(
        f"There are no accounts yet. Create the first one within {SETUP_MINUTES} minutes:\n\n"
        f"  http://{host}:{settings.port}/#setup={secret}\n\n"
        "or with `toolcrib user create`. Registration is closed otherwise.",
        err=True,
    )


async def run(settings: Settings) -> None:
    """Serves until a signal stops it. Crash recovery ends before the first request."""
    # Imported here, as in the other commands, so that all commands start quickly.
    from toolcrib.api.app import listener
    from toolcrib.api.connection_limits import raise_descriptor_limit
    from toolcrib.wiring import services

    raise_descriptor_limit()
    async with services(settings) as opened:
        if not settings.open_registration and not await opened.accounts.anyone():
            _show_setup_link(settings, opened.setup_links.issue())
        log.info("server.started", address=f"http://{settings.host}:{settings.port}", node=settings.node_name)
        # After its last request, uvicorn raises the signal that stopped it again. The services close then.
        with suppress(SystemExit):
            await listener(opened).serve()

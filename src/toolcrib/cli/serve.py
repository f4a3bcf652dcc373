"""``toolcrib serve``: the HTTP server."""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import structlog
import typer
from structlog.typing import Processor

from toolcrib.core.errors import Forbidden
from toolcrib.runtime.process_setup import require_linux
from toolcrib.settings import Settings, load_settings

if TYPE_CHECKING:
    from toolcrib.api.api_services import ApiServices


def configure_logs() -> None:
    """Configures structlog and the standard library's log: one JSON object per line, or plain lines in a terminal.

    structlog's default shows local variables in tracebacks and the messages of errors, and with them what users wrote.
    """
    # Imported here, as in the other commands, so that all commands start quickly.
    from toolcrib.api.request_log import add_request_id
    from toolcrib.runtime.logged_errors import log_uncaught_errors, render_error

    shared: list[Processor] = [
        add_request_id,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        render_error,
    ]
    in_terminal = sys.stderr.isatty()
    render: Processor = (
        # Quotes what others can choose, such as paths of requests: it may contain escape sequences.
        structlog.dev.ConsoleRenderer(repr_native_str=True)
        if in_terminal
        else structlog.processors.JSONRenderer(default=str)
    )
    structlog.configure(
        processors=[*shared, render],
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    # The lines of libraries, such as the web server's.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    log_uncaught_errors()


log = structlog.get_logger(__name__)

# How long the services may take to close when the second signal has come.
_AT_ONCE_SECONDS: Final = 5.0


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
) -> None:
    """Serve the HTTP API. SIGTERM lets work finish for TOOLCRIB_DRAIN_SECONDS, then ends it with exit code 0.

    A second SIGTERM or Ctrl-C ends it at once. Unfinished runs continue with the next process.

    Requires TOOLCRIB_DATABASE_URL, TOOLCRIB_JWT_SECRET and TOOLCRIB_AUDIT_SEAL_KEY. Prepare the database with
    `toolcrib db upgrade` first.

    Example: toolcrib serve --port 3000
    """
    require_linux()
    configure_logs()
    settings = load_settings()
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    status = _run_loop(run(settings.model_copy(update=given)))
    if status:
        raise typer.Exit(status)


def _run_loop(main: Coroutine[Any, Any, int]) -> int:
    try:
        import uvloop
    except ImportError:
        log.warning("server.without_uvloop", remedy="pip install 'toolcrib[server]'")
        return asyncio.run(main)
    return uvloop.run(main)


async def _prepare_first_account(services: "ApiServices") -> None:
    """Create the first account with the settings, or show a link that does."""
    settings, accounts = services.settings, services.accounts
    if await accounts.anyone():
        return
    if settings.first_administrator is None:
        if not settings.open_registration:
            _show_setup_link(settings, services.setup_links.issue())
        return
    email, password = settings.first_administrator
    password_hash = await services.passwords.hash(password.get_secret_value())
    # Another node that starts at the same time may be first.
    with suppress(Forbidden):
        await accounts.create_first_user(email=email, full_name=None, password_hash=password_hash)
        log.info("server.first_administrator_created", email=email)


def _show_setup_link(settings: Settings, secret: str) -> None:
    from toolcrib.api.access_tokens import SETUP_MINUTES

    typer.echo(
        f"There are no accounts yet. Create the first one within {SETUP_MINUTES} minutes:\n\n"
        f"  {settings.origin}/#setup={secret}\n\n"
        "or with `toolcrib user create`. Registration is closed otherwise.",
        err=True,
    )


async def run(settings: Settings) -> int:
    """Serve until a signal stops it, and return the exit status. Crash recovery runs in the background."""
    from toolcrib.api.app import listener
    from toolcrib.api.connection_limits import raise_descriptor_limit
    from toolcrib.runtime.logged_errors import log_uncaught_task_errors
    from toolcrib.wiring.server import services

    raise_descriptor_limit()
    log_uncaught_task_errors(asyncio.get_running_loop())
    signals = _StopSignals()
    try:
        async with services(settings) as opened:
            signals.starting = None
            await _prepare_first_account(opened)
            log.info("server.started", address=f"http://{settings.host}:{settings.port}", node=settings.node_name)
            web = listener(opened)
            serving = asyncio.create_task(web.serve())
            await _first(serving, signals.stop)
            until = time.monotonic() + settings.drain_seconds
            draining = asyncio.create_task(opened.drain.run(settings.drain_seconds))
            await _first(draining, signals.at_once)
            draining.cancel()
            await asyncio.gather(draining, return_exceptions=True)
            opened.connection_limits.close()
            web.config.timeout_graceful_shutdown = max(1, round(until - time.monotonic()))
            web.should_exit = True
            await _first(serving, signals.at_once)
            web.force_exit = signals.at_once.is_set()
            await serving
            if web.force_exit:
                # Which uvicorn leaves out then.
                await web.lifespan.shutdown()
    except asyncio.CancelledError:
        if not signals.stop.is_set():
            raise
    return signals.status


class _StopSignals:
    """SIGTERM and SIGINT: the first lets work finish, the second does not."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.at_once = asyncio.Event()
        self.status = 0
        # While the server starts, the first signal cancels this.
        self.starting = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._received, number)

    def _received(self, number: signal.Signals) -> None:
        if not self.stop.is_set():
            log.info("server.stopping", signal=number.name)
            self.stop.set()
            if self.starting is not None:
                self.starting.cancel()
        elif not self.at_once.is_set():
            self.status = 130 if number is signal.SIGINT else 0
            self.at_once.set()
            # Whatever hangs now, such as the database: others take over after the lease.
            self._loop.call_later(_AT_ONCE_SECONDS, os._exit, self.status)


async def _first(task: asyncio.Task[None], event: asyncio.Event) -> None:
    """Wait for the end of a task or for an event."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()

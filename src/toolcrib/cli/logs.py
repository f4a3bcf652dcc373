"""How the commands log: one JSON object a line, or plain lines in a terminal. Never the values of variables."""

import sys

import structlog


def configure_logs() -> None:
    """Sets structlog up. Its default shows local variables in tracebacks, and with them tokens and passwords."""
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

"""Where the server's own words go in local mode: to a file, so that the terminal is the conversation's alone."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

_MOST_BYTES = 5_000_000


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Logs go to this file for as long as the context lasts; an old one that has grown large is begun anew."""
    if path.exists() and path.stat().st_size > _MOST_BYTES:
        path.unlink()
    with path.open("a", buffering=1) as file:
        handler = logging.StreamHandler(file)
        logging.getLogger().addHandler(handler)
        before = structlog.get_config()
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(default=str),
            ],
            logger_factory=structlog.PrintLoggerFactory(file=file),
            cache_logger_on_first_use=False,
        )
        try:
            yield
        finally:
            structlog.configure(**before)
            logging.getLogger().removeHandler(handler)

"""Where the server's own words go in local mode: to a file, so that the terminal is the conversation's alone."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import structlog

_MOST_BYTES = 5_000_000


@contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Logs go to this file for as long as the context lasts; an old one that has grown large is begun anew.

    A program that has set up its own logging keeps it: there our words are part of its log.
    """
    if path.exists() and path.stat().st_size > _MOST_BYTES:
        path.unlink()
    with path.open("a", buffering=1) as file, _standard_library(file), _structured(file):
        yield


@contextmanager
def _standard_library(file: TextIO) -> Iterator[None]:
    root = logging.getLogger()
    if root.handlers:
        yield
        return
    handler = logging.StreamHandler(file)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


@contextmanager
def _structured(file: TextIO) -> Iterator[None]:
    if structlog.is_configured():
        yield
        return
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
        structlog.reset_defaults()

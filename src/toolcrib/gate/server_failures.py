"""Failures of our own machinery as people, models and the execution log get them: never as a fact about their work."""

import errno
from collections.abc import Mapping
from typing import Final

from toolcrib.core.errors import DatabaseUnavailable, OutOfResources, ToolcribError
from toolcrib.storage.database import OperationalError, is_transient

NOTHING_CHANGED: Final = "Nothing was changed. Try again in a moment."
UNKNOWN_EFFECT: Final = "It is unknown whether it took effect: look before you repeat it."

_EXHAUSTED: Final[Mapping[int, str]] = {
    errno.ENOSPC: "The disk of the server is full.",
    errno.EDQUOT: "The disk quota of the server is used up.",
    errno.EROFS: "The disk of the server is mounted read-only.",
    errno.EIO: "The disk of the server fails to read or to write.",
    errno.EMFILE: "The server has too many files and connections open.",
    errno.ENFILE: "The machine of the server has too many files open.",
    errno.ENOMEM: "The server has no memory left.",
}


def server_failure(error: BaseException, known: str) -> ToolcribError | None:
    """Return the error that says which part of the server failed. None for any other error: that is a defect.

    Args:
        known: What is known about the effect of what was asked for, and what to do.
    """
    match error:
        case OperationalError() if is_transient(error):
            return DatabaseUnavailable(f"The database is temporarily unavailable. {known}")
        case OSError() if what := _EXHAUSTED.get(error.errno or 0):
            return OutOfResources(
                f"{what} That is a failure of the server and says nothing about your files. {known} If it goes on, ask "
                "the operator to look in the log."
            )
    return None

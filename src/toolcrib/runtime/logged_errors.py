"""Errors as the log shows them: types, stack and codes, but no message that may quote what a user wrote.

PostgreSQL quotes whole rows in its messages, validators the value, providers the request with its key, and a
``KeyError`` is nothing but the key.
"""

import asyncio
import sys
import threading
import traceback
from typing import Any, Final

import structlog
from structlog.typing import ExcInfo, Processor

from toolcrib.core.errors import ToolcribError

log = structlog.get_logger(__name__)

# These name what is missing in the program or its environment.
_OF_THE_PROGRAM: Final = (ImportError, NameError, NotImplementedError, RecursionError)


def error_kind(error: BaseException) -> str:
    """Return the type of an error and what says more about it: an error number, an SQLSTATE, one of our codes."""
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    facts = _facts(error)
    return f"{kind}: {facts}" if facts else kind


def _facts(error: BaseException) -> str:
    if isinstance(error, ToolcribError):
        return error.code
    if isinstance(error, OSError) and error.errno is not None:
        return " ".join(str(part) for part in (error.strerror, error.filename, error.filename2) if part)
    if isinstance(error, _OF_THE_PROGRAM):
        return str(error)
    # An error of the database driver, perhaps within one of SQLAlchemy. Only storage knows their types.
    if (cause := getattr(error, "orig", None)) is not None:
        return error_kind(cause)
    if hasattr(error, "sqlstate"):
        return _database_facts(error)
    return ""


def _database_facts(error: Any) -> str:
    if error.sqlstate is None:
        # There was no answer: the text is the client library's own, about the connection.
        return str(error).strip()
    named = (error.diag.table_name, error.diag.column_name, error.diag.constraint_name)
    return " ".join((f"SQLSTATE {error.sqlstate}", *(name for name in named if name)))


def format_error(error: BaseException) -> str:
    """Return the stack of an error, and of those that caused it."""
    return "\nThen:\n".join(_stacks(error, seen=set()))


def _stacks(error: BaseException, *, seen: set[int]) -> list[str]:
    """The first cause first. An error may be among its own causes."""
    seen.add(id(error))
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = [cause] if cause else []
    if isinstance(error, BaseExceptionGroup):
        before += error.exceptions
    stacks = [stack for one in before if id(one) not in seen for stack in _stacks(one, seen=seen)]
    return [*stacks, f"{''.join(traceback.format_tb(error.__traceback__))}{error_kind(error)}"]


def _render(exc_info: ExcInfo) -> str:
    return format_error(exc_info[1])


# Replaces structlog's ``format_exc_info``.
render_error: Final[Processor] = structlog.processors.ExceptionRenderer(_render)


def log_uncaught_errors() -> None:
    """Log the errors of threads and finalizers, which Python would print with their messages."""

    def in_thread(hook: threading.ExceptHookArgs) -> None:
        if hook.exc_value is not None and not isinstance(hook.exc_value, SystemExit):
            log.error("thread.failed", thread=hook.thread.name if hook.thread else None, exc_info=hook.exc_value)

    def unraisable(hook: "sys.UnraisableHookArgs") -> None:
        if hook.exc_value is not None:
            log.error("finalizer.failed", exc_info=hook.exc_value)

    threading.excepthook = in_thread
    sys.unraisablehook = unraisable


def log_uncaught_task_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Log the errors that nobody waited for. asyncio would log their ``repr``, too."""

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        log.error("event_loop.error", message=context["message"], exc_info=context.get("exception"))

    loop.set_exception_handler(handle)

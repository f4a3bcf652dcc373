"""Tools of an operator with a bug: their errors quote what they were called with."""

import logging
import threading
import warnings

from toolcrib import Danger, tool


@tool(danger=Danger.SAFE)
def raise_error(text: str) -> str:
    """Raise an error that no tool should."""
    try:
        raise KeyError(text)
    except KeyError as error:
        error.add_note(text)
        raise RuntimeError(f"{text} is not known") from error


@tool(danger=Danger.SAFE)
async def raise_group(text: str) -> str:
    """Raise several at once."""
    raise ExceptionGroup(text, [ValueError(text), OSError(text)])


@tool(danger=Danger.SAFE)
def raise_elsewhere(text: str) -> str:
    """Raise in a thread that nobody waits for."""

    def fail() -> None:
        raise ValueError(text)

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    return "done"


@tool(danger=Danger.SAFE)
def raise_in_log(text: str) -> str:
    """Log an error through the standard library."""
    try:
        raise ValueError(text)
    except ValueError:
        logging.getLogger("operator").exception("A tool failed.")
    warnings.warn("This is old.", stacklevel=1)
    return "done"

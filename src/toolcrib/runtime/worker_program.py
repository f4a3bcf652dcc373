"""The worker process: reads one call after the other from its input, until the input ends."""

import faulthandler
import marshal
import math
import os
import pickle
import resource
import struct
import traceback
from typing import IO, Any, Final

from toolcrib.core.errors import ToolcribError
from toolcrib.runtime.worker_answers import AnswerNotEncodable, encoded

_LENGTH: Final = struct.Struct("<Q")
MOST_MEMORY: Final = 1 << 30
# The exit status that says so.
OUT_OF_MEMORY: Final = 77
# Nothing but the stack of a crash is written.
_MOST_WRITTEN: Final = 1 << 20
# The server's event loop has priority.
_NICENESS: Final = 5


def main() -> None:
    questions = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # Output that a library prints must not mix with the responses.
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    # The stack of a crash goes to the server's log. It has no contents.
    faulthandler.enable()
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_WRITTEN, _MOST_WRITTEN))
    try:
        while (question := read_message(questions)) is not None:
            write_message(answers, _answer(question))
    except MemoryError:
        # Too large even to be read or sent.
        raise SystemExit(OUT_OF_MEMORY) from None


def read_message(pipe: IO[bytes]) -> bytes | None:
    """Read the next message; None if the other process has ended."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = pipe.read(length)
    return body if len(body) == length else None


def write_message(pipe: IO[bytes], body: bytes) -> None:
    """Write a message: its length, followed by that many bytes."""
    pipe.write(_LENGTH.pack(len(body)))
    pipe.write(body)
    pipe.flush()


def _limit_cpu(seconds: float) -> None:
    """Limit the CPU time from now on. The kernel enforces it, even if the server is gone."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


def _answer(question: bytes) -> bytes:
    """Return the encoded answer, whatever happens: a result, an error of ours, or which failure it was."""
    try:
        seconds, call = marshal.loads(question)  # noqa: S302 - written by the server
        _limit_cpu(seconds)
        return encoded(_outcome(call))
    except AnswerNotEncodable as error:
        return marshal.dumps(("unencodable", str(error)))
    except MemoryError:
        return marshal.dumps(("memory",))


def _outcome(call: bytes) -> tuple[Any, ...]:
    try:
        work, arguments = pickle.loads(call)  # noqa: S301 - written by the server
        return ("done", work(*arguments))
    except ToolcribError as error:
        return ("failed", type(error).__name__, error.message, dict(error.fields))
    except MemoryError:
        return ("memory",)
    except Exception as error:  # noqa: BLE001 - reported to the server
        # Without the message, which may quote what a user wrote.
        return ("bug", "".join(traceback.format_tb(error.__traceback__)) + type(error).__qualname__)


if __name__ == "__main__":
    main()

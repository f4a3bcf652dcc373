"""The worker process: reads one call after the other from its input, until the input ends."""

import marshal
import math
import os
import pickle
import resource
import struct
import traceback
from typing import IO, Any, Final

from toolcrib.core.errors import ToolcribError

_LENGTH: Final = struct.Struct("<Q")
_MOST_MEMORY: Final = 1 << 30
# The server's event loop has priority.
_NICENESS: Final = 5


def main() -> None:
    questions = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # Output that a library prints must not mix with the responses.
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while (question := read_message(questions)) is not None:
        seconds, call = marshal.loads(question)  # noqa: S302 - written by the server
        _limit_cpu(seconds)
        write_message(answers, marshal.dumps(_answer(call)))


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


def _answer(call: bytes) -> tuple[Any, ...]:
    try:
        work, arguments = pickle.loads(call)  # noqa: S301 - written by the server
        result = work(*arguments)
        return ("done", tuple(result) if isinstance(result, tuple) else result)
    except ToolcribError as error:
        return ("failed", type(error).__name__, error.message, error.fields)
    except MemoryError:
        return ("costly",)
    except Exception:  # noqa: BLE001 - reported to the server
        return ("bug", traceback.format_exc())


if __name__ == "__main__":
    main()

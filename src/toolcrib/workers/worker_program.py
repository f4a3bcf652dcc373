"""The worker process: reads one call after the other from its input, until the input ends."""

import marshal
import math
import os
import resource
import struct
import traceback
from importlib import import_module
from typing import Any, BinaryIO, Final

from toolcrib.core.errors import ToolcribError

# A message is its length, followed by that many bytes.
LENGTH: Final = struct.Struct("<Q")
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
    while (question := _next(questions)) is not None:
        name, seconds, arguments = question
        _limit_cpu(seconds)
        body = marshal.dumps(_answer(name, arguments))
        answers.write(LENGTH.pack(len(body)))
        answers.write(body)
        answers.flush()


def _next(questions: BinaryIO) -> Any:
    head = questions.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    body = questions.read(LENGTH.unpack(head)[0])
    return marshal.loads(body)  # noqa: S302 - written by the server


def _limit_cpu(seconds: float) -> None:
    """Limit the CPU time from now on. The kernel enforces it, even if the server is gone."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


def _answer(name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    module, _, function = name.partition(":")
    try:
        return ("done", getattr(import_module(module), function)(*arguments))
    except ToolcribError as error:
        return ("failed", type(error).__name__, error.message, error.fields)
    except MemoryError:
        return ("costly",)
    except Exception:  # noqa: BLE001 - reported to the server
        return ("bug", traceback.format_exc())


if __name__ == "__main__":
    main()

"""How long the steps of an event loop compute: CPU time of its own thread, which a busy machine does not add to."""

import asyncio
import gc
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

# While a step computes, the functions of the program that it is in are noted so often.
_NOTED_SECONDS = 0.005
_PROGRAM = "/src/toolcrib/"
_MOST_NAMED = 8


@dataclass
class LoopSteps:
    """The longest step so far, in CPU seconds, and how often it was seen in which functions of the program."""

    longest: float = 0.0
    where: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return "\n".join(f"  {count} × {place}" for place, count in self.where.most_common(_MOST_NAMED))


@contextmanager
def loop_steps() -> Iterator[LoopSteps]:
    """Measure every step of the running loop: what it executes without a chance for anybody else.

    Collections of garbage are put off, since whatever step comes next has to make them.
    """
    steps, loop_thread = LoopSteps(), threading.get_ident()
    run = asyncio.Handle._run
    is_over, seen = threading.Event(), Counter[str]()
    is_running = False

    def measured(handle: Any) -> None:
        nonlocal is_running, seen
        if threading.get_ident() != loop_thread:
            run(handle)
            return
        seen, is_running, used = Counter(), True, time.thread_time()
        run(handle)
        used, is_running = time.thread_time() - used, False
        if used > steps.longest:
            steps.longest, steps.where = used, seen

    def look() -> None:
        while not is_over.wait(_NOTED_SECONDS):
            if is_running:
                seen.update(_functions(sys._current_frames().get(loop_thread)))

    looking = threading.Thread(target=look, daemon=True)
    asyncio.Handle._run = measured  # type: ignore[method-assign, assignment]
    gc.collect()
    gc.disable()
    looking.start()
    try:
        yield steps
    finally:
        gc.enable()
        asyncio.Handle._run = run  # type: ignore[method-assign]
        is_over.set()
        looking.join()


def _functions(frame: FrameType | None) -> Iterator[str]:
    """Yield the innermost three functions of the program."""
    count = 0
    while frame is not None and count < 3:
        code = frame.f_code
        if _PROGRAM in code.co_filename:
            count += 1
            yield f"{code.co_filename.partition(_PROGRAM)[2]}:{frame.f_lineno} {code.co_qualname}"
        frame = frame.f_back

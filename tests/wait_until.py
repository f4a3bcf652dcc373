"""How long tests wait. The machine may be busy for seconds; no test fails only because of that."""

from collections.abc import Callable, Iterator
from time import process_time

# For an event that must happen. Only a hang reaches this limit, so it costs nothing.
PATIENCE = 120.0
# For work that must be fast: one of these tries is, unless the code is slow.
TRIES = 5


def is_quick(work: Callable[[], object], seconds: float) -> bool:
    """Whether one of a few tries uses less processor time. Slow code is slow in every try."""
    for _ in range(TRIES):
        began = process_time()
        work()
        if process_time() - began < seconds:
            return True
    return False


def growing(seconds: float) -> Iterator[float]:
    """Increasing times, for work that must be interrupted after it has started."""
    while seconds < PATIENCE:
        yield seconds
        seconds *= 4
    yield PATIENCE

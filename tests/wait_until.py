"""How long tests wait. The machine may be busy, or lent to others for seconds: no test fails by that alone."""

from collections.abc import Callable, Iterator
from time import process_time

# For what must come. Only what hangs reaches it, so it costs nothing.
PATIENCE = 120.0
# For what must be quick: of so many tries one is, unless it cannot be.
TRIES = 5


def is_quick(work: Callable[[], object], seconds: float) -> bool:
    """Whether one of a few tries takes less of the processor: what is slow is slow each time."""
    for _ in range(TRIES):
        began = process_time()
        work()
        if process_time() - began < seconds:
            return True
    return False


def growing(seconds: float) -> Iterator[float]:
    """Ever longer times, for what has to be given an end and must have begun by then."""
    while seconds < PATIENCE:
        yield seconds
        seconds *= 4
    yield PATIENCE

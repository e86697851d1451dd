"""What tests of speed share: time of this thread on a core, which a busy machine hardly lengthens."""

import time
from collections.abc import Callable


def least_seconds(*moves: Callable[[], object]) -> float:
    """CPU seconds of the fastest of several like moves."""
    return min(map(_seconds, moves))


def _seconds(move: Callable[[], object]) -> float:
    start = time.thread_time()
    move()
    return time.thread_time() - start

"""The progress bar of the benchmarks, which ends with its time so that what was measured is kept."""

import math
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tqdm import tqdm

from encgraph.systems import Progress


def until(seconds: float = math.inf) -> Progress:
    """Show progress on a terminal alone; begin nothing, but the first, once so many seconds are over.

    Args:
        seconds: From now, so that what comes before the bar counts as well.
    """
    ends_s = time.monotonic() + seconds

    def shown(values: Iterable[Any], about: str) -> Iterator[Any]:
        for value in tqdm(values, desc=about, disable=None):
            yield value
            if time.monotonic() >= ends_s:
                return

    return shown

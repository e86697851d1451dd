"""A progress bar that ends with its time, so that what was measured until then is kept."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def until(seconds: float = math.inf, *, least: int = 1) -> Callable[..., Iterator[Any]]:
    """Show progress in JupyterLab or on a terminal, nothing in a log; begin nothing once time is over.

    Args:
        seconds: From now, so that what comes before the bar counts as well.
        least: So many are begun however long they take.
    """
    from tqdm.auto import tqdm

    ends_s = time.monotonic() + seconds

    def shown(values: Iterable[Any], about: str = "") -> Iterator[Any]:
        for done, value in enumerate(
            tqdm(values, desc=about or None, leave=False, disable=None), 1
        ):
            yield value
            if done >= least and time.monotonic() >= ends_s:
                return

    return shown

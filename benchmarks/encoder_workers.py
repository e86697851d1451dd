"""Run the checks of several families at once on one card, each part in a process of its own.

What is timed waits until they are gone. A process that dies, or does not end in time, leaves the rest of
its families to the caller: their rows are missing. See `encoder_table.py`.
"""

import os
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

SCRIPT = Path(__file__).with_name("encoder_table.py")


def parts(families: Sequence[str], workers: int) -> list[list[str]]:
    """Families by turns, so that each process gets cheap and dear ones; no part is empty.

    >>> parts(["bert", "clip", "siglip"], 2)
    [['bert', 'siglip'], ['clip']]
    """
    return [list(families[n::workers]) for n in range(min(workers, len(families)))]


def check(given: Namespace, families: Sequence[str], *, seconds: float, grace_s: float) -> None:
    """Run the checks of these families, and come back when every process has ended.

    Args:
        given: The caller's command line.
        families: Without rows of checks.
        seconds: After which they begin nothing more.
        grace_s: How much later they are ended.
    """
    shared = parts(families, given.workers)
    ends_s = time.monotonic() + seconds + grace_s
    threads = max(1, (os.cpu_count() or 1) // max(1, len(shared)))
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    started = [
        subprocess.Popen([sys.executable, SCRIPT, *words(given, part, seconds)], env=environment)
        for part in shared
    ]
    try:
        for process in started:
            process.wait(max(0.0, ends_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        print("checks take too long; what is left of them comes last", flush=True)
    finally:
        for process in started:
            process.kill()
            process.wait()


def words(given: Namespace, families: Sequence[str], seconds: float) -> list[str]:
    """The command line of one process."""
    return [
        *(["--tiny"] if given.tiny else []),
        *("--out", str(given.out), "--only", ",".join(families), "--stages", "checks"),
        *("--time-limit-s", f"{given.time_limit_s:g}", "--seconds", f"{seconds:g}"),
    ]

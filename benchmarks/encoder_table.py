"""Prove and time one real size of every family on this card, a family at a time, into one table.

    python benchmarks/encoder_table.py --out data/measurements

Appends to OUT/<card>/encoders.jsonl, for each family: a line of all checks of `encgraph check` with their
error figures, and lines of speed at 1, 8 and 32 typical items, replayed from graphs that fit exactly and
by the eager forwards, interleaved. What a check found wrong goes to encoders.txt beside it. Rows that are
there for these versions of torch, transformers and encgraph are skipped, so an interrupted run goes on
where it stopped; a family that fails, or takes too long, is a row too. A failure that leaves the card
unusable to the process, or a call that does not come back, starts the script again. `--list-missing`
runs nothing.

Cheapest families come first, and `--seconds` ends the whole: the stage that it cuts short leaves no row
and is done by the next run. `--workers 4` runs the checks in four processes first, then times alone; what
those processes leave comes last. No network is used; HF_HUB_OFFLINE=1 makes sure.

On a machine without a card: --tiny --out DIR.
"""

import argparse
import gc
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import encoder_workers
import torch
from encoder_rows import CHOICES, STAGES, Table
from encoder_speeds import speeds

from encgraph import meters
from encgraph.checks import suite
from encgraph.checks.checked import Checked
from encgraph.results import Measurement

GRACE_S = 15.0
"""How long after its limit a stage may take to come back before the script starts again."""
LEAST_S = 5.0
"""No stage is begun with less than this left."""
Rows = tuple[list[Measurement], list[str]]
"""Rows, and what was found wrong."""


class OutOfTime(BaseException):
    """A family took longer than it may; no `except Exception` on the way swallows it."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Interrupt what runs inside after so many seconds; what else that breaks is out of time too."""
    late = OutOfTime(f"took longer than the {seconds:g} s it may")
    interrupted: list[bool] = []

    def stop(number: int, frame: object) -> None:
        interrupted.append(True)
        raise late

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except Exception as error:
        if interrupted:
            raise late from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def checks_row(table: Table, name: str, attention: str, found: Sequence[Checked]) -> Measurement:
    """All checks in one row: how many passed, which, and every figure.

    One that left right answers unproven is among those that failed.
    """
    numbers = {f"{one.name}_{figure}": v for one in found for figure, v in one.figures.items()}
    unproven = suite.unproven(found)
    judged = {o.name: o.passed is True for o in found if o.passed is not None or o.name in unproven}
    numbers |= {f"passed_{one}_count": float(passed) for one, passed in judged.items()}
    numbers["passed_count"] = float(sum(judged.values()))
    numbers["failed_count"] = float(len(judged) - sum(judged.values()))
    numbers["not_run_count"] = float(len(suite.CHECK_NAMES) - len(judged))
    return table.row(name, "checks", attention=attention, numbers=numbers)


def check(table: Table, family: str) -> Rows:
    """Run every check; what was found before time ran out is kept."""
    name, attention, stopped = table.choice(family).size, "auto", ""
    found: list[Checked] = []
    try:
        with limited(table.given.time_limit_s):
            subject = table.subject(family)
            attention = subject.encoder.spec.attention
            found.extend(suite.run(subject))
    except (Exception, OutOfTime) as error:
        stopped = why(error)
    problems = [f"{name} {o.name}: {said}" for o in found if o.passed is False for said in o.detail]
    problems += [f"{name} {one}: {said}" for one, said in suite.unproven(found).items()]
    row = checks_row(table, name, attention, found)
    if stopped:
        numbers = {**row.numbers, "failed_count": row.numbers["failed_count"] + 1}
        row, problems = replace(row, numbers=numbers), [*problems, f"{name} checks: {stopped}"]
    return [row], problems


def time_it(table: Table, family: str) -> Rows:
    """Time a family; a failure is a row without a latency, after those made before it."""
    name, rows = table.choice(family).size, []
    try:
        with limited(table.given.time_limit_s):
            rows.extend(speeds(table, family))
    except (Exception, OutOfTime) as error:
        return [*rows, failed(table, family, "speed")], [f"{name} speed: {why(error)}"]
    return rows, []


def failed(table: Table, family: str, stage: str) -> Measurement:
    """A row that says that a stage did not come to its end."""
    strategy = "checks" if stage == "checks" else "encgraph"
    return table.row(table.choice(family).size, strategy, numbers={"failed_count": 1.0})


def why(error: BaseException) -> str:
    """The error and the line it came from."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    said = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {said} at {Path(last.filename).name}:{last.lineno}"


def is_usable(device: torch.device) -> bool:
    """Give memory back; False if the process cannot use its device, as after an assert on a card."""
    gc.collect()
    try:
        if device.type == "cuda":
            torch.cuda.empty_cache()
        torch.zeros(1, device=device).item()
    except RuntimeError:
        return False
    return True


@contextmanager
def coming_back(seconds: float, otherwise: Callable[[], None]) -> Iterator[None]:
    """Do otherwise, from another thread, if what runs inside never comes back from a call."""
    watch = threading.Timer(seconds, otherwise)
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def main(arguments: Sequence[str] | None = None) -> None:
    """Fill the table from the command line."""
    given = parsed(arguments)
    ends_s = time.monotonic() + given.seconds
    table = Table(given=given, environment=meters.environment(given.dtype, given.device))
    missing = table.missing()
    if given.list_missing:
        print("\n".join(f"{family} {stage}" for family, stage in missing) or "nothing is missing")
        return
    if given.workers > 1:
        unchecked = [family for family, stage in missing if stage == "checks"]
        half_s = (ends_s - time.monotonic()) / 2
        encoder_workers.check(given, unchecked, seconds=half_s, grace_s=GRACE_S)
        missing = sorted(table.missing(), key=lambda one: one[1] == "checks")
    for done, (family, stage) in enumerate(missing):
        left_s = ends_s - time.monotonic()
        if left_s < LEAST_S:
            print(f"out of time: {len(missing) - done} stages are left for the next run")
            return
        limit_s = min(given.time_limit_s, left_s)
        one = replace(table, given=argparse.Namespace(**vars(given) | {"time_limit_s": limit_s}))
        print(
            f"{family:18} {stage:7} {done + 1} of {len(missing)}, {left_s:.0f} s left", flush=True
        )
        filled(one, family, stage, cut_short=limit_s < given.time_limit_s, ends_s=ends_s)
        if not is_usable(torch.device(given.device)):
            again(ends_s)


def filled(table: Table, family: str, stage: str, *, cut_short: bool, ends_s: float) -> None:
    """Run one stage, append its rows and say what came of it."""
    limit_s, began_s = table.given.time_limit_s, time.monotonic()

    def stuck() -> None:
        table.append([failed(table, family, stage)], [f"{family} {stage}: never came back"])
        again(ends_s)

    with coming_back(limit_s + GRACE_S, stuck):
        rows, problems = (check if stage == "checks" else time_it)(table, family)
    took_s = time.monotonic() - began_s
    if cut_short and took_s >= limit_s:
        print(f"    cut short after {took_s:.0f} s; left for the next run", flush=True)
    else:
        table.append(rows, problems)
        said = f"{family} {stage}: {summary(rows)} in {took_s:.0f} s"
        print(f"    {said}", *problems[:3], sep="\n    ", flush=True)


def again(ends_s: float) -> None:
    """Start the script again in a fresh process, with what is left of its time."""
    left_s = max(0.0, ends_s - time.monotonic())
    os.execv(sys.executable, [sys.executable, *sys.argv, "--seconds", f"{left_s:g}"])


def summary(rows: Sequence[Measurement]) -> str:
    """One line of a stage."""
    first = rows[0].numbers
    if "passed_count" in first:
        return f"{first['passed_count']:.0f} passed, {first['failed_count']:.0f} failed"
    ours = [row.numbers for row in rows if "speedup_ratio" in row.numbers]
    said = (f"{n['items_count']:.0f} items {n['speedup_ratio']:.2f}x" for n in ours)
    return ", ".join(said) or "failed"


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line; `--tiny` fills in what fits a machine without a card."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path("data/measurements"))
    add("--only", default="", help=f"families, comma between them, of {', '.join(CHOICES)}")
    add("--stages", default=",".join(STAGES), help="one of them alone, or both")
    add("--workers", type=int, default=1, help="processes that check at once, before any is timed")
    add("--list-missing", action="store_true")
    add("--tiny", action="store_true", help="tiny sizes in float32 on the CPU")
    add("--samples", type=int, default=15)
    add("--time-limit-s", type=float, default=60.0, help="of each of the two stages of a family")
    add("--seconds", type=float, default=math.inf, help="after which no more is measured")
    given = parser.parse_args(arguments)
    unknown = [f for f in given.only.split(",") if f and f not in CHOICES]
    if unknown:
        parser.error(f"--only takes families of {', '.join(CHOICES)}, got {', '.join(unknown)}")
    if not set(given.stages.split(",")) <= set(STAGES):
        parser.error(f"--stages takes {' and '.join(STAGES)}, got {given.stages!r}")
    given.device, given.backend, given.dtype = (
        ("cpu", "reference", "float32") if given.tiny else ("cuda", "cuda", "bfloat16")
    )
    return given


if __name__ == "__main__":
    main()

"""Measure one encoder over several cards against one: every strategy, balance rule and gather.

    torchrun --nproc-per-node 2 benchmarks/data_parallel.py TRAFFIC... --out DIR

TRAFFIC is any source of `encgraph traffic`, or `images:WIDTHxHEIGHTxCOUNT` for requests of equal images.
Items are regrouped into bursts (--bursts 1,4,16,64), or requests stay as they are (--bursts requests). All
systems run each burst before the next, in turning order; the slowest rank's wall time counts, and a
burst's time is the median of its repeats. "NAME/1" is one card with nothing to gather, the other
ranks idle. `--smallest 512 --largest 4864 --items 8` gives every strategy with graphs that same ladder.

Bursts are taken in a shuffled order, the same on every rank, so that those measured speak for all.
`--seconds` is shared out evenly over what is left to measure, source by source and size by size: a size
that is done early leaves its time to the next, and each gets one burst at least, however long it takes.
Making and capturing the systems comes before it, and a proof of each on a few bursts.

Rank 0 writes `NAME.jsonl` and prints it, after each burst size: a line a system with its latency, the time
of the slowest rank's encoder alone, idle ranks, bytes gathered, and what the simulator predicts where that
way of running is on record. All rules and gathers multiply the run time; compare them with one strategy and
a --name of their own. On a machine without cards, `--device cpu --backend reference --encoder qwen3-vl-tiny
--dtype float32` tries the script.
"""

import argparse
import math
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import torch
from sharded_report import said
from sharded_systems import CARD, Bench, Burst, System, line, pixels, prove, run_burst, systems_of
from tqdm import tqdm

from encgraph import balance, sharding, sizes, store, strategies, systems, traffic
from encgraph.parallel import gathering, ranks
from encgraph.results import Measurement
from encgraph.systems import Setting


class Series(NamedTuple):
    """Bursts of one source and size."""

    name: str
    bursts: Sequence[Burst]


def requests_of(source: str, bench: Bench) -> tuple[str, Sequence[Burst]]:
    """Name and requests of a source."""
    size, count = bench.setting.size, bench.given.count
    if source.startswith("images:"):
        width, height, images = map(int, source.removeprefix("images:").split("x"))
        grid = sizes.image_grid(width, height, size.rule)
        one = sizes.item(grid, size.rule, width=width, height=height)
        return f"images-{width}x{height}x{images}", ((one,) * images,) * (count or 20)
    read = traffic.read(source, size, count=count)
    return read.name, read.requests


def all_series(bench: Bench) -> list[Series]:
    """What there is to measure, source by source and size by size."""
    found = []
    for source in bench.given.traffic:
        name, requests = requests_of(source, bench)
        for asked in bench.given.bursts.split(","):
            whole = asked == "requests"
            bursts = requests if whole else sharding.bursts_of(requests, int(asked))
            label = name if whole else f"{name}-bursts-of-{asked}"
            if bursts:
                found.append(Series(label, capped(bursts, bench.given)))
    return found


def capped(bursts: Sequence[Burst], given: argparse.Namespace) -> Sequence[Burst]:
    """Shuffled bursts, as many as both limits allow, at least one."""
    shuffled = random.Random(0).sample(bursts, len(bursts))
    items = list(accumulate(len(burst) for burst in shuffled))
    within = sum(total <= given.max_items for total in items)
    return shuffled[: max(1, min(given.max_bursts, within))]


def measured(
    bench: Bench, made: Sequence[System], series: Sequence[Series]
) -> Iterator[list[Measurement]]:
    """Lines of each series, on the first rank; none on others, which measure with it."""
    ends_s = time.monotonic() + bench.given.seconds
    for left, one in zip(range(len(series), 0, -1), series, strict=True):
        share_s = (ends_s - time.monotonic()) / left
        count = timed(bench, made, one, share_s)
        done = one.bursts[:count] if bench.joined.rank == 0 else ()
        yield [line(bench, system, done, one.name) for system in made if done]


def timed(bench: Bench, made: Sequence[System], one: Series, seconds: float) -> int:
    """Time bursts until the first rank's clock leaves no time for one more like the last, at least one.

    Returns:
        How many; the same on every rank.
    """
    ends_s = time.monotonic() + seconds
    for system in made:
        system.forget()
    disable = True if bench.joined.rank else None  # on a terminal, of the first rank alone
    for index in tqdm(range(len(one.bursts)), desc=one.name, disable=disable):
        began_s = time.monotonic()
        batch = pixels(one.bursts[index], bench, index, where=bench.given.pixels)
        run_burst(bench, made, batch, index)
        now_s = time.monotonic()
        if bench.of_ranks(ends_s - now_s - (now_s - began_s))[0] <= 0:
            return index + 1
    return len(one.bursts)


def main() -> None:
    """Run the comparison from the command line, on every rank."""
    given = arguments()
    with (
        ranks.connect(given.device, time_limit_s=given.time_limit_s) as joined,
        ExitStack() as stack,
    ):
        bench = Bench(joined=joined, setting=setting_of(given, joined.device), given=given)
        series = all_series(bench)
        bench.say(
            f"{joined.size} ranks; {sum(len(one.bursts) for one in series)} bursts to measure"
        )
        names = given.strategies.split(",")
        made = [system for name in names for system in systems_of(bench, name, stack)]
        prove(bench, made, [one.bursts[0] for one in series])
        lines: list[Measurement] = []
        for new in measured(bench, made, series):
            lines += new
            if joined.rank == 0:
                store.write(given.out / f"{given.name}.jsonl", lines)
                bench.say("\n".join(["measured", *map(said, new)]))


def setting_of(given: argparse.Namespace, device: torch.device) -> Setting:
    """What the systems share; requests to fit on are read only where a ladder is to be fitted."""
    size = sizes.named(given.encoder)
    priced = systems.prices(size, on=CARD, attention=given.attention)
    fits = given.smallest is None
    return Setting(
        size=size,
        device=device,
        dtype=getattr(torch, given.dtype),
        backend=given.backend,
        costs=priced(strategies.ENCGRAPH_PLAIN),
        priced=priced,
        fit_on=traffic.read(given.fit_on, size, count=given.fit_count, seed=1).requests
        if fits
        else (),
        largest=given.largest,
        attention=given.attention,
    )


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("traffic", nargs="+")
    add("--encoder", default="qwen3-vl-8b")
    add("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    add("--device", default="cuda", choices=ranks.DEVICES)
    add("--backend", default="cuda", choices=("cuda", "reference"))
    add("--attention", default="auto")
    add("--strategies", default="eager_varlen,eager_compiled,vllm,encgraph")
    add("--rules", default="longest_first", help=f"of {', '.join(balance.RULES)}")
    add("--gathers", default="padded", help=f"of {', '.join(gathering.GATHERS)}")
    add("--ownership", default="clone_each", choices=("clone_each", "one_copy"))
    add("--bursts", default="1,4,16,64", help="items a burst, and `requests` for whole requests")
    add("--pixels", default="device", choices=("device", "host", "pinned"))
    add("--fit-on", default="builtin:servegen")
    add("--fit-count", type=int, default=4000)
    add("--smallest", type=int, help="first budget of a doubling ladder for every strategy")
    add("--largest", type=int, default=8192)
    add("--items", type=int, default=8, help="items a graph of that ladder")
    add("--count", type=int, help="requests of each source")
    add("--max-bursts", type=int, default=100, help="of each burst size")
    add("--max-items", type=int, default=1280, help="of each burst size")
    add("--repeats", type=int, default=3)
    add("--seconds", type=float, default=math.inf, help="of measuring, all burst sizes together")
    add("--time-limit-s", type=float, default=300.0)
    add("--name", default="data_parallel", help="experiment, and the file's name")
    add("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()

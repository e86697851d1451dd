"""Measure one encoder over several cards against one: every strategy, balance rule and gather.

    torchrun --nproc-per-node 2 benchmarks/data_parallel.py TRAFFIC... --out DIR

TRAFFIC is any source of `encgraph traffic`, or `images:WIDTHxHEIGHTxCOUNT` for requests of equal images.
Items are regrouped into bursts (--bursts 1,4,16,64), or requests stay as they are (--bursts requests). All
systems run each burst before the next, in turning order; the slowest rank's wall time counts, and a
burst's time is the median of its repeats. "NAME/1" is one card with nothing to gather, the other
ranks idle. `--smallest 512 --largest 4864 --items 8` gives every strategy with graphs that same ladder.

Rank 0 writes `NAME.jsonl`: a line a system and burst size with its latency, the time of the slowest
rank's encoder alone, idle ranks, bytes gathered, and what the simulator predicts. All rules and gathers
multiply the run time; compare them with one strategy and a --name of their own. On a machine without
cards, `--device cpu --backend reference --encoder qwen3-vl-tiny --dtype float32` tries the script.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path

import torch
from sharded_systems import Bench, Burst, System, line, pixels, run_burst, systems_of
from tqdm import tqdm

from encgraph import balance, sharding, sizes, store, strategies, systems, traffic
from encgraph.parallel import gathering, ranks
from encgraph.results import Measurement
from encgraph.systems import Setting


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


def capped(bursts: Sequence[Burst], given: argparse.Namespace) -> Sequence[Burst]:
    """The first bursts, as many as both limits allow, at least one."""
    items = list(accumulate(len(burst) for burst in bursts))
    within = sum(total <= given.max_items for total in items)
    return bursts[: max(1, min(given.max_bursts, within))]


def measured(bench: Bench, made: Sequence[System], source: str) -> Iterator[Measurement]:
    """Lines of one source, burst size by burst size."""
    name, requests = requests_of(source, bench)
    for asked in bench.given.bursts.split(","):
        bursts = requests if asked == "requests" else sharding.bursts_of(requests, int(asked))
        bursts = capped(bursts, bench.given)
        if not bursts:
            continue
        for system in made:
            system.medians_ms, system.encode_ms, system.idle_ratios = [], [], []
        disable = True if bench.joined.rank else None  # on a terminal, of the first rank alone
        for index in tqdm(range(len(bursts)), desc=f"{name} {asked}", disable=disable):
            run_burst(bench, made, pixels(bursts[index], bench, index), index)
        label = name if asked == "requests" else f"{name}-bursts-of-{asked}"
        yield from (line(bench, system, bursts, label) for system in made)


def main() -> None:
    """Run the comparison from the command line, on every rank."""
    given = arguments()
    size, dtype = sizes.named(given.encoder), getattr(torch, given.dtype)
    priced = systems.prices(size, on="h200", attention=given.attention)
    with (
        ranks.connect(given.device, time_limit_s=given.time_limit_s) as joined,
        ExitStack() as stack,
    ):
        setting = Setting(
            size=size,
            device=joined.device,
            dtype=dtype,
            backend=given.backend,
            costs=priced(strategies.ENCGRAPH_PLAIN),
            priced=priced,
            fit_on=traffic.read(given.fit_on, size, count=given.fit_count, seed=1).requests,
            largest=given.largest,
            attention=given.attention,
        )
        bench = Bench(joined=joined, setting=setting, given=given)
        names = given.strategies.split(",")
        made = [system for name in names for system in systems_of(bench, name, stack)]
        lines: list[Measurement] = []
        for source in given.traffic:
            lines += measured(bench, made, source)
            if joined.rank == 0:
                store.write(given.out / f"{given.name}.jsonl", lines)
        if joined.rank == 0:
            show(lines)


def show(lines: Sequence[Measurement]) -> None:
    """A line a system and burst size."""
    for one in lines:
        latency, numbers = one.latency, one.numbers
        assert latency is not None
        print(
            f"{one.traffic:28} {one.strategy:40} mean {latency.mean_ms:8.2f} ms  "
            f"p99 {latency.p99_ms:8.2f} ms  encoder {numbers['encode_mean_ms']:8.2f} ms "
            f"(predicted {numbers['predicted_encode_mean_ms']:8.2f})  "
            f"idle {numbers['idle_ratio']:.2f} (predicted {numbers['predicted_idle_ratio']:.2f})"
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
    add("--strategies", default="eager_varlen,vllm,encgraph")
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
    add("--time-limit-s", type=float, default=300.0)
    add("--name", default="data_parallel", help="experiment, and the file's name")
    add("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()

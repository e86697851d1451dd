"""Measure the time to first token with all the switches that `encgraph bench --first-token` leaves alone.

    python benchmarks/time_to_first_token.py builtin:servegen --model qwen3-vl-2b --out data

Text and answer of any length, content hashing timed or not, and budgets of any strategy's plan. Writes one
file under OUT/measurements/<card>/, anew after each batch; with --seconds no batch is begun after those.
On a machine without a card: --cpu --model qwen3-vl-tiny --requests 16 --concurrency 1 4.
"""

import argparse
from collections.abc import Sequence
from math import inf
from pathlib import Path

import torch

from encgraph import cards, first_token, handles, sizes, store, strategies, systems, traffic
from encgraph.bars import until
from encgraph.loads import Workload
from encgraph.model_runner import text_sizes
from encgraph.results import Measurement
from encgraph.systems import Setting
from encgraph.ways import Graphed


def setting_of(given: argparse.Namespace) -> Setting:
    """Where it runs, and what budgets are fitted on: requests other than those measured."""
    size = sizes.named(given.model)
    priced = sizes.named("qwen3-vl-8b") if given.cpu else size
    return Setting(
        size=size,
        device=torch.device("cpu" if given.cpu else "cuda"),
        dtype=torch.float32 if given.cpu else torch.bfloat16,
        backend="reference" if given.cpu else "cuda",
        costs=cards.price(priced),
        priced=systems.prices(priced, on="h200"),
        fit_on=traffic.read(given.traffic, size, count=given.fit_count, seed=1).requests,
        largest=given.largest,
    )


def load_of(given: argparse.Namespace) -> Workload:
    """What a request is besides its items."""
    return Workload(
        concurrency=tuple(given.concurrency),
        text_tokens=given.text,
        new_tokens=given.new_tokens,
        max_tokens=given.length,
        repeats=given.repeats,
        samples=given.samples,
        is_hashed=given.hash,
        cache_bytes=given.cache_bytes,
    )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traffic")
    parser.add_argument("--model", default="qwen3-vl-2b", choices=sorted(text_sizes.TEXT_SIZES))
    parser.add_argument("--strategy", default="encgraph", help="whose plan, packing and body")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--fit-count", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--samples", type=int, default=20, help="of the jitter")
    parser.add_argument("--seconds", type=float, default=inf, help="begin no batch after")
    parser.add_argument("--text", type=int, default=128, help="text tokens a prompt")
    parser.add_argument("--new-tokens", type=int, default=4)
    parser.add_argument("--length", type=int, default=8192, help="tokens a request at most")
    parser.add_argument("--largest", type=int, default=4096, help="tokens of the largest budget")
    parser.add_argument("--cache-bytes", type=int, default=4 << 30)
    parser.add_argument("--hash", action="store_true", help="time content hashing as well")
    parser.add_argument("--cpu", action="store_true", help="try it out, on the reference backend")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    """Run it from the command line."""
    given = arguments()
    progress = until(given.seconds)
    setting = setting_of(given)
    [strategy] = strategies.chosen(given.strategy)

    def file(lines: Sequence[Measurement]) -> Path:
        return store.path(lines[0].environment.gpu, lines[0].experiment, root=given.out)

    def keep(lines: Sequence[Measurement]) -> None:
        if first_token.summaries(lines):
            store.write(file(lines), lines)

    lines = first_token.run(
        traffic.read(given.traffic, setting.size, count=given.requests),
        setting,
        graphed=Graphed(plan=systems.plan(strategy, setting), strategy=strategy),
        load=load_of(given),
        progress=progress,
        keep=keep,
    )
    print(handles.first_tokens(lines))
    print(file(lines))


if __name__ == "__main__":
    main()

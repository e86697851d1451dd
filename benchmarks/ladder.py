"""Climb the ablation ladder on a card: vLLM's graphs, then one idea a rung, twice over.

    python benchmarks/ladder.py servegen.json --out data/measurements/h200

Budgets are fitted on requests other than those measured. The second run goes to a file of its own, so
that the spread between runs can be told from the steps between rungs. Further strategies can be timed
in the same runs with `--strategies ladder,eager_varlen,eager_compiled`. Interrupted, by SIGTERM too, it
keeps the requests timed until then.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import torch

from encgraph import bench, cards, readings, sizes, store, strategies, systems, traffic
from encgraph.bars import until
from encgraph.results import Interrupted, Measurement
from encgraph.systems import Setting


def setting_of(
    encoder: str, *, device: torch.device, fit_on: str, fit_count: int, largest: int
) -> Setting:
    """What the rungs share; each is planned by the recorded costs of its own attention."""
    size, on_card = sizes.named(encoder), device.type == "cuda"
    priced = sizes.named(encoder if on_card else "qwen3-vl-8b")
    return Setting(
        size=size,
        device=device,
        dtype=torch.bfloat16 if on_card else torch.float32,
        backend="cuda" if on_card else "reference",
        costs=cards.price(priced),
        priced=systems.prices(priced, on="h200"),
        fit_on=traffic.read(fit_on, size, count=fit_count, seed=1).requests,
        largest=largest,
    )


def table(lines: Sequence[Measurement]) -> str:
    """A row a strategy: times, what the rung gained over the one before, floors, memory, jitter."""
    rows, last = [], None
    for name, line in readings.summaries(lines).items():
        assert line.latency is not None
        mean, numbers = line.latency.mean_ms, line.numbers
        gain = f"{last / mean:6.2f}x" if last else "       "
        exact = _over(numbers.get("exact_sample_ms"), numbers.get("exact_floor_ms"))
        arithmetic = _over(mean, numbers.get("arithmetic_floor_ms"))
        held = line.memory.total_bytes / 2**20 if line.memory else 0.0
        rows.append(
            f"{name:24} {mean:8.2f} ms {gain}  {line.latency.tail_name} {line.latency.p99_ms:8.2f}  "
            f"worst {line.latency.worst_ms:8.2f}  over exact {exact}  "
            f"over arithmetic {arithmetic}  {held:6.0f} MiB  "
            f"host {numbers.get('before_launch_us', 0):5.0f} us"
        )
        last = mean
    return "\n".join(rows)


def _over(ms: float | None, floor_ms: float | None) -> str:
    """How many times a floor; a strategy without graphs has no exact one, a CPU no arithmetic one."""
    return f"{ms / floor_ms:5.3f}" if ms and floor_ms else "    -"


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traffic")
    parser.add_argument("--encoder", default="qwen3-vl-8b")
    parser.add_argument("--strategies", default="ladder")
    parser.add_argument("--fit-on", default="builtin:servegen")
    parser.add_argument("--fit-count", type=int, default=4000)
    parser.add_argument("--largest", type=int, default=8192)
    parser.add_argument("--count", type=int)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=inf, help="of a run; begin nothing after")
    parser.add_argument("--cpu", action="store_true", help="try it out, on the reference backend")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    setting = setting_of(
        given.encoder,
        device=torch.device("cpu" if given.cpu else "cuda"),
        fit_on=given.fit_on,
        fit_count=given.fit_count,
        largest=given.largest,
    )
    measured = traffic.read(given.traffic, setting.size, count=given.count, seed=2)
    for run in range(given.runs):
        name = f"ladder-{measured.name}" + (f"-{run + 1}" if run else "")
        try:
            lines = bench.run(
                replace(measured, name=name),
                strategies.chosen(given.strategies),
                setting,
                repeats=given.repeats,
                progress=until(given.seconds),
            )
        except Interrupted as stopped:
            kept(stopped.measured, given.out)
            sys.exit("interrupted")
        kept([replace(line, traffic=measured.name) for line in lines], given.out)


def kept(lines: Sequence[Measurement], out: Path) -> None:
    """Write a run, and show it."""
    store.write(out / f"{lines[0].experiment}.jsonl", lines)
    print(table(lines))


if __name__ == "__main__":
    main()

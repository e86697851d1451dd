"""Tell what `data_parallel` measured, and how near the simulator came, from its file.

    python benchmarks/sharded_report.py data/measurements/h200/data_parallel_336.jsonl

prints a table of Markdown a traffic. "over predicted" is the slowest rank's encoder alone, mean over bursts,
over what the simulator said of it; there is none where no costs of that way of running are on record.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from encgraph import store
from encgraph.results import Latency, Measurement

HEAD = ("strategy", "cards", "mean ms", "P50", "P90", "P99", "encoder alone", "idle")
PREDICTED = ("over predicted", "predicted idle")
"""Columns of their own, where any line has a prediction."""
NONE = "none"


def over_predicted(one: Measurement) -> str:
    """Encoder time measured over predicted."""
    predicted = one.numbers.get("predicted_encode_mean_ms")
    return f"{one.numbers['encode_mean_ms'] / predicted:.2f}" if predicted else NONE


def predicted_idle(one: Measurement) -> str:
    """Share of the ranks' time predicted to be spent waiting."""
    predicted = one.numbers.get("predicted_idle_ratio")
    return NONE if predicted is None else f"{predicted:.2f}"


def said(one: Measurement) -> str:
    """A line of text about one system and burst size."""
    latency = _latency(one)
    return (
        f"{one.traffic:28} {one.strategy:40} {latency.samples:3} bursts  mean {latency.mean_ms:8.2f} ms  "
        f"p50 {latency.p50_ms:8.2f}  p90 {latency.p90_ms:8.2f}  p99 {latency.p99_ms:8.2f}  "
        f"encoder {one.numbers['encode_mean_ms']:8.2f} (over predicted {over_predicted(one)})  "
        f"idle {one.numbers['idle_ratio']:.2f} (predicted {predicted_idle(one)})"
    )


def cells(one: Measurement) -> list[str]:
    """The same as cells of a table."""
    latency, numbers = _latency(one), one.numbers
    strategy, _, cards = one.strategy.partition("/")
    times = (latency.mean_ms, latency.p50_ms, latency.p90_ms, latency.p99_ms)
    return [
        f"`{strategy}`",
        cards.replace("/", ", "),
        *(f"{ms:.1f}" for ms in (*times, numbers["encode_mean_ms"])),
        f"{numbers['idle_ratio']:.2f}",
        over_predicted(one),
        predicted_idle(one),
    ]


def table(lines: Sequence[Measurement]) -> str:
    """All systems of one traffic."""
    predicted = any("predicted_encode_mean_ms" in one.numbers for one in lines)
    head = HEAD + PREDICTED if predicted else HEAD
    rows = [head, ["---"] * len(head), *(cells(one)[: len(head)] for one in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _latency(one: Measurement) -> Latency:
    assert one.latency is not None
    return one.latency


def main() -> None:
    """Print the tables of the files named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    for file in parser.parse_args().files:
        lines = store.read(file)
        for name in dict.fromkeys(one.traffic for one in lines):
            print(f"{name}\n\n{table([one for one in lines if one.traffic == name])}\n")


if __name__ == "__main__":
    main()

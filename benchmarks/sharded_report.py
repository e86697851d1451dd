"""Tell what `data_parallel` measured, and how near the simulator came, from its file.

    python benchmarks/sharded_report.py data/measurements/h200/data_parallel.jsonl

prints a table of Markdown: one card beside several where each strategy has one balance rule and gather,
else rules and gathers by burst size. "Encoder alone" is the slowest rank's, mean over bursts; "over
predicted" is the same over what the simulator said of it, on one card and on several, and in brackets are
the idle ranks that it said. There is none where no costs of that way of running are on record.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from encgraph import store
from encgraph.results import Latency, Measurement

BESIDE = ("items", "strategy", "one card", "P99", "several", "P99", "gain", "encoder alone", "idle")
PREDICTED = "over predicted"
"""A column of its own, where any line has a prediction."""
RULE_CELL = "mean, P99, encoder alone, idle"
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
        f"p50 {latency.p50_ms:8.2f}  p90 {latency.p90_ms:8.2f}  {latency.tail_name} {latency.p99_ms:8.2f}  "
        f"encoder {one.numbers['encode_mean_ms']:8.2f} (over predicted {over_predicted(one)})  "
        f"idle {one.numbers['idle_ratio']:.2f} (predicted {predicted_idle(one)})"
    )


def beside(lines: Sequence[Measurement]) -> str:
    """A row a burst size and strategy: one card, several, and how many times as fast these are."""
    predicted = _are_predicted(lines)
    head = [*BESIDE, PREDICTED] if predicted else list(BESIDE)
    return _markdown(head, [_beside_row(*pair)[: len(head)] for pair in pairs(lines)])


def _beside_row(one: Measurement, several: Measurement) -> list[str]:
    alone, shared, numbers = _latency(one), _latency(several), several.numbers
    times = (alone.mean_ms, alone.p99_ms, shared.mean_ms, shared.p99_ms)
    said_idle = f" ({predicted_idle(several)})" if _are_predicted([several]) else ""
    return [
        _items(several),
        f"`{_name(several)}`",
        *(f"{ms:.1f}" for ms in times),
        f"{alone.mean_ms / shared.mean_ms:.2f}",
        f"{numbers['encode_mean_ms']:.1f}",
        f"{numbers['idle_ratio']:.2f}{said_idle}",
        f"{over_predicted(one)}, {over_predicted(several)}",
    ]


def rules(lines: Sequence[Measurement]) -> str:
    """A row a balance rule and gather, a column a burst size."""
    cells = [(_shared_by(one), one, _rule_cell(one)) for one in sorted(lines, key=_order)]
    return _by_items(RULE_CELL, cells)


def pairs(lines: Sequence[Measurement]) -> list[tuple[Measurement, Measurement]]:
    """Each strategy on one card and on several, by burst size."""
    alone = {(one.traffic, _name(one)): one for one in lines if not _shares(one)}
    several = sorted(filter(_shares, lines), key=_order)
    return [(alone[one.traffic, _name(one)], one) for one in several]


def table(lines: Sequence[Measurement]) -> str:
    """All that a file tells."""
    ways = {one.strategy for one in lines if _shares(one)}
    names = {_name(one) for one in lines}
    return rules(lines) if len(ways) > len(names) else beside(lines)


def _by_items(corner: str, cells: Sequence[tuple[str, Measurement, str]]) -> str:
    """A column a burst size, of what a row is called, a line of that size, and the cell's text."""
    found = {(name, _items(one)): text for name, one, text in cells}
    sizes = list(dict.fromkeys(size for _, size in found))
    rows = [
        [name, *(found[name, size] for size in sizes)]
        for name in dict.fromkeys(name for name, _ in found)
    ]
    return _markdown([corner, *sizes], rows)


def _rule_cell(one: Measurement) -> str:
    latency, numbers = _latency(one), one.numbers
    times = (latency.mean_ms, latency.p99_ms, numbers["encode_mean_ms"])
    return ", ".join([*(f"{ms:.1f}" for ms in times), f"{numbers['idle_ratio']:.2f}"])


def _shared_by(one: Measurement) -> str:
    """Its strategy, balance rule and gather."""
    return ", ".join([f"`{_name(one)}`", *(one.strategy.split("/")[2:] or ["one card"])])


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    every = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in every)


def _are_predicted(lines: Sequence[Measurement]) -> bool:
    return any("predicted_encode_mean_ms" in one.numbers for one in lines)


def _name(one: Measurement) -> str:
    return one.strategy.partition("/")[0]


def _shares(one: Measurement) -> bool:
    return one.strategy.count("/") > 1


def _items(one: Measurement) -> str:
    return f"{one.numbers['burst_items_count']:.0f}"


def _order(one: Measurement) -> tuple[float, str]:
    return one.numbers["burst_items_count"], one.strategy


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
        print(f"{file.stem}\n\n{table(store.read(file))}\n")


if __name__ == "__main__":
    main()

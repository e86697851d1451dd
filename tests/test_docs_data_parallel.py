"""What the page about several cards says was measured is what the record says, and what the simulator says."""

import re
import sys
from pathlib import Path

import pytest
import torch
from helpers import reference

from encgraph import budgets, sharding, sizes, store, strategies, systems

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import sharded_report  # noqa: E402
import sharded_systems  # noqa: E402

PAGE = " ".join((ROOT / "docs" / "data_parallel.md").read_text(encoding="utf-8").split())
LINES = {m.strategy: m for m in store.load("h200", "data_parallel_336")}
SIZE = sizes.named("qwen3-vl-8b")
COMPARED = re.findall(r"\| `(\w+)` \| ([\d.]+), ([\d.]+) \| ([\d.]+), ([\d.]+) \|", PAGE)


def of(strategy: str, ranks: int):
    return LINES[f"{strategy}/1" if ranks == 1 else f"{strategy}/{ranks}/longest_first/padded"]


def test_the_table_is_that_of_the_record():
    assert " ".join(sharded_report.table(list(LINES.values())).split()) in PAGE


def test_the_ratios_are_those_of_the_record():
    means = {name: line.latency.mean_ms for name, line in LINES.items()}
    ours = of("encgraph", 2).latency
    for name in ("encgraph", "vllm"):
        gained = of(name, 1).latency.mean_ms / of(name, 2).latency.mean_ms
        assert f"`{name}` {gained:.2f} times" in PAGE
    best = min(ms for name, ms in means.items() if name.startswith("eager"))
    assert f"{best / ours.mean_ms:.2f} times as slow as `encgraph` on two cards" in PAGE
    for ranks in (1, 2):
        fallen = 100 * (1 - ours.p99_ms / of("eager", ranks).latency.p99_ms)
        assert f"by {fallen:.1f} %" in PAGE


def test_no_line_of_kernels_that_are_on_no_curve_has_a_prediction():
    assert {line.attention for line in LINES.values()} == {"cudnn"}
    assert not [n for line in LINES.values() for n in line.numbers if n.startswith("predicted")]


@pytest.mark.parametrize("row", COMPARED, ids=lambda row: row[0])
def test_what_the_simulator_says_beside_it_is_what_it_says(row):
    name, *said = row
    strategy = strategies.named(name)
    priced = systems.prices(SIZE, on="h200", attention="fa3")
    setting = reference(size=SIZE, dtype=torch.bfloat16, priced=priced, largest=4864)
    costs = setting.price(strategy)
    ladder = budgets.doubling(512, 4864, target=setting.target(strategy), items=8)
    plan = ladder if strategy.plan else systems.plan(strategy, setting)
    rank_ms = sharded_systems.predictor(plan, costs, strategy.packing)
    one = sizes.item(sizes.image_grid(336, 336, SIZE.rule), SIZE.rule, width=336, height=336)
    predicted = [
        sharding.simulate(((one,) * 20,), ranks, size=SIZE, costs=costs, rank_ms=rank_ms)
        for ranks in (1, 2)
    ]
    measured = [of(name, ranks).numbers["encode_mean_ms"] for ranks in (1, 2)]
    found = [*(p.latency.mean_ms for p in predicted), *measured]
    assert [f"{ms:.1f}" for ms in found] == said


def test_the_simulator_is_compared_for_every_strategy_it_can_speak_of():
    assert [row[0] for row in COMPARED] == ["encgraph", "vllm", "eager_varlen"]

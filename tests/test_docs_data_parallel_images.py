"""What the page about several cards says of images, of packing and of the simulator beside them holds."""

import random
import sys
from functools import cache

import pytest
from helpers_data_parallel import PAGE, RECORDS, ROOT, SIZE, setting_of, several

from encgraph import balance, budgets, packing, sharding, sizes, strategies, systems, traffic

sys.path.insert(0, str(ROOT / "benchmarks"))
import sharded_systems

SAME, NATIVE = (
    {m.strategy: m for m in RECORDS[name]} for name in ("data_parallel_336", "data_parallel_native")
)
TWO = several("")


@cache
def native() -> tuple:
    """The bursts timed: the first of all, shuffled as the script does."""
    every = sharding.bursts_of(traffic.read("builtin:coco", SIZE).requests, 20)
    timed = next(iter(NATIVE.values())).latency.samples
    return tuple(random.Random(0).sample(every, len(every))[:timed])


def same() -> tuple:
    one = sizes.item(sizes.image_grid(336, 336, SIZE.rule), SIZE.rule, width=336, height=336)
    return ((one,) * 20,)


def planned(name: str):
    """The ladder of 512 to 4,864 tokens, or no graphs."""
    strategy, setting = strategies.named(name), setting_of(largest=4864)
    ladder = budgets.doubling(512, 4864, target=setting.target(strategy), items=8)
    plan = ladder if strategy.plan else systems.plan(strategy, setting)
    return strategy, setting.price(strategy), plan


def packed(bursts, ranks, plan, costs, rule) -> list[tuple]:
    """Each rank's items, and how the runner would pack them."""
    pack = packing.packer(plan, costs, rule=rule)
    assign = balance.rule("longest_first", costs)
    shares = [[one[i] for i in mine] for one in bursts for mine in assign(one, ranks).ranks if mine]
    return [(share, pack(share)) for share in shares]


def eager_percent(found: list[tuple]) -> str:
    items = sum(len(share) for share, _ in found)
    return f"{100 * sum(len(one.fallback) for _, one in found) / items:.0f}"


def test_the_bursts_of_native_size_are_those_timed():
    moved = NATIVE["vllm" + TWO].numbers["uneven_gather_bytes"]
    tokens = sum(item.tokens for one in native() for item in one)
    assert tokens * sharding.token_bytes(SIZE) == moved
    assert f"a burst of {tokens / len(native()):,.0f} tokens" in PAGE
    assert f"{tokens / len(native()) / 20:.0f} tokens an image" in PAGE


def test_the_ladder_is_the_one_named():
    *doubling, last = (graph.tokens for graph in planned("vllm")[2].graphs)
    assert f"graphs of {doubling[0]} to {doubling[-1]:,} tokens and {last:,}" in PAGE


def test_no_line_of_kernels_that_are_on_no_curve_has_a_prediction():
    lines = [*SAME.values(), *NATIVE.values()]
    assert {line.attention for line in lines} == {"cudnn", "sdpa an item"}
    assert not [n for line in lines for n in line.numbers if n.startswith("predicted")]


def test_the_ratios_of_images_are_those_of_the_records():
    mean = {name: line.latency.mean_ms for name, line in SAME.items()}
    best = min(ms for name, ms in mean.items() if name.startswith("eager"))
    assert f"{best / mean['encgraph' + TWO]:.2f} times as slow as `encgraph` on two cards" in PAGE
    half = SAME["eager_varlen" + TWO].numbers["encode_mean_ms"]
    whole = SAME["eager_varlen/1"].numbers["encode_mean_ms"]
    assert f"slower rank takes {half:.1f} ms, with all of them {whole:.1f}" in PAGE
    mean = {name: line.latency.mean_ms for name, line in NATIVE.items()}
    faster, longer, gains = [], [], []
    for way in ("/1", TWO):
        eager = [mean["eager" + way], mean["eager_varlen" + way]]
        faster.append(f"{min(eager) / mean['encgraph' + way]:.2f}")
        longer.append(f"{mean['vllm' + way] / mean['eager_varlen' + way]:.2f}")
    for name in ("eager", "eager_varlen"):
        gains.append(f"{mean[name + '/1'] / mean[name + TWO]:.2f}")
    assert f"gain {gains[0]} and {gains[1]} times" in PAGE
    assert f"{faster[0]} times as fast as the best of them on one card, {faster[1]} times" in PAGE
    assert f"takes {longer[0]} times as long as `eager_varlen` on one card, {longer[1]}" in PAGE


def test_how_far_p99_falls_is_as_the_records_say():
    fallen = [
        100 * (1 - record["encgraph" + TWO].latency.p99_ms / record["eager" + way].latency.p99_ms)
        for way in ("/1", TWO)
        for record in (SAME, NATIVE)
    ]
    assert f"P99 falls by {fallen[0]:.1f} % (336x336) and {fallen[1]:.1f} % (native)" in PAGE
    assert f"same two cards, by {fallen[2]:.1f} % and {fallen[3]:.1f} %" in PAGE


@pytest.mark.parametrize("name", ["encgraph", "vllm", "eager_varlen"])
def test_the_simulator_beside_images_is_as_far_off_as_said(name):
    strategy, costs, plan = planned(name)
    rank_ms = sharded_systems.predictor(plan, costs, strategy.packing)
    off = []
    for record, bursts in ((SAME, same()), (NATIVE, native())):
        predicted = [
            sharding.simulate(bursts, ranks, size=SIZE, costs=costs, rank_ms=rank_ms)
            for ranks in (1, 2)
        ]
        measured = [record[name + way].numbers["encode_mean_ms"] for way in ("/1", TWO)]
        ratios = [m / p.latency.mean_ms for m, p in zip(measured, predicted, strict=True)]
        off.append("`{}` {:.2f}, {:.2f}".format(name, *ratios))
    section = PAGE[PAGE.index("From that of FlashAttention-3") :]
    first, second = section.split("; native", 1)
    assert off[0] in first
    assert off[1] in second


def test_what_the_ladder_does_to_native_images_is_what_the_packing_does():
    strategy, costs, plan = planned("vllm")
    for _, one in packed(native(), 1, plan, costs, strategy.packing):
        assert sum(bin.token_budget for bin in one.bins) == 8192
    assert "into graphs of 8,192 together" in PAGE
    strategy, costs, plan = planned("encgraph")
    one, two = (
        eager_percent(packed(native(), ranks, plan, costs, strategy.packing)) for ranks in (1, 2)
    )
    assert f"runs {one} % of the items eager on one card and {two} % on two" in PAGE


def test_what_share_of_production_bursts_runs_eager_is_what_the_packing_does():
    strategy = strategies.named("encgraph")
    fit_on = traffic.read("builtin:servegen", SIZE, count=4000, seed=1).requests
    setting = setting_of(largest=8192, fit_on=fit_on, attention="fa3")
    costs, plan = setting.price(strategy), systems.plan(strategy, setting)
    requests = traffic.read("builtin:servegen", SIZE).requests
    said = []
    for items in (1, 4, 8, 16, 64):
        bursts = sharding.bursts_of(requests, items)[:30]
        shares = [
            eager_percent(packed(bursts, ranks, plan, costs, strategy.packing)) for ranks in (1, 2)
        ]
        said.append(f"of {items}{' item' if items == 1 else ''}, {' and '.join(shares)} %")
    assert "; ".join(said) in PAGE

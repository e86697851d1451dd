"""What the page about several cards says of bursts of mixed requests is what the records say."""

import sys

import pytest
from helpers_data_parallel import (
    PAGE,
    RECORDS,
    ROOT,
    SIZE,
    by_items,
    commands,
    fullest_and_all_tokens,
    other_rank_ms,
    over,
    padded_more,
    percent,
    ratio,
    setting_of,
    several,
)

from encgraph import packing, strategies, systems, traffic

sys.path.insert(0, str(ROOT / "benchmarks"))
import sharded_systems

SECTION = PAGE[
    PAGE.index("### Bursts of mixed") : PAGE.index("### Balance rules and gathers on mixed")
]
MIX = by_items("data_parallel_mix", "data_parallel_mix_64")
COUNTS = (1, 4, 16, 64)
LARGEST = 8192
"""Tokens of the largest graph that the script allows."""
BURST = {name: MIX[64, several(name)].numbers for name in ("encgraph", "vllm", "eager_varlen")}


def alone(one):
    """The same strategy and burst size on one card."""
    items, name = round(one.numbers["burst_items_count"]), one.strategy.partition("/")[0]
    return MIX[items, f"{name}/1"]


def shared(items: int) -> dict:
    """Each strategy's line on two cards."""
    return {
        way.partition("/")[0]: one
        for (count, way), one in MIX.items()
        if count == items and not way.endswith("/1")
    }


def drawn(tokens: int):
    """An item of so many tokens that the law of the mix draws."""
    return next(one for one in traffic.read("builtin:mix", SIZE).items if one.tokens == tokens)


def other_rank_predicted_ms(numbers) -> float:
    """The same as predicted."""
    return (1 - 2 * numbers["predicted_idle_ratio"]) * numbers["predicted_encode_mean_ms"]


def idle_over_all_time(one) -> float:
    took, both = alone(one).numbers["encode_mean_ms"], 2 * one.numbers["encode_mean_ms"]
    return 1 - took / both


def test_the_counts_of_bursts_repeats_and_proven_items_are_said():
    found = {items: one.latency.samples for (items, _), one in MIX.items()}
    counts = "30 bursts of 1 item, 15 of 4, 6 of 16, each timed once; 21 items proven first"
    assert found == {1: 30, 4: 15, 16: 6, 64: 1}
    assert counts in SECTION
    proven = {(items, one.numbers["proven_items_count"]) for (items, _), one in MIX.items()}
    assert proven == {(1, 21), (4, 21), (16, 21), (64, 64)}
    assert {one.numbers["repeats_count"] for one in MIX.values()} == {1}
    assert "timed once, all 64 items proven" in SECTION


def test_what_the_law_of_the_mix_draws_is_as_said():
    read = traffic.read("builtin:mix", SIZE)
    found = sorted(item.tokens for item in read.items)
    giants = [tokens for tokens in found if tokens > LARGEST]
    half = found[len(found) // 2]
    assert f"of {len(read.requests):,} such requests half have at most {half} tokens" in SECTION
    share = percent(len(giants) / len(found))
    assert f"{share} % have more than {LARGEST:,}, which no graph holds" in SECTION
    assert f"and {100 * sum(giants) / sum(found):.0f} % of all tokens" in SECTION


def test_the_burst_of_64_is_made_as_the_others_are():
    said = commands()
    for name in ("data_parallel_mix", "data_parallel_mix_64"):
        ran = {one.strategy.partition("/")[0] for one in RECORDS[name]}
        (strategy,) = (word for word in said[name] if "encgraph" in word)
        assert set(strategy.split(",")) == ran
        said[name].remove(strategy)
    assert said["data_parallel_mix_64"] - said["data_parallel_mix"] == {
        "64",
        "50",
        "data_parallel_mix_64",
    }


@pytest.mark.parametrize("name", BURST)
def test_the_giant_has_a_rank_to_itself_and_is_the_slower_one(name):
    fullest, every = fullest_and_all_tokens(BURST[name])
    one = drawn(every - fullest)
    assert f"a giant of {one.tokens:,} tokens has a rank to itself" in SECTION
    assert f"One burst of 64, of {every:,} tokens" in SECTION
    assert f"with {100 * one.tokens / every:.0f} % of the tokens" in SECTION
    strategy = strategies.named(name)
    fit_on = traffic.read("builtin:mix", SIZE, count=4000, seed=1).requests
    setting = setting_of(largest=LARGEST, fit_on=fit_on, attention="fa3")
    costs, plan = setting.price(strategy), systems.plan(strategy, setting)
    if plan.graphs:
        assert len(packing.packer(plan, costs, rule=strategy.packing)([one]).fallback) == 1
    predict = sharded_systems.predictor(plan, costs, strategy.packing)
    assert predict([one]) == pytest.approx(BURST[name]["predicted_encode_mean_ms"], rel=0.01)
    assert BURST[name]["predicted_over_bound_ratio"] == pytest.approx(1, abs=1e-9)
    slower, other = BURST[name]["predicted_encode_mean_ms"], other_rank_predicted_ms(BURST[name])
    took = BURST[name]["encode_mean_ms"]
    assert abs(took - slower) < abs(took - other)


def test_what_the_giant_leaves_to_gain():
    ours, whole = MIX[64, several("encgraph")], MIX[64, "encgraph/1"]
    took = BURST["encgraph"]["encode_mean_ms"]
    assert f"Its {took:,.0f} ms are {100 * took / whole.latency.mean_ms:.0f} % of" in SECTION
    assert f"so two cards gain {ratio(whole, ours):.2f}" in SECTION
    assert ratio(whole, ours) < min(
        ratio(alone(one), one) for one in shared(64).values() if one != ours
    )
    for name in ("vllm", "eager_varlen"):
        longer = BURST[name]["encode_mean_ms"] / took
        assert f"giant takes them {longer:.2f} times as long, the other" in SECTION
    rest = other_rank_ms(BURST["encgraph"])
    vllm, varlen = (other_rank_ms(BURST[name]) / rest for name in ("vllm", "eager_varlen"))
    assert f"items {vllm:.2f} and {varlen:.2f} times" in SECTION


def test_the_makespan_predicted_is_near_its_bound():
    over_bound = {
        name: max(shared(items)[name].numbers["predicted_over_bound_ratio"] - 1 for items in found)
        for name, found in {
            "encgraph": (4, 16, 64),
            "vllm": (4, 16, 64),
            "eager_compiled": (4, 16),
            "eager_varlen": (4, 16, 64),
        }.items()
    }
    assert f"at most {percent(max(over_bound.values()))} % over a bound" in SECTION
    assert f"for `encgraph` at most {percent(over_bound['encgraph'])} %" in SECTION


def test_idle_over_all_time_is_as_predicted_though_its_mean_over_bursts_is_not():
    four, sixteen = (list(map(idle_over_all_time, shared(items).values())) for items in (4, 16))
    assert f"idle over all time is {min(four):.2f} to {max(four):.2f} for 4" in SECTION
    assert f"and {min(sixteen):.2f} to {max(sixteen):.2f} for 16" in SECTION
    lines = [*shared(4).values(), *shared(16).values()]
    off = [abs(idle_over_all_time(m) - m.numbers["predicted_idle_ratio"]) for m in lines]
    assert f"at most {max(off):.2f} from the prediction" in SECTION
    single = max(abs(n["idle_ratio"] - n["predicted_idle_ratio"]) for n in BURST.values())
    assert f"measured is at most {single:.2f} from it" in SECTION
    assert all(m.numbers["predicted_idle_ratio"] - m.numbers["idle_ratio"] > 0.15 for m in lines)


def test_very_few_bursts_take_most_of_the_time():
    one, four, sixteen = (shared(items)["encgraph"].latency for items in (1, 4, 16))
    every = [latency.mean_ms * latency.samples for latency in (one, four, sixteen)]
    slowest = (four.p90_ms, four.worst_ms)  # the fourteenth and the fifteenth
    first, second, third = (
        f"{100 * ms / total:.0f} %"
        for ms, total in zip((one.worst_ms, sum(slowest), sixteen.worst_ms), every, strict=True)
    )
    assert f"slowest of the 30 bursts of 1 item has {first}, the slowest 2" in SECTION
    assert f"2 of the 15 of 4 have {second}, the slowest of the 6 of 16 has {third};" in SECTION
    took = BURST["encgraph"]["encode_mean_ms"]
    apart = max(abs(ms / took - 1) for ms in (*slowest, sixteen.worst_ms))
    assert f"these three of 4 and 16 are within {percent(apart)} % of the giant above" in SECTION


def test_what_the_second_card_gives_in_mean_and_median():
    def gains(items, field):
        found = [
            getattr(alone(one).latency, field) / getattr(one.latency, field)
            for one in shared(items).values()
        ]
        return min(found), max(found)

    (low, high), (least, most) = (gains(items, "mean_ms") for items in (4, 16))
    assert (
        f"So it gains {low:.2f} to {high:.2f} for 4 items and {least:.2f} to {most:.2f}" in SECTION
    )
    (low, high), (least, most) = (gains(items, "p50_ms") for items in (4, 16))
    assert f"median {low:.2f} to {high:.2f} and {least:.2f} to {most:.2f}" in SECTION


def test_what_is_best_on_mixed_requests():
    best, median = [], []
    for items in COUNTS:
        found = shared(items)
        ours = found.pop("encgraph")
        for other in found.values():
            assert ours.latency.worst_ms < other.latency.worst_ms
            assert max(ratio(ours, other), ratio(alone(ours), alone(other))) < 1
            if (items, other.strategy) != (1, several("eager_compiled")):
                assert alone(ours).latency.worst_ms < alone(other).latency.worst_ms
        if items > 1:
            assert ratio(found["vllm"], found["eager_varlen"]) > 1
            assert ratio(alone(found["vllm"]), alone(found["eager_varlen"])) > 1
        best.append(min((ratio(other, ours), name) for name, other in found.items()))
        median.append(min(one.latency.p50_ms for one in found.values()) / ours.latency.p50_ms)
    one, four, sixteen, burst = (f"{times:.2f}" for times, _ in best)
    names = [name for _, name in best]
    assert names == ["vllm", "eager_compiled", "eager_compiled", "eager_varlen"]
    assert f"it is {one} times as fast for 1 item (`vllm`), {four} for 4, {sixteen} for" in SECTION
    assert f"and {burst} in the burst of 64 (`eager_varlen`)" in SECTION
    one, four, sixteen = (f"{times:.2f}" for times in median[:3])
    assert f"the median {one}, {four} and {sixteen} for 1, 4 and 16" in SECTION
    slowest = [MIX[1, f"{name}/1"].latency.worst_ms for name in ("eager_compiled", "encgraph")]
    less = percent(1 - slowest[0] / slowest[1])
    assert f"for 1 item on one card, where `eager_compiled` takes {less} % less" in SECTION


def test_how_near_the_simulator_is_on_mixed_requests():
    compiled, others = [], []
    for (_, way), one in MIX.items():
        (compiled if way.startswith("eager_compiled") else others).append(over(one))
    assert f"measured over predicted is {min(others):.2f} to {max(others):.2f}" in SECTION
    fast = [100 * (1 - found) for found in compiled]
    assert f"`eager_compiled` is {min(fast):.0f} to {max(fast):.0f} % faster" in SECTION


def test_what_the_gathers_move_and_what_is_not_encoder():
    more, rest = [], []
    for items in (4, 16, 64):
        more.append(padded_more(shared(items)["encgraph"]))
        rest.append(
            max(m.latency.mean_ms - m.numbers["encode_mean_ms"] for m in shared(items).values())
        )
    first, second, third = (f"{100 * share:.0f}" for share in more)
    assert f"moves {first}, {second} and {third} % more bytes than `uneven`" in SECTION
    first, second, third = (f"{ms:.1f}" for ms in rest)
    assert f"takes at most {first}, {second} and {third} ms" in SECTION

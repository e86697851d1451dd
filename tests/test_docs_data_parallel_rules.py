"""What the page about several cards says of balance rules and gathers is what the records say."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean

from helpers_data_parallel import (
    PAGE,
    SIZE,
    Lines,
    by_items,
    fullest_and_all_tokens,
    other_rank_ms,
    over,
    padded_more,
    percent,
    ratio,
    several,
)

from encgraph import traffic
from encgraph.results import Measurement

BURSTS, RULES = by_items("data_parallel"), by_items("data_parallel_rules")
MIX, MIX_RULES = by_items("data_parallel_mix_64"), by_items("data_parallel_mix_rules")
MIXED = PAGE[
    PAGE.index("### Balance rules and gathers on mixed") : PAGE.index("### Images of 336x336")
]
COUNTS = (4, 16, 64)
WEIGH, BLIND = ("longest_first", "tokens", "patches"), ("round_robin", "count")
MIX_WEIGH = WEIGH[:2]
"""Of those that weigh, what was run on mixed requests."""


def shared(record: Lines) -> Lines:
    """Lines on two cards."""
    return {key: one for key, one in record.items() if key[1] != "encgraph/1"}


def rule_means(record: Lines, items: int, field: str = "mean_ms") -> dict[str, float]:
    """Mean of both gathers, of each balance rule run."""
    found = defaultdict(list)
    for (count, way), one in shared(record).items():
        if count == items:
            found[way.split("/")[2]].append(getattr(one.latency, field))
    return {rule: fmean(both) for rule, both in found.items()}


def uneven_percents(record: Lines) -> dict[tuple[int, str], float]:
    """How many percent more than `padded` the gather `uneven` takes, by items and balance rule."""
    return {
        (items, way.split("/")[2]): 100
        * (ratio(one, record[items, way.replace("uneven", "padded")]) - 1)
        for (items, way), one in record.items()
        if way.endswith("uneven")
    }


def said_ms(record: Lines, items: int) -> dict[str, float]:
    """The simulator's mean of each balance rule run."""
    return {
        way.split("/")[2]: one.numbers["predicted_encode_mean_ms"]
        for (count, way), one in shared(record).items()
        if count == items
    }


def idle_off(lines: Iterable[Measurement]) -> float:
    """The most that idle differs from what was predicted."""
    return max(
        abs(one.numbers["idle_ratio"] - one.numbers["predicted_idle_ratio"]) for one in lines
    )


def test_which_balance_rule_wins_and_by_how_much():
    means = {items: rule_means(RULES, items) for items in COUNTS}
    spread = max(
        max(found[rule] for rule in WEIGH) / min(found[rule] for rule in WEIGH)
        for found in means.values()
    )
    assert f"within {percent(spread - 1)} % of each other at every size" in PAGE
    more = {
        rule: [
            percent(found[rule] / fmean(found[weigh] for weigh in WEIGH) - 1)
            for found in means.values()
        ]
        for rule in BLIND
    }
    first, second, third = more["round_robin"]
    assert f"`round_robin` takes {first}, {second} and {third} % more for 4, 16 and 64" in PAGE
    first, second, third = more["count"]
    assert f"`count` {first}, {second} and {third} %" in PAGE


def test_no_gather_wins_and_runs_differ_as_much():
    less = uneven_percents(RULES)
    low, high = -min(less.values()), max(less.values())
    few = max(abs(x) for (items, _), x in less.items() if items == 4)
    assert f"from {low:.1f} % less to {high:.1f} % more than `padded`: within {few:.1f} %" in PAGE
    sixteen, most = ([less[items, rule] for rule in WEIGH] for items in (16, 64))
    assert f"{-max(sixteen):.1f} to {-min(sixteen):.1f} % less for 16" in PAGE
    assert f"but {min(most):.1f} to {max(most):.1f} % more for 64" in PAGE
    moved = [
        max(padded_more(RULES[items, several("encgraph", rule)]) for rule in WEIGH)
        for items in COUNTS
    ]
    first, second, third = map(percent, moved)
    assert f"moves {first} % more bytes for 4 items, up to {second} % for 16 and {third} %" in PAGE
    again = [
        percent(ratio(BURSTS[items, way], RULES[items, way]) - 1)
        for way in (several("encgraph"), "encgraph/1")
        for items in (4, 64)
    ]
    bytes_moved = [
        {record[items, several("encgraph")].numbers["uneven_gather_bytes"] for items in (4, 64)}
        for record in (BURSTS, RULES)
    ]
    assert bytes_moved[0] == bytes_moved[1]  # the same bursts
    assert f"took {again[0]} % (4 items) and {again[1]} % (64) longer" in PAGE
    assert f"on one card {again[2]} % and {again[3]} %" in PAGE


def test_the_simulator_has_the_order_of_the_rules_right():
    apart = []
    for items in COUNTS:
        said = said_ms(RULES, items)
        took = rule_means(RULES, items)
        assert sorted(BLIND, key=said.__getitem__) == sorted(BLIND, key=took.__getitem__)
        assert sorted(BLIND, key=took.__getitem__)[0] == ("count" if items == 64 else "round_robin")
        for found in (said, took):
            assert max(found[rule] for rule in WEIGH) < min(found[rule] for rule in BLIND)
        apart.append(max(said[rule] for rule in WEIGH) / min(said[rule] for rule in WEIGH) - 1)
    assert f"those that weigh, within {percent(max(apart))} % of each other" in PAGE
    lines = shared(RULES).values()
    ratios = list(map(over, lines))
    assert f"measured over predicted is {min(ratios):.2f} to {max(ratios):.2f}" in PAGE
    assert f"idle differs by at most {idle_off(lines):.2f}" in PAGE


def test_the_counts_of_mixed_bursts_are_said():
    found = {items: one.latency.samples for (items, _), one in MIX_RULES.items()}
    assert found == {4: 7, 16: 4, 64: 1}
    assert "7 bursts of 4, 4 of 16 and 1 of 64, the one above, each timed once; 84" in MIXED


def test_predicted_time_is_the_weight_that_wins_in_the_burst_of_64():
    weighed, before = (record[64, several("encgraph")] for record in (MIX_RULES, MIX))
    for moved in ("padded_gather_bytes", "uneven_gather_bytes"):  # the same burst, shared alike
        assert weighed.numbers[moved] == before.numbers[moved]
    tokens, count, robin = (
        MIX_RULES[64, several("encgraph", rule)] for rule in ("tokens", "count", "round_robin")
    )
    took = [f"{one.latency.mean_ms:,.0f}" for one in (weighed, tokens)]
    assert f"`longest_first` takes {took[0]} ms; `tokens` takes {took[1]}, which" in MIXED
    first, second, third = (percent(ratio(one, weighed) - 1) for one in (tokens, count, robin))
    assert f"{first} % more, `count` {second} and `round_robin` {third} % more" in MIXED
    fullest, every = fullest_and_all_tokens(weighed.numbers)
    giant = weighed.numbers["encode_mean_ms"] / MIX_RULES[64, "encgraph/1"].latency.mean_ms
    assert f"{100 * (1 - fullest / every):.0f} % of the tokens, but {100 * giant:.0f} %" in MIXED
    fullest, every = fullest_and_all_tokens(tokens.numbers)
    assert f"{fullest:,} and {every - fullest:,} tokens" in MIXED
    slower, other = tokens.numbers["encode_mean_ms"], other_rank_ms(tokens.numbers)
    assert f"one takes {slower:,.0f} ms, the other {other:.0f}" in MIXED
    again = [
        ratio(MIX[64, way], MIX_RULES[64, way]) - 1 for way in (several("encgraph"), "encgraph/1")
    ]
    assert f"took {percent(again[0])} % longer under `longest_first` and" in MIXED
    assert f"on one card {percent(again[1])} %" in MIXED


def test_items_of_the_mix_have_4_patches_a_token():
    assert {item.patches / item.tokens for item in traffic.read("builtin:mix", SIZE).items} == {4}


def test_the_giant_hides_the_rule_in_small_bursts():
    four, sixteen = (MIX_RULES[items, several("encgraph")].latency for items in (4, 16))
    first, second = (
        f"{100 * one.worst_ms / (one.mean_ms * one.samples):.0f}" for one in (four, sixteen)
    )
    assert f"the slowest burst has {first} and {second} % of the time" in MIXED
    few, more = (rule_means(MIX_RULES, items) for items in (4, 16))
    assert f"within {percent(max(few.values()) / min(few.values()) - 1)} % of each other" in MIXED
    weighed = [more[rule] for rule in MIX_WEIGH]
    assert f"lie within {percent(max(weighed) / min(weighed) - 1)} %, and over" in MIXED
    robin, count = (percent(more[rule] / fmean(weighed) - 1) for rule in BLIND)
    assert f"`round_robin` takes {robin} %, `count` {count} % more" in MIXED
    median = rule_means(MIX_RULES, 16, "p50_ms")
    robin, count = (
        100 * (median[rule] / fmean(median[weigh] for weigh in MIX_WEIGH) - 1) for rule in BLIND
    )
    assert f"in the median {robin:.0f} and {count:.0f} %" in MIXED


def test_no_gather_wins_on_mixed_requests():
    found = uneven_percents(MIX_RULES)
    low, high = -min(found.values()), max(found.values())
    assert f"takes from {low:.1f} % less to {high:.1f} % more than `padded`" in MIXED
    moved = max(map(padded_more, shared(MIX_RULES).values()))
    assert f"moves up to {100 * moved:.0f} % more bytes" in MIXED


def test_the_simulator_has_the_order_of_the_rules_on_mixed_requests():
    apart = []
    for items in COUNTS:
        said = said_ms(MIX_RULES, items)
        took = rule_means(MIX_RULES, items)
        first = 0 if items == 64 else len(MIX_WEIGH)
        assert sorted(took, key=took.get)[first:] == sorted(took, key=said.get)[first:]
        apart.append(said["tokens"] / said["longest_first"] - 1)
    assert f"which it puts within {percent(max(apart[:2]))} % of each other" in MIXED
    ratios = list(map(over, shared(MIX_RULES).values()))
    assert f"measured over predicted is {min(ratios):.2f} to {max(ratios):.2f}" in MIXED
    idle = idle_off(one for (items, _), one in shared(MIX_RULES).items() if items == 64)
    assert f"For 64 items idle differs by at most {idle:.2f}" in MIXED

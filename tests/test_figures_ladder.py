"""The ladder of a bench: its order, what it is relative to, and its whiskers."""

from collections.abc import Sequence

import pytest
from test_readings import line

from encgraph import figures, intervals, readings, store
from encgraph.figures import whiskers
from encgraph.results import LEAST_OF_P99, Latency, Measurement
from encgraph.strategies import STRATEGIES

EAGER = [20.0 + i % 7 for i in range(LEAST_OF_P99)]
OURS = [10.0 + i % 5 for i in range(LEAST_OF_P99)]


def bench(**times: Sequence[float]) -> list[Measurement]:
    """A bench of requests and summaries, with a floor of 1 ms."""
    lines = []
    for name, values in times.items():
        mean = sum(values) / len(values)
        lines.append(line(name, mean, repeats_count=5, arithmetic_floor_ms=1))
        lines += [line(name, ms, request=i) for i, ms in enumerate(values)]
    return lines


BENCH = bench(encgraph=OURS, eager_varlen=EAGER, vllm=[15.0] * LEAST_OF_P99)


def test_a_ladder_says_what_it_is_relative_to_and_marks_the_floor() -> None:
    drawn = figures.ladder(BENCH)
    bars, told = drawn.data
    assert list(bars.y) == ["eager_varlen", "vllm", "encgraph"]
    span = intervals.ratio(EAGER, OURS)
    assert told.text[2] == (
        f" 12.0 ms<br> {span.value:.2f}\N{MULTIPLICATION SIGN} ({span.low:.2f} to {span.high:.2f})"
    )
    assert drawn.layout.xaxis.title.text.endswith("times as fast as eager_varlen")
    assert drawn.layout.shapes[0].x0 == 1
    assert figures.ladder(BENCH, quantile="worst").layout.shapes == ()


def test_a_subset_keeps_the_baseline_of_all() -> None:
    (_, told) = figures.ladder(BENCH, strategies=["vllm", "encgraph"]).data
    assert told.text[0].split("<br>")[1].startswith(" 1.53")
    bars, told = figures.ladder(BENCH, strategies=["encgraph", "vllm"], over="vllm").data
    assert list(bars.y) == ["encgraph", "vllm"]
    assert told.text[1] == " 15.0 ms<br> 1.00\N{MULTIPLICATION SIGN}"


def test_a_baseline_that_is_missing_is_refused_by_name() -> None:
    mine = [m for m in BENCH if m.strategy != "eager_varlen"]
    with pytest.raises(ValueError, match=r"over must be .*'vllm'.*, got 'eager_varlen'"):
        figures.ladder(mine)
    with pytest.raises(ValueError, match=r"over must be a strategy on record, .*, got 'fast'"):
        figures.ladder(BENCH, over="fast")
    with pytest.raises(ValueError, match=r"strategies must be on record, .* got \['fast'\]"):
        figures.ladder(BENCH, strategies=["fast"])
    with pytest.raises(ValueError, match=r"quantile must be one of .*, got 'p42'"):
        figures.ladder(BENCH, quantile="p42")


def test_whiskers_are_the_interval_of_what_a_bar_shows() -> None:
    bars = figures.ladder(BENCH).data[0]
    span = intervals.mean(EAGER)
    assert bars.error_x.array[0] == pytest.approx(span.high - bars.x[0])
    assert bars.error_x.arrayminus[0] == pytest.approx(bars.x[0] - span.low)
    assert not figures.ladder(BENCH, quantile="worst").data[0].error_x.visible


def test_p99_of_few_requests_is_called_the_slowest_and_has_no_whisker() -> None:
    few = bench(eager_varlen=EAGER[:20], encgraph=OURS[:20])
    drawn = figures.ladder(few, quantile="p99")
    assert drawn.layout.xaxis.title.text.startswith("slowest ")
    assert not drawn.data[0].error_x.visible
    assert "(" not in drawn.data[1].text[1]
    assert whiskers.interval([m for m in BENCH if m.request is not None], "p99") is not None


def test_strategies_stand_in_the_order_of_the_ideas() -> None:
    names = list(STRATEGIES)
    rungs = ["vllm", "ladder_plan", "ladder_slabs", "ladder_caps", "ladder_attention"]
    rungs += ["ladder_compile", "ladder_kernels", "encgraph"]
    assert [names.index(name) for name in rungs] == sorted(names.index(name) for name in rungs)
    order = list(readings.summaries(store.load("h200", "bench-servegen")))
    assert order.index("ladder_compile") < order.index("encgraph")


def test_regimes_have_whiskers_of_their_own_requests() -> None:
    over = [line("encgraph", 1, over_tokens=0, max_tokens=512)]
    over += [line("encgraph", ms, request=i) for i, ms in enumerate(OURS)]
    (bars,) = figures.regimes_compared(over).data
    span = intervals.mean(OURS)
    assert bars.error_y.array[0] == pytest.approx(span.high - 1)
    assert isinstance(over[0].latency, Latency)
    assert bars.x[0] == "up to 512 tokens<br>(1 requests)"

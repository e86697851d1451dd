from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import report_examples as examples

from encgraph import readings
from encgraph.records import Load
from encgraph.results import Latency, Measurement


def line(strategy: str, ms: float, *, request: int | None = None, **numbers: float) -> Measurement:
    return Measurement(
        experiment="bench-x",
        encoder="qwen3-vl-8b",
        environment=examples.environment(),
        strategy=strategy,
        traffic="x",
        request=request,
        load=Load(tokens=64) if request is not None else None,
        latency=Latency.of([ms], clock="wall"),
        numbers=numbers,
    )


LINES = (
    line("encgraph", 2, repeats_count=5),
    line("vllm_manager", 5, repeats_count=5),
    line("vllm", 4, repeats_count=5),
    line("encgraph", 2, over_tokens=512, max_tokens=0),
    line("encgraph", 1, over_tokens=0, max_tokens=512),
    line("vllm", 9, request=1),
    line("vllm", 8, request=0),
)


def test_strategies_stand_from_eager_to_ours_and_others_by_their_namesake() -> None:
    names = ["other", "encgraph", "vllm_manager", "vllm", "eager"]
    assert readings.ordered(names) == ["eager", "vllm", "vllm_manager", "encgraph", "other"]


def test_each_kind_of_line_is_read_apart() -> None:
    assert list(readings.summaries(LINES)) == ["vllm", "vllm_manager", "encgraph"]
    assert [(r.label, r.max_tokens) for r in readings.regimes(LINES)] == [
        ("up to 512", 512),
        ("over 512", None),
    ]
    assert [m.request for m in readings.requests(LINES)["vllm"]] == [0, 1]


@pytest.mark.parametrize("read", [readings.summaries, readings.regimes, readings.requests])
def test_lines_of_two_runs_are_refused(read: Callable[[Sequence[Measurement]], object]) -> None:
    assert read(LINES)
    with pytest.raises(ValueError, match="measurements must be of one run, got lines of several"):
        read(LINES * 2)


def test_a_speedup_is_mean_over_mean() -> None:
    assert readings.mean_speedup(LINES, of="encgraph", over="vllm") == 2
    with pytest.raises(ValueError, match=r"strategy must be one on record, \['vllm'"):
        readings.mean_speedup(LINES, of="eager", over="vllm")


def test_a_source_says_card_versions_date_and_samples() -> None:
    said = readings.source(LINES)
    for part in (
        "qwen3-vl-8b",
        "NVIDIA H200",
        "torch 2.13.0",
        "2026-11-29",
        "commit 3f2c1ab",
        "median of 5",
    ):
        assert part in said
    points = readings.source([replace(LINES[-1], numbers={})])
    assert points.endswith("1 points, medians of 1 runs")
    with pytest.raises(ValueError, match="at least one measurement"):
        readings.source([])


def test_a_source_of_several_encoders_and_days_names_all() -> None:
    one, two = (replace(LINES[-1], numbers={"ranks_count": 2.0}) for _ in range(2))
    later = replace(two.environment, utc="2026-12-03T00:00:00+00:00")
    said = readings.source([one, replace(two, encoder="siglip", environment=later)])
    assert said.startswith("qwen3-vl-8b, siglip on ")
    assert said.endswith("2026-11-29 to 2026-12-03, commit 3f2c1ab; 2 points, means over 1 batches")
    many = readings.source([replace(one, encoder=f"e{n}") for n in range(4)])
    assert many.startswith("4 encoders on ")

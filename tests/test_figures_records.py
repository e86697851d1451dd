"""Figures of ranks, first tokens, captures, encoders and predictions, from lines written by hand."""

from dataclasses import replace

import pytest
from test_readings import line

from encgraph import figures
from encgraph.results import Measurement, Memory

MIB = 2**20


def burst(strategy: str, items: int, ms: float, predicted: float = 0.0) -> Measurement:
    more = {"predicted_encode_mean_ms": predicted} if predicted else {}
    ranks = int(strategy.split("/")[1])
    made = line(strategy, ms, ranks_count=ranks, burst_items_count=items, **more)
    return replace(made, traffic=f"bursts-of-{items}")


BURSTS = [
    burst("eager_varlen/1", 4, 30, 28),
    burst("eager_varlen/2/tokens/padded", 4, 30, 14),
    burst("eager/1", 4, 60),
    burst("eager/2/tokens/padded", 4, 40),
    burst("eager_varlen/1", 16, 100, 90),
    burst("eager_varlen/2/tokens/padded", 16, 50, 45),
]


def test_a_gain_of_ranks_pairs_a_strategy_on_one_card_with_itself_on_several() -> None:
    drawn = figures.gain_of_ranks(BURSTS)
    found = {trace.uid: (list(trace.x), list(trace.y)) for trace in drawn.data}
    assert found == {
        "eager-measured": ([4], [1.5]),
        "eager_varlen-measured": ([4, 16], [1.0, 2.0]),
        "eager_varlen-predicted": ([4, 16], [2.0, 2.0]),
    }
    assert [t.name for t in drawn.data if t.showlegend] == ["eager", "eager_varlen"]


def test_ways_of_sharing_are_told_apart_by_rule_and_gather() -> None:
    lines = [
        *BURSTS[:2],
        burst("eager_varlen/2/tokens/uneven", 4, 20),
        burst("eager_varlen/2/count/padded", 4, 15),
    ]
    drawn = figures.gain_of_ranks(lines)
    looks = {t.name: (t.line.color, t.marker.symbol) for t in drawn.data if t.showlegend}
    assert set(looks) == {"tokens, padded", "tokens, uneven", "count, padded"}
    assert len(set(looks.values())) == 3
    assert looks["tokens, padded"][0] == looks["tokens, uneven"][0]


def first(way: str, count: int, encoder: float) -> Measurement:
    stages = {"preprocessing_ms": 1.0, "encode_ms": encoder, "scatter_ms": 1.0, "prefill_ms": 8.0}
    return line(way, encoder + 10, concurrency_count=count, **stages)


def test_stages_of_a_first_token_are_over_eager_with_as_many_at_once() -> None:
    lines = [first("all_graphs", 1, 5), first("eager", 1, 10), first("eager", 4, 30)]
    drawn = figures.first_token_stages([*lines, first("all_graphs", 4, 10)])
    bars = {bar.uid: list(bar.x) for bar in drawn.data}
    assert bars["encoder"] == [0.5, 0.25, 0.75, 0.25]
    assert bars["told"] == pytest.approx([1, 0.75, 1, 0.5])
    assert list(drawn.data[0].y)[:2] == ["eager, 1 at once", "all_graphs, 1 at once"]
    assert list(drawn.data[-1].text)[1] == " 15 ms"
    with pytest.raises(ValueError, match=r"'eager'; it lacks \[1\] at once"):
        figures.first_token_stages(lines[:1])


def test_stages_of_a_capture_are_seconds_with_empty_caches_and_with_warm_ones() -> None:
    numbers = {"build_s": 1.0, "graphs_count": 3.0}
    warm = replace(line("encgraph", 1, capture_s=4.0, warm_cache_count=1, **numbers), compiled=True)
    empty = replace(
        line("encgraph", 1, capture_s=9.0, warm_cache_count=0, **numbers), compiled=True
    )
    plain = line("encgraph_plain", 1, capture_s=2.0, warm_cache_count=0, **numbers)
    drawn = figures.capture_stages([warm, empty, plain])
    bars = {bar.uid: list(bar.x) for bar in drawn.data}
    assert bars["capturing-its-graphs"] == [2.0, 9.0, 4.0]
    assert list(drawn.data[-1].text) == [" 3.0 s", " 10.0 s", " 5.0 s"]
    assert drawn.data[0].y[1] == "encgraph, 3 graphs<br>empty caches"


def test_encoders_stand_by_what_graphs_give_few_items() -> None:
    def timed(encoder: str, items: int, ratio: float) -> Measurement:
        made = line("encgraph", 1, items_count=items, speedup_ratio=ratio)
        return replace(made, encoder=encoder)

    lines = [timed("a", 1, 2), timed("a", 8, 1.5), timed("b", 1, 5), timed("b", 8, 1)]
    few, many = figures.speedup_by_encoder(lines).data
    assert (few.name, list(few.y), list(few.x)) == ("1 item", ["b", "a"], [5, 2])
    assert (many.name, list(many.x)) == ("8 items", [1, 1.5])


def predicted(**numbers: float) -> Measurement:
    memory = Memory(slabs_bytes=MIB, pool_bytes=2 * MIB, driver_bytes=MIB)
    return replace(line("encgraph", 4, repeats_count=5, **numbers), memory=memory)


def points(drawn: object, uid: str) -> list[tuple[float, float]]:
    (found,) = [trace for trace in drawn.data if trace.uid == uid]
    return list(zip(found.x, found.y, strict=True))


def test_predictions_are_points_of_strategies_where_requests_have_none() -> None:
    lines = [predicted(predicted_mean_ms=3, predicted_p99_ms=5), line("vllm", 1, repeats_count=5)]
    drawn = figures.predicted_against_measured(lines)
    assert points(drawn, "encgraph") == [(3, 4), (5, 4)]
    assert [trace.uid for trace in drawn.data] == ["lower", "upper", "equal", "encgraph"]
    (low, high), (first, last) = drawn.data[1].y, drawn.data[1].x
    assert low / first == high / last == pytest.approx(1 / 0.9)


def test_predictions_are_points_of_requests_where_they_are_on_record() -> None:
    lines = [line("encgraph", ms, request=i, predicted_ms=ms + 1) for i, ms in enumerate((1, 2, 3))]
    drawn = figures.predicted_against_measured(
        [*lines, predicted(predicted_mean_ms=3, predicted_p99_ms=5)]
    )
    assert points(drawn, "encgraph") == [(2, 1), (3, 2), (4, 3)]


def test_predicted_bytes_stand_against_what_is_held_and_what_the_device_lost() -> None:
    lines = [predicted(predicted_bytes=3 * MIB, device_bytes=5 * MIB)]
    drawn = figures.predicted_against_measured(lines, of="bytes")
    assert points(drawn, "encgraph") == [(3, 4), (3, 5)]


def test_what_was_not_measured_is_refused() -> None:
    for draw in (figures.gain_of_ranks, figures.first_token_stages, figures.capture_stages):
        with pytest.raises(ValueError, match="need"):
            draw([line("encgraph", 1)])
    with pytest.raises(ValueError, match="an encoder that was timed"):
        figures.speedup_by_encoder([])
    with pytest.raises(ValueError, match="nothing was predicted of the bytes"):
        figures.predicted_against_measured([predicted(predicted_mean_ms=3)], of="bytes")
    with pytest.raises(ValueError, match=r"of must be one of .*, got 'watts'"):
        figures.predicted_against_measured([], of="watts")


def test_memory_taken_apart_stacks_what_the_device_lost() -> None:
    parts = {"tensors_bytes": 3 * MIB, "idle_bytes": 2 * MIB, "pool_bytes": 5 * MIB}
    lines = [line("vllm", 1, **parts, driver_bytes=MIB), line("eager", 1)]
    drawn = figures.memory_taken_apart(lines)
    assert {bar.uid: list(bar.x) for bar in drawn.data} == {
        "tensors": [3.0],
        "idle": [2.0],
        "pool": [5.0],
        "driver": [1.0],
    }
    none = [line("vllm", 1, **parts, driver_bytes=0)]
    assert [bar.uid for bar in figures.memory_taken_apart(none).data] == ["tensors", "idle", "pool"]
    with pytest.raises(ValueError, match="a line with tensors, idle, pool, driver"):
        figures.memory_taken_apart(lines[1:])

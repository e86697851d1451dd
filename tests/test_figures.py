import itertools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import plotly.graph_objects as go
import pytest
import report_examples as examples
from helpers_report import replayed

from encgraph import figures
from encgraph.figures import template
from encgraph.records import Capacity, FallbackReason, Load, Modality, Route, Step
from encgraph.regimes import RequestTimes, by_size
from encgraph.results import Latency, Measurement, Memory

MIB = 2**20


def replay(tokens: int, budget: int) -> Step:
    return Step(
        route=Route.REPLAY,
        modality=Modality.IMAGE,
        items=1,
        real_tokens=tokens,
        token_budget=budget,
    )


def pair(tokens: int, ours: float, eager: float) -> RequestTimes:
    return RequestTimes(request=0, tokens=tokens, items=1, ours_ms=ours, eager_ms=eager)


def measured(strategy: str, ms: float, *, request: int = 0, clock: str = "device") -> Measurement:
    return Measurement(
        experiment="bench",
        encoder="qwen3-vl-8b",
        environment=examples.environment(),
        strategy=strategy,
        request=request,
        load=Load(tokens=64),
        latency=Latency.of([ms], clock=clock),
    )


def every_figure() -> dict[str, go.Figure]:
    report = examples.card_report()
    tokens = report.traffic.request_tokens
    steps = [timed.step for timed in report.steps]
    assert report.latencies and report.jitter and report.memory
    return {
        "traffic": figures.traffic_histogram(tokens),
        "fill": figures.fill(steps),
        "routes": figures.latency_by_route_and_size(report.steps),
        "quantiles": figures.latency_quantiles({"ours": report.latencies.ours_wall}),
        "speedup": figures.speedup_by_size(report.times),
        "memory": figures.memory_by_part({"measured": report.memory}),
        "fallbacks": figures.fallback_reasons({FallbackReason.OVER_TOKENS: 3}),
        "jitter": figures.jitter(report.jitter),
        "kernels": figures.kernels_by_kind([replayed("plain", attention_ms=2.0)], 64),
        "strategies": figures.strategies_compared([measured("vllm", 2), measured("eager", 3)]),
    }


def test_every_trace_has_a_uid_of_its_own_and_the_same_one_each_time() -> None:
    first, again = every_figure(), every_figure()
    for name, drawn in first.items():
        uids = [trace.uid for trace in drawn.data]
        assert all(uids) and len(set(uids)) == len(uids), name
        assert drawn.to_json() == again[name].to_json(), name


def test_every_figure_is_in_the_template_and_its_number_axes_are_titled() -> None:
    for name, drawn in every_figure().items():
        assert drawn.layout.template.layout.paper_bgcolor == "rgba(0,0,0,0)", name
        titles = drawn.layout.xaxis.title.text, drawn.layout.yaxis.title.text
        words = ("token", "ms", "ratio", "MiB", "items", "share", "requests")
        assert any(word in title for title in titles for word in words), name


def test_times_start_at_zero_and_ratios_span_zero_to_one() -> None:
    drawn = every_figure()
    for name in ("routes", "quantiles", "speedup", "jitter", "strategies"):
        assert drawn[name].layout.yaxis.rangemode == "tozero", name
    assert drawn["memory"].layout.xaxis.rangemode == "tozero"
    assert drawn["fill"].layout.yaxis.range[0] == 0


def test_fill_is_real_over_budget_tokens_for_each_budget() -> None:
    _, box = figures.fill([replay(32, 64), replay(64, 64), replay(128, 256)]).data
    assert list(box.x) == ["64", "256"]
    assert list(box.mean) == [0.75, 0.5]
    assert list(box.median) == [0.5, 0.5]


def test_replays_that_are_all_full_are_drawn_from_zero_to_full() -> None:
    bars, box = figures.fill([replay(64, 64), replay(64, 64), replay(256, 256)]).data
    assert list(box.q1) == list(box.q3) == [1.0, 1.0]
    assert (bars.type, list(bars.x), list(bars.y)) == ("bar", list(box.x), [1.0, 1.0])
    assert bars.base is None


def test_each_route_is_one_cloud_in_its_own_colour() -> None:
    drawn = figures.latency_by_route_and_size(examples.card_report().steps)
    assert [trace.name for trace in drawn.data] == ["replay", "fallback"]
    for trace in drawn.data:
        assert trace.marker.color == template.ROUTE_COLOURS[Route(trace.name)]


def test_the_slowest_of_many_steps_is_drawn() -> None:
    (one,) = examples.card_report(count=1).steps
    steps = [replace(one, ms=float(99 if i == 777 else 1)) for i in range(4000)]
    (cloud,) = figures.latency_by_route_and_size(steps).data
    assert max(cloud.y) == 99
    assert len(cloud.y) < 1600


def test_latencies_of_two_clocks_are_not_drawn_together() -> None:
    wall, device = Latency.of([1], clock="wall"), Latency.of([1], clock="device")
    with pytest.raises(ValueError, match=r"one clock, got \['device', 'wall'\]"):
        figures.latency_quantiles({"a": wall, "b": device})


def test_speedup_is_mean_over_mean_in_each_regime_that_has_requests() -> None:
    times = [pair(100, 1, 4), pair(512, 3, 4), pair(4000, 10, 5)]
    (bars,) = figures.speedup_by_size(times).data
    assert list(bars.y) == [2.0, 0.5]
    assert [x.split("<")[0] for x in bars.x] == ["up to 512", "over 2,048"]
    ours, eager = template.ROUTE_COLOURS[Route.REPLAY], template.ROUTE_COLOURS[Route.EAGER]
    assert list(bars.marker.color) == [ours, eager]


def test_regimes_hold_every_request_once_whatever_the_edges() -> None:
    times = [pair(t, 1, 1) for t in (1, 512, 513, 2048, 2049, 9000)]
    assert [len(r.times) for r in by_size(times)] == [2, 2, 2]
    assert [r.label for r in by_size(times, edges=(512, 9000))] == ["up to 512", "513 to 9,000"]


def test_memory_is_stacked_in_mib_with_the_peak_as_a_mark() -> None:
    memory = Memory(slabs_bytes=MIB, pool_bytes=2 * MIB, driver_bytes=3 * MIB, peak_bytes=7 * MIB)
    drawn = figures.memory_by_part({"measured": memory})
    assert [(t.uid, t.x[0]) for t in drawn.data] == [
        ("slabs", 1),
        ("pool", 2),
        ("driver", 3),
        ("peak", 7),
    ]
    unread = replace(memory, peak_bytes=None)
    assert len(figures.memory_by_part({"predicted": unread}).data) == 3


def test_the_commonest_reason_to_fall_back_is_on_top() -> None:
    counts = {FallbackReason.OVER_ITEMS: 9, FallbackReason.OVER_TOKENS: 2}
    (bars,) = figures.fallback_reasons(counts).data
    assert list(bars.x) == [2, 9]
    assert bars.y[-1].replace("<br>", " ") == FallbackReason.OVER_ITEMS.value


def test_jitter_shows_each_route_alone_and_alternating() -> None:
    drawn = figures.jitter(examples.jitter())
    assert [trace.uid for trace in drawn.data][:2] == ["replay alone", "replay after fallback"]
    assert {trace.line.color or trace.marker.color for trace in drawn.data} == {
        template.ROUTE_COLOURS[Route.REPLAY],
        template.ROUTE_COLOURS[Route.FALLBACK],
    }


def test_a_bench_counts_each_request_once_a_strategy() -> None:
    found = [measured("encgraph", ms, request=i) for i, ms in enumerate((1.0, 3.0))]
    replays = replace(found[0], request=None, capacity=examples.capacity(64))
    assert isinstance(replays.capacity, Capacity)
    drawn = figures.strategies_compared([*found, measured("vllm", 8), replays])
    assert {trace.uid: trace.y[0] for trace in drawn.data} == {"encgraph": 2.0, "vllm": 8.0}
    assert "device" in drawn.layout.yaxis.title.text


def test_a_name_is_drawn_literally() -> None:
    drawn = figures.latency_quantiles({"<b>x</b>": Latency.of([1], clock="wall")})
    assert drawn.data[0].name == "&lt;b&gt;x&lt;/b&gt;"


@pytest.mark.parametrize(
    "draw",
    [
        lambda: figures.traffic_histogram([]),
        lambda: figures.fill([]),
        lambda: figures.latency_by_route_and_size([]),
        lambda: figures.latency_quantiles({}),
        lambda: figures.speedup_by_size([]),
        lambda: figures.memory_by_part({}),
        lambda: figures.fallback_reasons({}),
        lambda: figures.strategies_compared([]),
    ],
)
def test_nothing_to_draw_is_refused(draw: Callable[[], go.Figure]) -> None:
    with pytest.raises(ValueError, match=r"need|one clock"):
        draw()


SEEN_BY = {
    "everyone": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "deuteranopes": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.01182, 0.04294, 0.968881),
    ),
    "protanopes": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "tritanopes": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.3039),
    ),
}
"""Machado, Oliveira and Fernandes, IEEE TVCG 2009: severity 1, linear RGB."""


def linear(colour: str) -> list[float]:
    values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]


def luminance(colour: str) -> float:
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


@pytest.mark.parametrize("eyes", SEEN_BY)
def test_the_routes_are_told_apart_by(eyes: str) -> None:
    drawn = (Route.REPLAY, Route.FALLBACK, Route.EAGER)
    seen = {
        route: [
            max(
                0.0,
                sum(w * v for w, v in zip(row, linear(template.ROUTE_COLOURS[route]), strict=True)),
            )
            ** (1 / 2.2)
            for row in SEEN_BY[eyes]
        ]
        for route in drawn
    }
    for a, b in itertools.combinations(drawn, 2):
        distance = sum((x - y) ** 2 for x, y in zip(seen[a], seen[b], strict=True)) ** 0.5
        assert distance > 0.2, (a, b, distance)
    assert len({template.ROUTE_SYMBOLS[route] for route in drawn}) == 3


def test_the_routes_and_the_ink_stand_out_from_white_and_from_black() -> None:
    drawn = [template.ROUTE_COLOURS[r] for r in (Route.REPLAY, Route.FALLBACK, Route.EAGER)]
    for colour in (*drawn, template.INK):
        assert 1.05 / (luminance(colour) + 0.05) > 3, colour
        assert (luminance(colour) + 0.05) / (luminance("#14171b") + 0.05) > 3, colour


def test_drawing_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys, encgraph.figures, encgraph.report.page; "
        "sys.exit(any(m in sys.modules for m in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""A curve fitted to points made by a known law gives that law back."""

from dataclasses import replace
from math import ceil

import pytest
from report_examples import environment

from encgraph import curves, sizes
from encgraph.curves import Kernels
from encgraph.records import Load, Plan, Route
from encgraph.results import Latency, Measurement, Memory

SIZE = sizes.named("qwen3-vl-8b")
DENSE, SQUARE, BLOCK, PATCH, FLOOR, RATIO = 2e-3, 3e-7, 4e-5, 1e-4, 9.0, 1.1
PLAIN = Kernels(attention="fa3", compiled=False)


def point(route, **fields):
    return Measurement(
        experiment="curve-qwen3-vl-8b",
        encoder="qwen3-vl-8b",
        environment=environment(),
        attention="fa3",
        route=route,
        **fields,
    )


def load_of(tokens, parts):
    each = 4 * tokens // parts
    return Load(
        tokens=tokens,
        patches=4 * tokens,
        items=parts,
        segments=parts,
        longest_segment=each,
        frames=parts,
        square=parts * each**2,
    )


def live_ms(load):
    return SQUARE * load.square + PATCH * load.patches


def law_ms(capacity, load):
    blocks = capacity.segments * ceil(capacity.longest_segment / 128)
    return 1.5 + DENSE * capacity.patches + BLOCK * blocks + live_ms(load)


def latency(ms, clock="device"):
    return Latency.of([ms], clock=clock)


def made():
    points = []
    for tokens in (256, 1024, 4096, 8192):
        for items in (8, 64):
            capacity = sizes.capacity(tokens, SIZE.rule, items=items)
            memory = Memory(
                slabs_bytes=0, pool_bytes=5000 * capacity.patches, driver_bytes=2 * 2**20
            )
            points.append(point(Route.CAPTURE, capacity=capacity, memory=memory))
            for parts in (1, 4):
                load = load_of(tokens, parts)
                ms = law_ms(capacity, load)
                points.append(
                    point(Route.REPLAY, capacity=capacity, load=load, latency=latency(ms))
                )
        for parts in (1, 4):
            load = load_of(tokens, parts)
            card = RATIO * (1.5 + DENSE * load.patches + live_ms(load))
            ms = max(FLOOR, card)
            points.append(point(Route.EAGER, load=load, latency=latency(ms, "wall")))
    capacity = sizes.capacity(1024, SIZE.rule, items=16)
    for count in (1, 8):
        load = load_of(64 * count, count)
        device = law_ms(capacity, load)
        points.append(
            point(
                Route.REPLAY,
                capacity=capacity,
                load=load,
                latency=latency(device + 0.4 + 0.02 * count, "wall"),
                numbers={"device_ms": device},
            )
        )
    return points


def test_the_fit_gives_the_law_back():
    costs = curves.fit(made(), SIZE, PLAIN)
    assert costs.recorded
    assert costs.square_ms == pytest.approx(SQUARE, rel=0.05)
    assert costs.block_ms == pytest.approx(BLOCK, rel=0.05)
    assert costs.request_ms == pytest.approx(0.4, rel=0.05)
    assert costs.item_ms == pytest.approx(0.02, rel=0.05)
    assert costs.eager_floor_ms == pytest.approx(FLOOR)
    assert costs.pool_bytes_per_patch == pytest.approx(5000)
    assert costs.driver_bytes_per_graph == pytest.approx(2 * 2**20)


def test_what_a_further_graph_adds_comes_from_a_capture_of_many():
    patches = 4096
    numbers = {"graphs_count": 5.0, "patches_count": float(patches)}
    held = Memory(slabs_bytes=0, pool_bytes=5000 * patches + 4 * 3000, driver_bytes=5 * 700)
    costs = curves.fit([*made(), point(Route.CAPTURE, memory=held, numbers=numbers)], SIZE, PLAIN)
    assert costs.pool_bytes_per_patch == pytest.approx(5000)
    assert costs.pool_bytes_per_graph == pytest.approx(3000)
    assert costs.driver_bytes_per_graph == pytest.approx(700)
    capacities = tuple(sizes.capacity(t, SIZE.rule, items=4) for t in (64, 256, 1024))
    plan = Plan(graphs=capacities, encoder=SIZE.name)
    found = costs.memory(plan)
    assert found.pool_bytes == 5000 * plan.largest().patches + 2 * 3000
    assert found.driver_bytes == 3 * 700


def test_the_fit_predicts_a_capacity_that_was_not_recorded():
    costs = curves.fit(made(), SIZE, PLAIN)
    capacity, load = sizes.capacity(2048, SIZE.rule, items=8), load_of(2000, 2)
    predicted = costs.replay_ms(capacity, load) - costs.item_ms * load.items
    assert predicted == pytest.approx(law_ms(capacity, load), rel=0.03)


def test_check_says_how_far_the_fit_is():
    points = made()
    fitness = curves.check(curves.fit(points, SIZE, PLAIN), points, PLAIN)
    assert fitness.points == 16
    assert fitness.worst_error_ratio < 0.02


def test_other_kernels_are_not_mixed_in():
    with pytest.raises(ValueError, match=r"no curve of qwen3-vl-8b .*flash.*there is .*fa3"):
        curves.fit(made(), SIZE, Kernels(attention="flash", compiled=False))


def test_recorded_kernels_are_listed():
    assert curves.recorded(made()) == [PLAIN]


def test_eagers_own_curve_needs_no_replays():
    points = []
    for tokens in (64, 256, 1024, 4096):
        for parts in (1, 4):
            load = load_of(tokens, parts)
            ms = 2 + DENSE * load.patches + SQUARE * load.square
            points.append(point(Route.EAGER, load=load, latency=latency(ms, "wall")))
    curve, square = curves.eager_curve(points)
    assert curve.patches == (1, 1024, 4096, 16384)
    assert curve.ms[1:] == pytest.approx([2 + DENSE * p for p in curve.patches[1:]], rel=1e-3)
    assert square == pytest.approx(SQUARE, rel=1e-3)


def test_eager_that_waits_for_its_host_bends_no_curve():
    law = {tokens: max(9.0, 4e-3 * 4 * tokens) for tokens in (64, 128, 256, 512, 1024, 2048)}
    points = [
        point(Route.EAGER, load=load_of(tokens, 1), latency=latency(ms, "wall"))
        for tokens, ms in law.items()
    ]
    curve, square = curves.eager_curve(points)
    assert square == 0
    for tokens in (64, 300, 500, 600, 800, 1024, 1500, 2048):
        assert max(9.0, curve.at(4 * tokens)) == pytest.approx(
            max(9.0, 4e-3 * 4 * tokens), rel=1e-6
        )


def test_loads_of_one_shape_leave_all_to_the_curve():
    seen = [load_of(tokens, 1) for tokens in (256, 1024, 4096)]
    points = [
        point(Route.EAGER, load=load, latency=latency(DENSE * load.patches, "wall"))
        for load in seen
    ]
    curve, square = curves.eager_curve(points)
    assert square == 0
    assert [curve.at(load.patches) for load in seen] == pytest.approx(
        [DENSE * load.patches for load in seen]
    )


def test_a_slow_run_of_one_patch_is_a_knot_like_any():
    one = replace(load_of(1, 1), patches=1, longest_segment=1, square=1.0)
    points = [
        point(Route.EAGER, load=load, latency=latency(ms, "wall"))
        for load, ms in ((one, 3.0), (load_of(16, 1), 2.0), (load_of(64, 1), 4.0))
    ]
    curve, _ = curves.eager_curve(points)
    assert curve.patches == (1, 256)
    assert curve.ms == pytest.approx((3.0, 4.0))


def test_a_curve_without_a_card_is_recorded_on_the_cpu():
    points = [replace(p, environment=environment(None)) for p in made()]
    assert curves.fit(points, SIZE, PLAIN).source.startswith("recorded on the CPU, torch 2.13.0, ")

"""A recorded curve of the reference backend: its points fit, and name what was chosen."""

import pytest
import torch
from helpers import TINY, tiny

from encgraph import budgets, curves, recording, sizes
from encgraph.curves import Kernels
from encgraph.encoders import registry
from encgraph.records import Route


@pytest.fixture(scope="module")
def points():
    encoder = tiny(attention="measured")
    return recording.record(encoder, TINY, tokens=(64, 128), backend="reference", samples=1)


def test_recorded_points_can_be_fitted(points):
    [kernels] = curves.recorded(points)
    assert kernels == Kernels(attention="measured", compiled=False)
    assert curves.fit(points, TINY, kernels).eager_floor_ms > 0


@pytest.mark.parametrize(
    "name", ["bert-tiny", "siglip-tiny", "clip-tiny", "siglip2-naflex-tiny", "internvl-tiny"]
)
def test_every_layout_has_a_curve_that_plans_by_it(name):
    size = sizes.named(name)
    slot = size.rule.slot_tokens or 32
    tokens = recording.budgets(size, (slot, 4 * slot + 1, 64 * slot))
    if size.rule.slot_tokens:
        assert tokens == [slot, 4 * slot, 64 * slot]
    encoder = registry.named(name, device="cpu", dtype=torch.float32)
    points = recording.record(encoder, size, tokens=tokens, backend="reference", samples=2)
    [kernels] = curves.recorded(points)
    costs = curves.fit(points, size, kernels)
    times = [costs.dense.at(patches) for patches in costs.dense.patches]
    assert times == sorted(times) and min(times) > 0
    full = [costs.capacity_ms(sizes.capacity(t, size.rule, items=8)) for t in tokens]
    assert full[-1] > full[0]
    assert costs.eager_floor_ms > 0 and costs.row_bytes > 0
    lengths = [sizes.item(sizes.near_square_grid(slot, size.rule), size.rule)]
    target = budgets.Target(size=size, dtype="float32")
    fit = budgets.fitted([lengths * n for n in (1, 2, 3)], target=target, costs=costs)
    assert fit.best.prediction.mean_ms > 0


def test_a_budget_of_slots_is_recorded_full_and_almost_empty():
    size = sizes.named("siglip-tiny")
    slot = size.rule.slot_tokens
    encoder = registry.named(size.name, device="cpu", dtype=torch.float32)
    points = recording.record(encoder, size, tokens=(8 * slot,), backend="reference", samples=1)
    loads = [
        m.load.items for m in points if m.route is Route.REPLAY and "device_ms" not in m.numbers
    ]
    assert loads == [8, 1]


def test_each_kind_of_point_is_there(points):
    routes = [m.route for m in points]
    assert set(routes) == {Route.CAPTURE, Route.REPLAY, Route.EAGER}
    executes = [m for m in points if "device_ms" in m.numbers]
    assert [m.load.items for m in executes] == [1, 4, 8, 16]
    captures = [m for m in points if m.route is Route.CAPTURE]
    assert [m.capacity is None for m in captures] == [False] * 2 * len(recording.CAPS) + [True]
    assert captures[-1].numbers["graphs_count"] == recording.TOGETHER
    assert captures[-1].numbers["patches_count"] == 4 * 128


def test_a_capture_keeps_what_each_attention_took(points):
    for point in points:
        if point.route is Route.CAPTURE and point.capacity:
            assert point.numbers["attention_loop_ms"] > 0
            assert point.numbers["attention_sdpa_ms"] > 0

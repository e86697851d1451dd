"""A recorded curve of the reference backend: its points fit, and name what was chosen."""

import pytest
import torch
from helpers import TINY, tiny

from encgraph import curves, recording, sizes
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


@pytest.mark.parametrize("name", ["bert-tiny", "siglip-tiny", "whisper-tiny"])
def test_only_packed_grids_have_curves(name):
    encoder = registry.named(name, device="cpu", dtype=torch.float32)
    with pytest.raises(ValueError, match=f"packed image grids, got '{name}'"):
        recording.record(encoder, sizes.named(name), backend="reference")


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

import numpy as np
import pytest
from planning_examples import MODELLED, TARGET, batches, clip, images, plan

from encgraph import intervals, packing
from encgraph.fitting import bulk
from encgraph.fitting.bulk import Batches, Priced
from encgraph.packers import lookup
from encgraph.records import Load


def columns(loads: list[Load]) -> intervals.Floats:
    rows = [
        (x.tokens, x.patches, x.items, x.segments, x.longest_segment, x.frames, x.square)
        for x in loads
    ]
    return np.array(rows, float).T


LOADS = [Load(), *(Load.of(b) for b in batches(0, 60, most=9)), Load.of([clip(70, 300)])]


def test_times_by_arrays_are_those_of_the_cost_model() -> None:
    eager = bulk.eager_ms(columns(LOADS), MODELLED)
    assert eager == pytest.approx([MODELLED.eager_ms(load) for load in LOADS])
    live = bulk.load_ms(columns(LOADS), MODELLED)
    assert live == pytest.approx([MODELLED.load_ms(load) for load in LOADS])


def test_find_by_arrays_is_smallest() -> None:
    for planned in (plan(64, 512, few=4), plan(2000, items=3), TARGET.plan([])):
        priced = Priced.of(planned, MODELLED)
        found = bulk.find(columns(LOADS[1:]), priced.limits, range(len(planned.graphs)))
        wanted = [packing.smallest(planned, load) for load in LOADS[1:]]
        assert found.tolist() == [-1 if index is None else index for index in wanted]
        holds = bulk.fits(columns(LOADS[1:]), priced)
        assert holds.tolist() == [index is not None for index in wanted]


def test_equal_requests_are_one_batch_whatever_their_order() -> None:
    counted = Batches.of([images(64, 300), images(300, 64), images(64), ()])
    assert len(counted.sizes) == 2
    assert counted.weights(np.array([1.0, 2.0, 4.0, 8.0])).tolist() == [3.0, 4.0]
    assert counted.by_request(np.array([5.0, 7.0])).tolist() == [5.0, 5.0, 7.0, 0.0]


def test_a_request_of_two_modalities_is_two_batches() -> None:
    counted = Batches.of([[*images(64), clip(2, 64)]])
    assert counted.batch.tolist() == [0, 1]
    assert counted.by_request(np.array([1.0, 2.0])).tolist() == [3.0]


def test_runs_and_subsets_add_up_their_items() -> None:
    items = sorted(lookup.size_of(item) for item in (*images(64, 200), clip(3, 70), *images(400)))
    items_FNR = np.array(items, float).T[:, :, None]
    for at, (i, j) in enumerate(zip(*bulk.ends(len(items)), strict=True)):
        assert bulk.runs(items_FNR)[:, at, 0].tolist() == list(lookup.total(items[i:j]))
    for mask in range(1 << len(items)):
        members = [size for i, size in enumerate(items) if mask >> i & 1]
        assert bulk.subsets(items_FNR)[:, mask, 0].tolist() == list(lookup.total(members))

from itertools import pairwise

import numpy as np
from planning_examples import MODELLED, TARGET, batches, clip, images

from encgraph.fitting import shapes, sweep
from encgraph.fitting.bulk import Batches
from encgraph.fitting.shapes import Rung, Shape

TWO = Shape((Rung(1, 1, 0), Rung(8, 8, 400)))


def test_bins_go_to_the_first_ladder_that_holds_them() -> None:
    counted = Batches.of([images(900), images(50, 60), images(50, 500), [clip(9, 64)]])
    dense = shapes.Shape((Rung(16, 16, 0),)).plan([[1000]], TARGET)
    outcome = sweep.pack(counted, dense, costs=MODELLED, rule="ascending")
    given, beyond = TWO.split(outcome, np.ones(4), TARGET, MODELLED)
    assert [sorted(bins.tokens.tolist()) for bins in given] == [[900], [110]]
    assert beyond != 0.0


def test_a_plan_merges_equal_graphs_of_two_ladders() -> None:
    same = Shape((Rung(4, 4, 0), Rung(4, 6, 0)))
    planned = same.plan([[64, 128], [128]], TARGET)
    assert [(g.tokens, g.frames) for g in planned.graphs] == [(64, 4), (128, 6)]


def test_one_cap_is_the_same_for_every_budget() -> None:
    counted = Batches.of(batches(0, 50, most=7))
    weights = np.ones(len(counted.sizes))
    for shape in shapes.offered(counted, weights, one_cap=True):
        planned = shape.dense(counted, weights, TARGET, 4096)
        assert len({g.items for g in planned.graphs}) == 1
        assert all(g.longest_segment == g.patches for g in planned.graphs)


def test_offered_caps_cover_the_largest_batch() -> None:
    counted = Batches.of(batches(0, 50, most=7))
    offers = shapes.offered(counted, np.ones(len(counted.sizes)))
    assert len(set(offers)) == len(offers)
    for shape in offers:
        caps = [rung.items for rung in shape.rungs]
        assert all(a < b for a, b in pairwise(caps))
    assert max(shape.rungs[-1].items for shape in offers) == 7


def test_a_reason_says_how_often_and_how_full() -> None:
    counted = Batches.of([images(64), images(96)])
    planned = Shape((Rung(1, 1, 0),)).plan([[128, 256]], TARGET)
    outcome = sweep.pack(counted, planned, costs=MODELLED, rule="ascending")
    reasons = shapes.explained(planned, outcome, np.ones(2), True).reasons
    assert "100.0% of replays at 62% fill" in reasons[0]
    assert "kept for batches larger than those seen" in reasons[1]

from itertools import pairwise

import numpy as np
from planning_examples import MODELLED, TARGET, batches, clip, images

from encgraph import sizes
from encgraph.fitting import shapes, sweep
from encgraph.fitting.bulk import Batches
from encgraph.fitting.shapes import Rung, Shape, Target

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


def test_offered_ladders_hold_every_segment_of_a_batch_of_many_tiles() -> None:
    rule = sizes.named("internvl3-2b").rule
    request = [sizes.item_of(tokens, rule) for tokens in (3328, 256)]
    counted = Batches.of([request, request[:1], request[1:]])
    target = Target(size=sizes.named("internvl3-2b"))
    offers = shapes.offered(counted, np.ones(len(counted.sizes)))
    for shape in [offer for offer in offers if offer.rungs[-1].items == 2]:
        plan = shape.plan([[4096]] * len(shape.rungs), target)
        outcome = sweep.pack(counted, plan, costs=MODELLED, rule="ascending")
        given, beyond = shape.split(outcome, np.ones(3), target, MODELLED)
        assert sorted(int(t) for bins in given for t in bins.tokens) == [256, 3328, 3584]
        assert beyond == 0.0


def test_a_reason_says_how_often_and_how_full() -> None:
    counted = Batches.of([images(64), images(96)])
    planned = Shape((Rung(1, 1, 0),)).plan([[128, 256]], TARGET)
    outcome = sweep.pack(counted, planned, costs=MODELLED, rule="ascending")
    reasons = shapes.explained(planned, outcome, np.ones(2), True).reasons
    assert "100.0% of replays at 62% fill" in reasons[0]
    assert "kept for batches larger than those seen" in reasons[1]


def test_a_budget_below_one_that_is_used_is_kept_for_batches_between() -> None:
    counted = Batches.of([images(64), images(500)])
    planned = Shape((Rung(1, 1, 0),)).plan([[64, 128, 512, 1024]], TARGET)
    outcome = sweep.pack(counted, planned, costs=MODELLED, rule="ascending")
    reasons = shapes.explained(planned, outcome, np.ones(2), False).reasons
    assert ": kept for batches between those seen" in reasons[1]
    assert ": kept for batches larger than those seen" in reasons[3]
    assert "by rule: no fitted plan beat it on these requests" in reasons[0]

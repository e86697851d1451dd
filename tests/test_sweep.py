import random
from functools import partial

import numpy as np
import pytest
from planning_examples import MODELLED, SIZE, SLOW_EAGER, TARGET, batches, clip, images, plan

from encgraph import packing, sizes
from encgraph.costs import Costs
from encgraph.fitting import sweep
from encgraph.fitting.bulk import Batches
from encgraph.records import Item, Plan

BOUND = TARGET.plan(
    [
        sizes.capacity(300, SIZE.rule, items=4, longest_segment=900),
        sizes.capacity(1000, SIZE.rule, items=8, frames=40, longest_segment=1000),
    ]
)
PLANS = [
    plan(64, 128, 256, 512, 1024, 4096),
    plan(64, 200, 700, items=32, few=3),
    BOUND,
    TARGET.plan([]),
]


def requests() -> list[tuple[Item, ...]]:
    rng = random.Random(7)
    clips = [
        tuple(clip(rng.randint(1, 70), rng.choice((64, 88))) for _ in range(rng.randint(1, 9)))
        for _ in range(25)
    ]
    long = [images(*(rng.randint(64, 900) for _ in range(n))) for n in (7, 13, 30, 48, 55)]
    return [*batches(6, 90, most=10), *clips, *long]


@pytest.mark.parametrize("planned", PLANS)
@pytest.mark.parametrize("rule", packing.PACKINGS)
@pytest.mark.parametrize("model", [MODELLED, SLOW_EAGER])
def test_times_are_those_of_packing_one_batch_at_a_time(
    planned: Plan, rule: str, model: Costs
) -> None:
    traffic = requests()
    counted = Batches.of(traffic)
    outcome = sweep.pack(counted, planned, costs=model, rule=rule)
    pack = packing.packer(planned, model, rule=rule)
    one_by_one = [packing.predicted_ms(pack(batch), batch, model) for batch in traffic]
    assert counted.by_request(outcome.ms) == pytest.approx(one_by_one)


@pytest.mark.parametrize("planned", PLANS)
def test_every_item_is_in_one_bin_or_eager_run(planned: Plan) -> None:
    traffic = requests()
    counted = Batches.of(traffic)
    for rule in ("cheapest", "ascending"):
        outcome = sweep.pack(counted, planned, costs=SLOW_EAGER, rule=rule)
        for row, total in (
            (0, [sum(i.tokens for i in r) for r in traffic]),
            (2, map(len, traffic)),
        ):
            held = np.bincount(outcome.batch, outcome.loads[row], len(counted.sizes))
            assert counted.by_request(held).tolist() == list(total)


def test_any_function_of_batch_and_plan_is_a_rule() -> None:
    counted = Batches.of(batches(8, 20, most=5))
    rule = partial(packing.ascending, defer=False)
    mine = sweep.pack(counted, PLANS[0], costs=MODELLED, rule=rule).ms
    assert (mine != sweep.pack(counted, PLANS[0], costs=MODELLED, rule="ascending").ms).any()

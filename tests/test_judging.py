import math
from dataclasses import asdict, replace

import pytest
from planning_examples import MODELLED, TARGET, images, plan, traffic

from encgraph import budgets, costs, packing, sizes
from encgraph.fitting import judging


def test_a_prediction_adds_up_its_packings() -> None:
    requests = traffic(0, 60)
    planned = plan(64, 128, 256, 512, 1024)
    judged = judging.judge(requests, planned, costs=MODELLED, pack="ascending")
    packings = [packing.ascending(batch, planned) for batch in requests]
    times = [
        packing.predicted_ms(packed, batch, MODELLED)
        for packed, batch in zip(packings, requests, strict=True)
    ]
    assert judged.by_request_ms == pytest.approx(times)
    assert judged.mean_ms == pytest.approx(sum(times) / 60)
    assert judged.latency.worst_ms == pytest.approx(max(times))
    assert judged.latency.clock == "predicted"
    rows = sum(b.token_budget for p in packings for b in p.bins)
    assert judged.padding_ratio == pytest.approx(1 - sum(p.real_tokens for p in packings) / rows)
    replayed = sum(len(b.items) for p in packings for b in p.bins)
    assert judged.replay_rate == pytest.approx(replayed / sum(map(len, requests)))
    assert judged.memory == MODELLED.memory(planned)
    assert judged.source == MODELLED.source
    assert not judged.recorded


def test_a_weight_counts_a_request_that_often() -> None:
    few = [images(64), images(300, 64)]
    many = [few[0]] * 3 + [few[1]]
    planned = plan(64, 512)
    weighted = judging.judge(few, planned, costs=MODELLED, weights=[3, 1])
    counted = judging.judge(many, planned, costs=MODELLED)
    assert asdict(weighted.latency) == pytest.approx(asdict(counted.latency) | {"samples": 2})
    assert weighted.padding_ratio == pytest.approx(counted.padding_ratio)
    assert weighted.replay_rate == pytest.approx(counted.replay_rate)


def test_no_graphs_is_all_eager() -> None:
    judged = judging.judge([images(64)], TARGET.plan([]), costs=MODELLED)
    assert judged.replay_rate == 0.0
    assert judged.padding_ratio == 0.0
    assert judged.memory.total_bytes == 0


@pytest.mark.parametrize(
    ("requests", "weights", "message"),
    [
        ([], [], "at least one request"),
        ([()], [], "at least one request"),
        ([images(64)], [1, 2], "weights must be one a request, got 2 for 1"),
        ([images(64)], [-1], "weights must be finite and not negative"),
        ([images(64)], [math.inf], "weights must be finite and not negative"),
        ([(), images(64)], [1, 0], "weights must not be zero for every request with an item"),
        ([images(64)], [0], "weights must not be zero for every request with an item"),
    ],
)
def test_requests_that_cannot_be_planned_for_are_refused(
    requests: list[tuple[object, ...]], weights: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        judging.check(requests, weights)


def test_costs_of_another_encoder_are_refused_by_name() -> None:
    other = costs.modelled(sizes.named("qwen2.5-vl-7b"))
    message = "costs must be of 'qwen3-vl-8b', for which the plan is, got those of 'qwen2.5-vl-7b'"
    requests = [images(64)]
    for ask in (budgets.judge, budgets.routed):
        with pytest.raises(ValueError, match=message):
            ask(requests, plan(64), costs=other)
    with pytest.raises(ValueError, match=message):
        budgets.fitted(requests, target=TARGET, costs=other)
    assert budgets.judge(requests, plan(64), costs=replace(other, encoder=None)).mean_ms > 0


def test_what_is_no_plan_no_request_and_no_costs_is_said() -> None:
    requests = [images(64)]
    fit = budgets.fitted(requests, target=TARGET, costs=MODELLED)
    with pytest.raises(ValueError, match=r"plan must be a Plan, got Fit; .*`fit\.best\.plan`"):
        budgets.judge(requests, fit, costs=MODELLED)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="requests must be sequences of items, got items"):
        budgets.fitted(requests[0], target=TARGET, costs=MODELLED)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="target must be a Target, got NoneType"):
        budgets.fitted(requests, target=None, costs=MODELLED)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="costs must be Costs, got NoneType"):
        budgets.fitted(requests, target=TARGET, costs=None)  # type: ignore[arg-type]

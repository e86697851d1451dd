import pytest
from planning_examples import MODELLED, TARGET, images, plan, traffic

from encgraph import packing
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
    assert weighted.latency == counted.latency
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
        ([images(64)], [-1], "weights must not be negative"),
        ([images(64)], [0], "not all zero"),
    ],
)
def test_requests_that_cannot_be_planned_for_are_refused(
    requests: list[tuple[object, ...]], weights: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        judging.check(requests, weights)

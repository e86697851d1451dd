"""Stages of a study by themselves."""

import pytest
import torch
from helpers import RULE, plan, reference, tiny

from encgraph import bench, facts, sizes, strategies, study
from encgraph.runner import EncoderRunner
from encgraph.sizes import Grid
from encgraph.traffic import Traffic

PARITY = facts.ParityFacts(
    items=1,
    worst_error_ratio=0.0,
    worst_item="0",
    tolerance_ratio=1.0,
    tolerance_source="by hand",
    oracle_dtype="float32",
)


def studied(*requests):
    setting = reference(device=torch.device("cpu"))
    grids = [[Grid(*grid) for grid in request] for request in requests]
    made = Traffic(
        name="by hand",
        source="by hand",
        encoder="qwen3-vl-tiny",
        requests=tuple(tuple(sizes.item(grid, RULE) for grid in request) for request in grids),
    )
    options = study.Procedure(command="by hand")
    strategy = strategies.named("encgraph_plain")
    found = study.Study(traffic=made, setting=setting, strategy=strategy, options=options)
    found.gathered["parity"] = PARITY
    return found


def test_a_traffic_without_requests_is_refused():
    empty = studied()
    with pytest.raises(
        ValueError, match="traffic 'by hand' has no requests; there is nothing to run"
    ):
        study.run(empty.traffic, empty.setting, empty.strategy, empty.options)
    with pytest.raises(ValueError, match="bench needs at least one request, got none"):
        bench.run(empty.traffic, [empty.strategy], empty.setting)


@pytest.mark.parametrize(
    ("requests", "passed"),
    [
        ([[(8, 4, 4)]], None),
        ([[(1, 4, 4)] * 5], None),
        ([[(1, 16, 16)]], None),
        ([[(8, 4, 4)], [(1, 8, 8)]], True),
    ],
)
def test_poison_goes_to_the_first_request_that_one_graph_holds(requests, passed):
    found = studied(*requests)
    runner = EncoderRunner(encoder=tiny(), plan=plan(16, 64, frames=4), backend="reference")
    with runner:
        runner.capture()
        study._poison(found, runner, None)
    assert found.gathered["parity"].poison_passed is passed

import pytest
import torch

from encgraph import bench, costs, sizes, strategies, systems, traffic
from encgraph.systems import Setting

SIZE = sizes.named("qwen3-vl-tiny")


@pytest.fixture(scope="module")
def lines():
    drawn = traffic.read("builtin:coco", SIZE, count=3, seed=3)
    setting = Setting(
        size=SIZE,
        device=torch.device("cpu"),
        dtype=torch.float32,
        backend="reference",
        costs=costs.modelled(sizes.named("qwen3-vl-8b")),
        fit_on=traffic.read("builtin:coco", SIZE, count=50, seed=4).requests,
        largest=512,
    )
    chosen = [strategies.EAGER_VARLEN, strategies.VLLM, strategies.ENCGRAPH_PLAIN]
    return bench.run(drawn, chosen, setting, repeats=1), setting


def test_every_strategy_has_a_summary_its_regimes_and_every_request(lines):
    found, _ = lines
    assert set(bench.summaries(found)) == {"eager_varlen", "vllm", "encgraph_plain"}
    for name in bench.summaries(found):
        mine = [m for m in found if m.strategy == name]
        assert [m.request for m in mine if m.request is not None] == [0, 1, 2]
        assert sum("over_tokens" in m.numbers for m in mine) >= 1


def test_graphs_replay_and_eager_does_not(lines):
    summaries = bench.summaries(lines[0])
    assert summaries["vllm"].numbers["replay_ratio"] == 1
    assert summaries["eager_varlen"].numbers["replay_ratio"] == 0
    assert summaries["eager_varlen"].memory is None
    assert summaries["vllm"].memory.slabs_bytes > summaries["encgraph_plain"].memory.slabs_bytes


def test_predictions_are_made_for_every_strategy(lines):
    _, setting = lines
    drawn = traffic.read("builtin:coco", SIZE, count=5, seed=5)
    predicted = systems.predictions(
        [strategies.EAGER_VARLEN, strategies.VLLM], setting, drawn.requests
    )
    assert predicted["eager_varlen"].replay_rate == 0
    assert predicted["vllm"].replay_rate == 1


def test_no_strategy_is_refused(lines):
    with pytest.raises(ValueError, match="at least one strategy"):
        bench.run(traffic.read("builtin:coco", SIZE, count=1), [], lines[1])

import dataclasses

import pytest
import torch
from helpers import batch, plan, reference, tiny

from encgraph import bench, floors, readings, sidelines, sizes, strategies, systems, traffic
from encgraph.benched import System
from encgraph.costs import Costs
from encgraph.runner import EncoderRunner

SIZE = sizes.named("qwen3-vl-tiny")


@pytest.fixture(scope="module")
def lines():
    drawn = traffic.read("builtin:coco", SIZE, count=3, seed=3)
    setting = reference(fit_on=traffic.read("builtin:coco", SIZE, count=50, seed=4).requests)
    chosen = [strategies.EAGER_VARLEN, strategies.VLLM, strategies.ENCGRAPH_PLAIN]
    return bench.run(drawn, chosen, setting, repeats=1), setting


def test_every_strategy_has_a_summary_its_regimes_and_every_request(lines):
    found, _ = lines
    assert set(readings.summaries(found)) == {"eager_varlen", "vllm", "encgraph_plain"}
    for name in readings.summaries(found):
        mine = [m for m in found if m.strategy == name]
        assert [m.request for m in mine if m.request is not None] == [0, 1, 2]
        assert sum("over_tokens" in m.numbers for m in mine) >= 1


def test_a_request_has_the_spread_of_its_repeats_and_how_it_ran(lines):
    _, setting = lines
    drawn = traffic.read("builtin:coco", SIZE, count=2, seed=3)
    chosen = [strategies.EAGER_VARLEN, strategies.VLLM]
    for line in bench.run(drawn, chosen, setting, repeats=4):
        if line.request is not None:
            assert line.latency.samples == 4
            ways = (line.numbers["replays_count"] > 0, line.numbers["eager_runs_count"])
            assert ways == ((False, 1) if line.strategy == "eager_varlen" else (True, 0))


def test_graphs_replay_and_eager_does_not(lines):
    summaries = readings.summaries(lines[0])
    assert summaries["vllm"].numbers["replay_ratio"] == 1
    assert summaries["eager_varlen"].numbers["replay_ratio"] == 0
    assert summaries["eager_varlen"].memory is None
    assert summaries["vllm"].memory.slabs_bytes > summaries["encgraph_plain"].memory.slabs_bytes


def test_every_system_says_how_much_was_proven_and_how_near_the_limit_it_came(lines):
    for summary in readings.summaries(lines[0]).values():
        assert summary.numbers["proven_items_count"] >= 1
        assert summary.numbers["error_over_allowed_ratio"] <= 1
        assert "exact_left_out_count" not in summary.numbers


def test_off_a_card_no_row_has_a_prediction(lines):
    for line in lines[0]:
        assert not [name for name in line.numbers if name.startswith("predicted")]


def test_a_prediction_stands_in_the_summary_and_in_each_request(lines, monkeypatch):
    setting = lines[1]
    drawn = traffic.read("builtin:coco", SIZE, count=2, seed=3)
    monkeypatch.setattr(Costs, "are_of", lambda *_: True)
    found = bench.run(drawn, [strategies.EAGER_VARLEN, strategies.VLLM], setting, repeats=1)
    for strategy in (strategies.EAGER_VARLEN, strategies.VLLM):
        made = systems.plan(strategy, setting)
        foretold = systems.predicted(strategy, setting, made, drawn.requests)
        summary = readings.summaries(found)[strategy.name]
        assert summary.numbers["predicted_mean_ms"] == foretold.mean_ms
        single = [line.numbers["predicted_ms"] for line in readings.requests(found)[strategy.name]]
        assert tuple(single) == foretold.by_request_ms


def test_what_torch_records_itself_is_made_before_graphs(monkeypatch):
    order = []

    def made(strategy, setting, stack):
        order.append(strategy.name)
        return strategy.name

    monkeypatch.setattr(bench, "_system", made)
    names = ["encgraph", "compile_reduce_overhead", "vllm"]
    given = [strategies.named(name) for name in names]
    assert bench._systems(given, reference(), None) == names
    assert order == ["compile_reduce_overhead", "encgraph", "vllm"]


def test_an_exact_graph_of_the_same_kernels_is_timed_in_the_same_run(lines):
    found, _ = lines
    summary = readings.summaries(found)["encgraph_plain"]
    assert summary.numbers["exact_sample_count"] == 3
    assert summary.numbers["exact_floor_ms"] > 0
    single = [m for m in found if m.strategy == "encgraph_plain" and m.request is not None]
    floor = [m.numbers["exact_floor_ms"] for m in single]
    assert sum(floor) / 3 == pytest.approx(summary.numbers["exact_floor_ms"])
    mine = [m.latency.mean_ms for m in single]
    assert sum(mine) / 3 == pytest.approx(summary.numbers["exact_sample_ms"])


def test_jitter_and_host_time_come_with_every_strategy_that_replays(lines):
    for name, summary in readings.summaries(lines[0]).items():
        names = {n for n in summary.numbers if n.startswith(("jitter_", "before_launch"))}
        mixed = {name for name in names if "mixed" in name}
        assert len(names - mixed) == (0 if name == "eager_varlen" else 7), name
        assert len(mixed) == 2 or name != "vllm"  # others may run all of such batches eager


def test_off_a_card_there_is_no_rate_and_no_floor_of_a_card(lines):
    summary = readings.summaries(lines[0])["vllm"]
    assert "matmul_tflops" not in summary.numbers
    assert "arithmetic_floor_ms" not in summary.numbers


def test_the_exact_strategies_and_the_ladder_run_too(lines):
    _, setting = lines
    setting = dataclasses.replace(setting, fit_on=setting.fit_on[:20], max_graphs=3)
    drawn = traffic.read("builtin:coco", SIZE, count=1, seed=9)
    chosen = strategies.chosen("sglang_exact,trtllm,ladder_vllm")
    summaries = readings.summaries(bench.run(drawn, chosen, setting, repeats=1))
    assert list(summaries) == [s.name for s in chosen]
    assert summaries["trtllm"].numbers["graphs_count"] >= 1


def test_a_matrix_product_has_a_rate():
    assert floors.matmul_tflops(torch.device("cpu"), torch.float32, side=64, samples=3) > 0


def test_host_time_ends_at_the_launch_and_puts_the_graphs_back():
    encoder = tiny()
    with EncoderRunner(encoder=encoder, plan=plan(16, 64), backend="reference") as runner:
        runner.capture()
        taken = sidelines.before_launch_us(runner, [batch([(4, 4)] * 4, encoder)] * 8)
        assert len(taken) == 5
        assert all(0 < us < 1e5 for us in taken)
        assert all(graph.graph is None for graph in runner.graphs.graphs)
        assert sidelines.before_launch_us(runner, [batch([(40, 40)], encoder)] * 8) == []


def test_with_more_systems_than_repeats_neighbours_change_from_request_to_request(lines):
    right, ran = tiny(), []

    def logged(name):
        return lambda values: ran.append(name) or right.eager(values)

    others = [
        System(name=name, execute=logged(name), attention="loop", compiled=False) for name in "abcd"
    ]
    drawn = traffic.read("builtin:coco", SIZE, count=3, seed=3)
    bench.run(
        drawn,
        [strategies.EAGER_VARLEN],
        lines[1],
        repeats=1,
        others=others,
        progress=lambda values, about: ran.clear() or values,
    )
    rounds = ["".join(ran[at : at + 4]) for at in range(0, len(ran), 4)]
    assert [sorted(row) for row in rounds] == [list("abcd")] * 6
    # Warm-up, then one repeat, of each request: the rounds of a request are not the next one's.
    assert len(set(rounds[::2])) == len(set(rounds[1::2])) == 3


def test_where_time_runs_out_what_was_timed_until_then_is_reported(lines):
    _, setting = lines
    drawn = traffic.read("builtin:coco", SIZE, count=3, seed=3)
    chosen = [strategies.EAGER_VARLEN, strategies.ENCGRAPH_PLAIN]
    found = bench.run(
        drawn, chosen, setting, repeats=1, progress=lambda values, about: list(values)[:2]
    )
    for name, line in readings.summaries(found).items():
        mine = [m.request for m in found if m.strategy == name and m.request is not None]
        assert mine == [0, 1]
        assert line.latency.samples == 2


@pytest.mark.parametrize(
    "name", ["siglip-tiny", "siglip2-naflex-tiny", "internvl-tiny", "pixtral-tiny", "bert-tiny"]
)
def test_every_layout_can_be_benched_with_and_without_graphs(name, tmp_path):
    size = sizes.named(name)
    table = tmp_path / "lengths.csv"
    table.write_text("tokens\n30\n5\n")
    source = "builtin:coco" if size.layout != "text" else str(table)
    drawn = traffic.read(source, size, count=2 if size.layout != "text" else None)
    setting = reference(size=size, fit_on=drawn.requests, largest=4096)
    chosen = [strategies.EAGER_VARLEN, strategies.VLLM, strategies.ENCGRAPH_PLAIN]
    found = readings.summaries(bench.run(drawn, chosen, setting, repeats=1))
    assert all(line.numbers["proven_items_count"] >= 1 for line in found.values())
    assert found["vllm"].numbers["replay_ratio"] == 1


def test_no_strategy_is_refused(lines):
    with pytest.raises(ValueError, match="at least one strategy"):
        bench.run(traffic.read("builtin:coco", SIZE, count=1), [], lines[1])

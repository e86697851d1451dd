from dataclasses import replace

import pytest

from encgraph import budgets, cards, curves, readings, sizes, store, strategies, traffic


def test_a_size_with_a_curve_is_recorded():
    costs = cards.price(sizes.named("qwen3-vl-8b"), on="h200")
    assert costs.recorded
    assert costs.source.startswith("recorded on NVIDIA H200")


def test_a_size_without_a_curve_is_modelled_and_says_so():
    costs = cards.price(sizes.named("qwen3-vl-tiny"), on="h200")
    assert not costs.recorded
    assert costs.source.startswith("modelled")


def test_an_unknown_card_names_the_known_ones():
    with pytest.raises(ValueError, match=r"card must be .*h200.*, got 'b300'"):
        cards.price(sizes.named("qwen3-vl-8b"), on="b300")


def test_an_attention_that_was_not_recorded_names_those_that_were():
    with pytest.raises(ValueError, match=r"attention must be one on record"):
        cards.price(sizes.named("qwen3-vl-8b"), on="h200", attention="sdpa")


@pytest.mark.parametrize("name", ["qwen3-vl-2b", "qwen3-vl-4b", "qwen3-vl-8b", "qwen3-vl-32b"])
def test_every_recorded_curve_fits_its_own_points(name):
    size = sizes.named(name)
    points = cards.recorded(size, "h200")
    for kernels in curves.recorded(points):
        fitness = curves.check(curves.fit(points, size, kernels), points, kernels)
        assert fitness.mean_error_ratio < 0.02, kernels
        assert fitness.worst_error_ratio < 0.10, kernels


def test_every_experiment_on_record_can_be_read():
    for gpu in store.gpus():
        for experiment in store.experiments(gpu):
            assert store.load(gpu, experiment), experiment


def test_bytes_of_vllms_defaults_are_predicted_within_15_percent_of_the_record():
    size = sizes.named("qwen3-vl-8b")
    costs = replace(cards.price(size, on="h200"), private_slabs=True)
    plan = budgets.doubling(64, 8192, target=budgets.Target(size=size), items=64)
    predicted = costs.memory(plan).total_bytes
    measured = readings.summaries(store.load("h200", "bench-servegen"))["vllm"].memory.total_bytes
    assert predicted == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize("strategy", ["vllm", "encgraph_plain", "encgraph"])
def test_the_recorded_means_are_predicted_within_15_percent_on_other_draws(strategy):
    """Other draws of the profile than those measured: their tails differ, so this is no accuracy."""
    size = sizes.named("qwen3-vl-8b")
    chosen = strategies.named(strategy)
    costs = cards.price(size, on="h200", compiled=chosen.compiled, fused=chosen.fused)
    drawn = traffic.read("builtin:servegen", size, count=6000, seed=11).requests
    target = budgets.Target(size=size)
    if chosen.plan == "doubling":
        plan = budgets.doubling(64, 8192, target=target, items=64)
    else:
        limits = budgets.Limits(largest=8192, pack=chosen.packing)
        plan = budgets.fitted(drawn[:3000], target=target, costs=costs, limits=limits).best.plan
    predicted = budgets.judge(drawn[3000:], plan, costs=costs, pack=chosen.packing).mean_ms
    line = readings.summaries(store.load("h200", "bench-servegen"))[strategy]
    assert predicted == pytest.approx(line.latency.mean_ms, rel=0.15)


@pytest.mark.parametrize("ask", [cards.price, lambda size: cards.recorded(size, "h200")])
def test_a_name_in_place_of_a_size_is_said(ask):
    with pytest.raises(
        ValueError, match=r"size must be an EncoderSize, got 'qwen3-vl-8b'; .*named"
    ):
        ask("qwen3-vl-8b")
    with pytest.raises(ValueError, match="size must be an EncoderSize, got 'qwen3-vl-8b'"):
        budgets.Target(size="qwen3-vl-8b")
    with pytest.raises(ValueError, match="size must be an EncoderSize, got 'qwen3-vl-8b'"):
        traffic.read("builtin:coco", "qwen3-vl-8b")


@pytest.mark.parametrize("card", ["H200", "h200"])
def test_a_card_is_known_in_letters_of_either_case(card):
    assert cards.price(sizes.named("qwen3-vl-8b"), on=card).gpu == "NVIDIA H200"


def test_no_card_is_said_to_be_none():
    with pytest.raises(ValueError, match=r"card must be .*h200.*, got None"):
        cards.price(sizes.named("qwen3-vl-8b"), on=None)

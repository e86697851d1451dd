import pytest

from encgraph import cards, curves, sizes, store


def test_a_size_with_a_curve_is_recorded():
    costs = cards.price(sizes.named("qwen3-vl-8b"), on="h200")
    assert costs.recorded
    assert costs.source.startswith("recorded on NVIDIA H200")


def test_a_size_without_a_curve_is_modelled_and_says_so():
    costs = cards.price(sizes.named("qwen3-vl-tiny"), on="h200")
    assert not costs.recorded
    assert costs.source.startswith("modelled")


def test_an_unknown_card_names_the_known_ones():
    with pytest.raises(ValueError, match=r"card must be one of .*h200.*, got 'b300'"):
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

"""Quantiles count samples, and a measurement says what it measured with units."""

import dataclasses
import random
from typing import Any

import numpy as np
import pytest

from encgraph.results import (
    CLOCKS,
    LEAST_OF_P99,
    UNITS,
    Environment,
    Latency,
    Measurement,
    Memory,
    at_shares,
)


def latency(**fields: Any) -> Latency:
    values: dict[str, Any] = {f"p{q}_ms": 1.0 for q in (10, 50, 90, 95, 99)}
    values |= {"mean_ms": 1.0, "worst_ms": 1.0, "samples": 1, "warmups": 0, "clock": "wall"}
    return Latency(**{**values, **fields})


def test_quantiles_of_1_to_100_are_their_own_numbers() -> None:
    samples = list(range(1, 101))
    random.Random(0).shuffle(samples)
    found = Latency.of(samples, clock="device", warmups=3)
    quantiles = (found.p10_ms, found.p50_ms, found.p90_ms, found.p95_ms, found.p99_ms)
    assert quantiles == (10, 50, 90, 95, 99)
    assert (found.mean_ms, found.worst_ms, found.samples, found.warmups) == (50.5, 100, 100, 3)


def test_one_sample_is_every_quantile() -> None:
    found = Latency.of([2.5], clock="wall")
    assert {found.mean_ms, found.p10_ms, found.p50_ms, found.p99_ms, found.worst_ms} == {2.5}


def test_weights_count_a_sample_that_often() -> None:
    values, weights = [3.0, 1.0, 7.0, 2.0], [5, 2, 0, 13]
    repeated = [v for v, w in zip(values, weights, strict=True) for _ in range(w)]
    weighted = Latency.of(values, clock="predicted", weights=weights)
    counted = Latency.of(repeated, clock="predicted")
    assert weighted == dataclasses.replace(counted, samples=3)
    assert weighted.worst_ms == 3.0


def test_samples_are_counted_whatever_their_weight() -> None:
    assert Latency.of([1, 2, 3], clock="predicted", weights=[0.2] * 3).samples == 3
    assert Latency.of([1, 2, 3], clock="predicted", weights=[40, 0, 60]).samples == 2


@pytest.mark.parametrize("count", (1, 7, 32, 99))
def test_what_is_the_slowest_is_not_called_p99(count: int) -> None:
    few = Latency.of(range(1, count + 1), clock="wall")
    assert (few.tail_ms, few.tail_name) == (None, "slowest")
    assert few.p99_ms == few.worst_ms


def test_a_hundred_samples_have_a_p99() -> None:
    found = Latency.of(range(1, LEAST_OF_P99 + 1), clock="wall")
    assert (found.tail_ms, found.tail_name) == (found.p99_ms, "p99")
    assert found.tail_ms is not None and found.tail_ms < found.worst_ms


@pytest.mark.parametrize("seed", range(20))
def test_shares_are_numpys_inverted_cdf(seed: int) -> None:
    draw = np.random.default_rng(seed)
    values = draw.integers(0, 50, size=draw.integers(1, 300)).tolist()
    weights = draw.integers(1, 9, size=len(values)).tolist()
    shares = (0.05, 0.1, 0.5, 0.9, 0.99, 1.0)
    for counts in ((), weights):
        theirs = np.quantile(values, shares, method="inverted_cdf", weights=counts or None)
        assert at_shares(values, shares, counts) == theirs.tolist()


@pytest.mark.parametrize("weight", (0.1, 0.2, 0.7))
def test_weights_that_round_move_no_quantile(weight: float) -> None:
    for count in range(1, 200):
        values = list(range(count))
        equal = at_shares(values, (0.1, 0.5, 0.9, 0.99), [weight] * count)
        assert equal == at_shares(values, (0.1, 0.5, 0.9, 0.99))


@pytest.mark.parametrize("seed", range(20))
def test_a_quantile_is_the_smallest_sample_with_that_share_at_or_below(seed: int) -> None:
    draw = random.Random(seed)
    samples = sorted(draw.lognormvariate(1, 1) for _ in range(draw.randint(1, 300)))
    found = Latency.of(samples, clock="wall")
    for share, value in ((0.1, found.p10_ms), (0.9, found.p90_ms), (0.99, found.p99_ms)):
        at_or_below = sum(s <= value for s in samples)
        below = sum(s < value for s in samples)
        assert at_or_below >= share * len(samples) > below


def test_no_samples_are_no_latency() -> None:
    with pytest.raises(ValueError, match="needs samples"):
        Latency.of([], clock="wall")
    with pytest.raises(ValueError, match="needs samples"):
        Latency.of([1.0], clock="wall", weights=[0.0])
    with pytest.raises(ValueError, match="needs samples, got 0"):
        latency(samples=0)


def test_quantiles_that_decrease_are_refused() -> None:
    with pytest.raises(ValueError, match="quantiles must not decrease"):
        latency(p50_ms=2.0)
    with pytest.raises(ValueError, match="quantiles must not decrease"):
        latency(worst_ms=0.5)


def test_an_unknown_clock_is_refused() -> None:
    assert [latency(clock=c).clock for c in CLOCKS] == list(CLOCKS)
    with pytest.raises(ValueError, match=r"clock must be one of .* got 'gpu'"):
        latency(clock="gpu")


def test_memory_is_slabs_pool_and_driver_and_the_peak_is_apart() -> None:
    memory = Memory(slabs_bytes=1, pool_bytes=20, driver_bytes=300, peak_bytes=4000)
    assert memory.total_bytes == 321


def test_a_number_must_end_in_its_unit(environment: Environment) -> None:
    kept = {f"capture{unit}": 1.0 for unit in UNITS}
    measured = Measurement(experiment="x", encoder="e", environment=environment, numbers=kept)
    assert measured.numbers == kept
    with pytest.raises(ValueError, match="'capture' must end in"):
        Measurement(experiment="x", encoder="e", environment=environment, numbers={"capture": 1.0})


def test_a_measurement_cannot_exist_without_its_environment() -> None:
    with pytest.raises(TypeError, match="environment"):
        Measurement(experiment="x", encoder="e")  # type: ignore[call-arg]


def test_weights_of_another_number_than_the_samples_are_refused():
    with pytest.raises(ValueError, match="weights must be one a sample, got 1 for 2 samples"):
        Latency.of([1.0, 2.0], clock="wall", weights=[1.0])

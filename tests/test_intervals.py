import math
import random

import numpy as np
import pytest

from encgraph import intervals
from encgraph.facts import quantile


def drawn(seed: int, count: int) -> list[float]:
    source = random.Random(seed)
    return [source.lognormvariate(2, 0.6) for _ in range(count)]


def test_an_interval_holds_its_value_and_says_how_many_requests_it_is_of() -> None:
    values = drawn(0, 200)
    for found in (intervals.mean(values), intervals.quantile(values, 0.99)):
        assert found.low <= found.value <= found.high
        assert found.samples == 200
    assert intervals.quantile(values, 0.9).value == quantile(values, 0.9)
    assert intervals.mean(values).value == pytest.approx(sum(values) / 200)


def test_the_interval_of_a_mean_is_as_wide_as_theory_says() -> None:
    values = drawn(1, 400)
    found = intervals.mean(values)
    error = np.std(values) / math.sqrt(len(values))
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_most_intervals_of_a_mean_hold_the_mean_of_all_traffic() -> None:
    true = math.exp(2 + 0.6**2 / 2)
    held = [
        found.low <= true <= found.high
        for found in (intervals.mean(drawn(seed, 150)) for seed in range(120))
    ]
    assert 0.88 <= sum(held) / len(held) <= 1


def test_a_ratio_is_paired_so_that_what_slows_both_cancels() -> None:
    of = drawn(2, 100)
    noise = random.Random(3)
    over = [2 * value * noise.uniform(0.99, 1.01) for value in of]
    paired = intervals.ratio(over, of)
    apart = intervals.mean(over).high / intervals.mean(of).low
    assert 1.99 < paired.low <= paired.value <= paired.high < 2.01
    assert apart > 2.1
    assert intervals.ratio(over, of, share=0.9).value == quantile(over, 0.9) / quantile(of, 0.9)


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    values = drawn(4, 60)
    assert intervals.mean(values) == intervals.mean(values)
    assert intervals.mean(values) != intervals.mean(values, seed=1)


def test_many_requests_are_drawn_some_at_a_time_to_the_same_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = intervals.mean(drawn(5, 90))
    monkeypatch.setattr(intervals, "_AT_ONCE", 1000)
    assert intervals.mean(drawn(5, 90)) == whole


def test_what_has_no_interval_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one request, got none"):
        intervals.mean([])
    with pytest.raises(ValueError, match="two values of each request, got 1 and 2"):
        intervals.ratio([1], [1, 2])
    with pytest.raises(ValueError, match="over 0 in its denominator"):
        intervals.ratio([1], [0])
    with pytest.raises(ValueError, match=r"share must be 0 to 1, got 1\.5"):
        intervals.quantile([1], 1.5)

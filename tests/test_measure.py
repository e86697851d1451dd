from collections import Counter
from itertools import pairwise

import pytest
import torch
from helpers import batch, plan, tiny

from encgraph import measure
from encgraph.measure import Recorder
from encgraph.records import FallbackReason, Route
from encgraph.runner import EncoderRunner

CPU = torch.device("cpu")


def test_a_recorder_keeps_every_step_with_its_time():
    encoder, recorder = tiny(), Recorder(CPU)
    with EncoderRunner(
        encoder=encoder, plan=plan(16, 64), backend="reference", observe=recorder
    ) as runner:
        runner.capture()
        runner.execute(batch([(8, 8), (40, 40)], encoder))
    routes = [timed.step.route for timed in recorder.steps]
    assert routes == [Route.CAPTURE, Route.CAPTURE, Route.REPLAY, Route.FALLBACK]
    assert recorder.steps[-1].step.reason is FallbackReason.OVER_TOKENS
    assert all(timed.ms > 0 and timed.device_ms is None for timed in recorder.steps)


def test_a_step_that_raises_is_not_recorded_as_done():
    recorder = Recorder(CPU)
    encoder = tiny()
    runner = EncoderRunner(encoder=encoder, plan=plan(), backend="reference", observe=recorder)
    encoder.module.train()
    with pytest.raises(ValueError, match="eval mode"):
        runner.execute(batch([(8, 8)], encoder))
    assert recorder.steps == []


def test_interleaving_turns_the_order_and_counts_every_run():
    order = []
    systems = {name: lambda _, name=name: order.append(name) or [] for name in ("a", "b", "c")}
    found = measure.interleaved(systems, [[], []], device=CPU, repeats=3, warmups=1)
    assert {name: [one.samples for one in times] for name, times in found.items()} == {
        name: [3, 3] for name in systems
    }
    firsts = order[::3]
    assert len(order) == 2 * 4 * 3
    assert set(firsts) == {"a", "b", "c"}


def orders(names, requests, repeats):
    """The order of each round, request by request."""
    for index in range(requests):
        ran = [name for name, _ in measure.turns(names, index=index, repeats=repeats)]
        assert sorted(ran) == sorted(list(names) * (repeats + 1))
        yield from (ran[at : at + len(names)] for at in range(0, len(ran), len(names)))


@pytest.mark.parametrize("count", range(2, 12))
def test_every_system_follows_every_other_equally_often_and_stands_in_every_place(count):
    names = "abcdefghijkl"[:count]
    rounds = list(orders(names, requests=2 * count, repeats=5))
    places = Counter((name, place) for row in rounds for place, name in enumerate(row))
    follows = Counter(pair for row in rounds for pair in pairwise(row))
    assert set(places.values()) == {len(rounds) // count}
    assert len(follows) == count * (count - 1)
    assert set(follows.values()) == {len(rounds) // count}


def test_with_more_systems_than_repeats_neighbours_still_change_from_request_to_request():
    rounds = list(orders("abcdef", requests=32, repeats=5))
    for name in "abcdef":
        before = Counter(row[row.index(name) - 1] for row in rounds if row[0] != name)
        assert len(before) == 5
        assert max(before.values()) < 1.5 * min(before.values())
    assert rounds[:6] != rounds[6:12]
    assert rounds == list(orders("abcdef", requests=32, repeats=5))


def test_requests_given_one_by_one_are_in_the_order_of_all_together():
    def ran(*given):
        order = []
        systems = {name: lambda _, name=name: order.append(name) or [] for name in "abcdef"}
        for first, batches in given:
            measure.interleaved(systems, batches, device=CPU, repeats=2, first=first)
        return order

    assert ran((0, [[], [], []])) == ran((0, [[]]), (1, [[]]), (2, [[]]))
    assert ran((0, [[]])) != ran((1, [[]]))


def test_no_repeat_is_refused():
    with pytest.raises(ValueError, match="repeats must be at least 1, got 0"):
        measure.interleaved({}, [], device=CPU, repeats=0)


def test_jitter_has_as_many_samples_of_each():
    encoder = tiny()
    with EncoderRunner(encoder=encoder, plan=plan(16), backend="reference") as runner:
        runner.capture()
        found = measure.jitter(
            runner.execute,
            batch([(8, 8)], encoder),
            batch([(16, 16)], encoder),
            device=CPU,
            samples=3,
        )
    lengths = {
        len(found.replay_alone_ms),
        len(found.replay_alternating_ms),
        len(found.fallback_alone_ms),
        len(found.fallback_alternating_ms),
    }
    assert lengths == {3}

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

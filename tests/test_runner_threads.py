"""A runner that several threads share, and that its own observer calls."""

import threading
from contextlib import contextmanager, nullcontext, suppress
from functools import partial

import pytest
import torch
from helpers import BACKENDS, TINY, batch, close, plan, tiny

from encgraph import calibrating, exact, packing
from encgraph.errors import StaleBufferError
from encgraph.layouts import Keep
from encgraph.runner import EncoderRunner

SOON_S = 0.2
"""How long threads may take to meet that nothing keeps apart."""


class Calls:
    """An adapter that calls something after each fill."""

    def __init__(self, encoder):
        self.encoder, self.filled = encoder, lambda: None

    def __getattr__(self, name):
        return getattr(self.encoder, name)

    def fill(self, buffers, inputs):
        self.encoder.fill(buffers, inputs)
        self.filled()


def meeting(parties):
    """Threads that can meet here do; where one is kept out, the others go on."""
    barrier = threading.Barrier(parties)

    def meet():
        try:
            barrier.wait(SOON_S)
        except threading.BrokenBarrierError:
            return

    return meet


def in_threads(calls):
    """Run each in a thread of its own; returns what they gave."""
    found = {}

    def keep(index, call):
        found[index] = call()

    threads = [threading.Thread(target=keep, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[index] for index in range(len(threads))]


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_batch_is_filled_while_a_calibration_has_filled_its_own(backend):
    encoder = Calls(tiny(backend))
    barrier, met = threading.Barrier(2), []

    def meet():
        with suppress(threading.BrokenBarrierError):
            met.append(barrier.wait(SOON_S))

    one = batch([(8, 8)], encoder, seed=3)
    with EncoderRunner(encoder=encoder, plan=plan(16, 64), backend=backend) as runner:
        runner.capture()
        right = runner.execute(one)
        encoder.filled = meet
        calls = [partial(calibrating.calibrate, runner, TINY), partial(runner.execute, one)]
        _, answer = in_threads(calls)
        assert not met
    assert close(answer[0], right[0], encoder)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("by_layout", [False, True])
def test_threads_get_their_own_answers(backend, by_layout):
    encoder = Calls(tiny(backend))
    layouts = partial(exact.open_set, keep=Keep(min_hits=1), backend=backend)
    runner = EncoderRunner(
        encoder=encoder,
        plan=plan() if by_layout else plan(16, 64),
        backend=backend,
        layouts=layouts if by_layout else None,
    )
    batches = [batch([(8, 8)], encoder, seed=seed) for seed in range(3)]
    with runner:
        runner.capture()
        right = [runner.execute(one) for one in batches]
        encoder.filled = meeting(len(batches))
        mine = in_threads([partial(runner.execute, one) for one in batches])
    for [got], [expected] in zip(mine, right, strict=True):
        assert close(got, expected, encoder)


def test_graphs_are_not_cleared_under_a_batch():
    encoder, done = Calls(tiny()), threading.Event()
    runner = EncoderRunner(encoder=encoder, plan=plan(16), backend="reference")
    with runner:
        runner.capture()
        [right] = runner.execute(batch([(8, 8)], encoder))

        def clear():
            runner.clear()
            done.set()

        other = threading.Thread(target=clear)

        def filled():
            other.start()
            assert not done.wait(SOON_S)

        encoder.filled = filled
        [mine] = runner.execute(batch([(8, 8)], encoder))
        other.join()
        assert close(mine, right, encoder)
        assert not runner.has_graphs


CALLS = {
    "execute": lambda runner, given: runner.execute(given),
    "execute_each": lambda runner, given: runner.execute_each(given),
    "borrow": lambda runner, given: runner.borrow(given),
    "capture": lambda runner, given: runner.capture(),
    "clear": lambda runner, given: runner.clear(),
    "pack_by": lambda runner, given: runner.pack_by(packing.packer),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("side", [(8, 8), (16, 16)])
def test_an_observer_that_calls_its_own_runner_is_refused(name, side):
    encoder = tiny()
    given = batch([side], encoder)
    runner = EncoderRunner(encoder=encoder, plan=plan(16), backend="reference")

    def observe(step):
        CALLS[name](runner, given)
        return nullcontext()

    with runner:
        runner.capture()
        [right] = runner.execute(given)
        runner.observe = observe
        with pytest.raises(RuntimeError, match="an observer cannot call the runner it observes"):
            runner.execute(given)
        runner.observe = lambda step: nullcontext()
        [mine] = runner.execute(given)
        assert close(mine, right, encoder)


def test_an_observer_of_a_capture_is_refused_and_nothing_is_held():
    encoder = tiny()
    runner = EncoderRunner(encoder=encoder, plan=plan(16), backend="reference")

    @contextmanager
    def observe(step):
        runner.clear()
        yield

    runner.observe = observe
    with runner:
        with pytest.raises(RuntimeError, match="an observer cannot call"):
            runner.capture()
        assert runner.memory.total_bytes == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_borrowed_output_is_stale_from_when_it_begins_to_be_overwritten(backend):
    encoder = Calls(tiny(backend))
    seen = []
    with EncoderRunner(encoder=encoder, plan=plan(16), backend=backend) as runner:
        runner.capture()
        [borrowed] = runner.borrow(batch([(8, 8)], encoder))
        assert torch.isfinite(borrowed.tensor().main).all()

        def filled():
            with pytest.raises(StaleBufferError, match="was overwritten"):
                borrowed.tensor()
            seen.append(True)

        encoder.filled = filled
        runner.execute(batch([(8, 8)], encoder))
    assert seen == [True]

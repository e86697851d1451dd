"""Invariants of the runner, by name, on the reference backend and on a card where there is one."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch
from helpers import BACKENDS, batch, close, plan, tiny

from encgraph import exact, packing
from encgraph.encoders.protocol import Input
from encgraph.errors import CaptureError, StaleBufferError
from encgraph.layouts import Keep
from encgraph.records import FallbackReason, Route
from encgraph.runner import EncoderRunner

MIXED = [(16, 16), (8, 8), (4, 8, 8), (4, 4), (40, 40), (12, 16), (8, 8)]


def runner_of(encoder, backend, *budgets, **options):
    runner = EncoderRunner(encoder=encoder, plan=plan(*budgets), backend=backend, **options)
    runner.capture()
    return runner


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ownership", ["one_copy", "clone_each"])
@pytest.mark.parametrize("slabs", ["shared", "private"])
def test_outputs_come_back_in_batch_order(backend, ownership, slabs):
    encoder = tiny(backend)
    inputs = batch(MIXED, encoder)
    with runner_of(encoder, backend, 16, 64, 128, ownership=ownership, slabs=slabs) as runner:
        outputs = runner.execute(inputs)
        for value, output in zip(inputs, outputs, strict=True):
            [alone] = encoder.eager([value])
            assert close(output, alone, encoder)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ownership", ["one_copy", "clone_each"])
def test_outputs_are_owned_by_the_caller(backend, ownership):
    encoder = tiny(backend)
    with runner_of(encoder, backend, 16, 64, ownership=ownership) as runner:
        first = runner.execute(batch([(8, 8)], encoder, seed=1))
        kept = [t.clone() for t in first[0].tensors]
        runner.execute(batch([(8, 8)], encoder, seed=2))
        runner.execute(batch([(16, 16)], encoder, seed=3))
        runner.clear()
        assert all(torch.equal(a, b) for a, b in zip(first[0].tensors, kept, strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_borrowed_output_expires_loudly(backend):
    encoder = tiny(backend)
    with runner_of(encoder, backend, 16, 64) as runner:
        [borrowed] = runner.borrow(batch([(8, 8)], encoder, seed=1))
        [owned] = runner.execute(batch([(8, 8)], encoder, seed=1))
        with pytest.raises(StaleBufferError, match="item 0 was overwritten"):
            borrowed.tensor()
        [again] = runner.borrow(batch([(8, 8)], encoder, seed=1))
        assert torch.equal(again.tensor().main, owned.main)
        runner.clear()
        with pytest.raises(StaleBufferError):
            again.tensor()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fallback_always_has_a_reason(backend):
    steps = []

    def observe(step):
        steps.append(step)
        return nullcontext()

    encoder = tiny(backend)
    with runner_of(encoder, backend, 16, 64, observe=observe) as runner:
        runner.execute(batch([(40, 40), (8, 8)], encoder))
        [fallback] = [s for s in steps if s.route is Route.FALLBACK]
        assert fallback.reason is FallbackReason.OVER_TOKENS
        assert fallback.items == 1
        assert fallback.reasons == {}
        runner.clear()
        runner.execute(batch([(8, 8)], encoder))
        assert steps[-1].reason is FallbackReason.NOT_CAPTURED


def test_a_fallback_carries_every_reason_with_its_items():
    steps = []

    def observe(step):
        steps.append(step)
        return nullcontext()

    encoder = tiny()
    clips = [(8, 4, 4), (2, 40, 40), (2, 4, 4), (6, 4, 4)]
    runner = EncoderRunner(
        encoder=encoder, plan=plan(64, frames=4), backend="reference", observe=observe
    )
    with runner:
        runner.capture()
        runner.execute(batch(clips, encoder))
    [step] = [s for s in steps if s.route is Route.FALLBACK]
    assert step.reason is FallbackReason.OVER_TOKENS
    assert {reason: (load.items, load.tokens) for reason, load in step.reasons.items()} == {
        FallbackReason.OVER_SEGMENTS: (2, 8 * 4 + 6 * 4),
        FallbackReason.OVER_TOKENS: (1, 2 * 400),
    }


def test_without_a_plan_eager_is_no_fallback():
    steps = []

    def observe(step):
        steps.append(step)
        return nullcontext()

    encoder = tiny()
    runner = EncoderRunner(encoder=encoder, plan=plan(), backend="reference", observe=observe)
    runner.capture()
    runner.execute(batch([(8, 8)], encoder))
    assert not runner.has_graphs
    assert [s.route for s in steps] == [Route.EAGER]


@pytest.mark.parametrize("backend", BACKENDS)
def test_more_frames_than_captured_fall_back(backend):
    encoder = tiny(backend)
    inputs = batch([(12, 4, 4)], encoder)
    steps = []

    def observe(step):
        steps.append(step)
        return nullcontext()

    with runner_of(encoder, backend, 64, observe=observe) as runner:
        [output] = runner.execute(inputs)
        assert steps[-1].reason in (FallbackReason.OVER_SEGMENTS, FallbackReason.OVER_FRAMES)
        assert close(output, encoder.eager(inputs)[0], encoder)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failed_budget_is_never_packed(backend):
    encoder = tiny(backend)
    with runner_of(encoder, backend, 16, 64, 128) as runner:
        runner.graphs.graphs[1].is_captured = False
        runner._packer = runner.packer(runner.graphs.captured_plan)
        outputs = runner.execute(batch([(12, 12)], encoder))
        assert close(outputs[0], encoder.eager(batch([(12, 12)], encoder))[0], encoder)


def test_an_empty_batch_is_empty():
    encoder = tiny()
    with runner_of(encoder, "reference", 16) as runner:
        assert runner.execute([]) == []


def test_what_is_not_an_input_is_named():
    with (
        runner_of(tiny(), "reference", 16) as runner,
        pytest.raises(TypeError, match="item 1 must be an Input, got Tensor"),
    ):
        encoder = tiny()
        runner.execute([*batch([(8, 8)], encoder), torch.zeros(3)])


def test_a_batch_that_is_no_sequence_is_said():
    encoder = tiny()
    with runner_of(encoder, "reference", 16) as runner:
        for encode in (runner.execute, runner.execute_each, runner.borrow):
            for bad, name in ((None, "NoneType"), (batch([(8, 8)], encoder)[0], "Input")):
                with pytest.raises(TypeError, match=f"batch must be a sequence .*, got {name}"):
                    encode(bad)


def test_an_observer_that_returns_nothing_is_named():
    encoder = tiny()
    said = "observe must return a context manager, got NoneType; @contextlib.contextmanager"
    with runner_of(encoder, "reference", 16) as runner:
        runner.observe = lambda step: None
        with pytest.raises(TypeError, match=said):
            runner.execute(batch([(8, 8)], encoder))
        with pytest.raises(TypeError, match=said):
            runner.execute(batch([(64, 64)], encoder))
        with pytest.raises(TypeError, match=said):
            runner.capture()


def test_an_input_that_contradicts_itself_is_named():
    encoder = tiny()
    [good] = batch([(8, 8)], encoder)
    bad = Input(item=good.item, pixels=good.pixels[:-1], grid=good.grid)
    with runner_of(encoder, "reference", 16) as runner, pytest.raises(ValueError, match="item 1"):
        runner.execute([good, bad])


def test_hooks_refuse_capture_by_name():
    encoder = tiny()
    encoder.module.blocks[2].register_forward_hook(lambda *args: None)
    runner = EncoderRunner(encoder=encoder, plan=plan(16), backend="reference")
    with pytest.raises(CaptureError, match=r"'blocks\.2' has forward hooks"):
        runner.capture()
    assert not runner.has_graphs


@pytest.mark.parametrize("backend", BACKENDS)
def test_capturing_again_frees_first(backend):
    encoder = tiny(backend)
    with runner_of(encoder, backend, 16, 64) as runner:
        before = runner.memory.slabs_bytes
        old = runner.graphs
        runner.capture()
        assert old.state == "cleared"
        assert runner.memory.slabs_bytes == before
        runner.execute(batch([(8, 8)], encoder))


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_packing_gives_the_same_outputs(backend):
    encoder = tiny(backend)
    inputs = batch([(8, 8), (12, 16), (4, 4), (16, 16)], encoder)
    results = []
    for rule in ("ascending", "first_fit_decreasing", "one_each"):
        packer = partial(packing.packer, rule=rule)
        with runner_of(encoder, backend, 16, 64, 128, packer=packer) as runner:
            results.append(runner.execute(inputs))
    for other in results[1:]:
        for mine, theirs in zip(results[0], other, strict=True):
            assert close(mine, theirs, encoder)


def test_a_packer_that_cannot_be_made_leaves_the_one_before():
    encoder = tiny()
    with runner_of(encoder, "reference", 16, 64) as runner:
        before = runner.packer
        with pytest.raises(ValueError, match="no_such_rule"):
            runner.pack_by(partial(packing.packer, rule="no_such_rule"))
        assert runner.packer is before
        assert len(runner.execute(batch([(8, 8)], encoder))) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_packer_that_cannot_be_made_leaves_nothing_captured(backend):
    encoder, steps = tiny(backend), []
    runner = EncoderRunner(
        encoder=encoder,
        plan=plan(16, 64),
        backend=backend,
        packer=partial(packing.packer, rule="cheapest"),
        observe=lambda step: steps.append(step) or nullcontext(),
    )
    with runner:
        with pytest.raises(ValueError, match="costs"):
            runner.capture()
        assert not runner.has_graphs
        assert runner.memory.total_bytes == 0
        runner.pack_by(partial(packing.packer, rule="ascending"))
        runner.capture()
        runner.execute(batch([(8, 8)], encoder))
    assert steps[-1].route is Route.REPLAY


def test_graphs_by_exact_layout_go_on_packing_themselves():
    encoder, steps = tiny(), []
    runner = EncoderRunner(
        encoder=encoder,
        plan=plan(),
        backend="reference",
        layouts=lambda e: exact.open_set(e, keep=Keep(min_hits=1), backend="reference"),
        observe=lambda step: steps.append(step) or nullcontext(),
    )
    with runner:
        runner.capture()
        runner.execute(batch([(8, 8)], encoder))
        runner.pack_by(partial(packing.packer, rule="ascending"))
        runner.execute(batch([(4, 4)], encoder))
    assert [step.route for step in steps] == [Route.REPLAY] * 2

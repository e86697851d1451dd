"""A model runner's life: two at once, a new plan, and shutdown at any moment."""

import gc
import threading
import weakref
from typing import Any

import pytest
import torch
from helpers import BACKENDS, plan
from helpers_model_runner import answers, batch_of_three, generated, runner, tiny_model

from encgraph.measure import Recorder
from encgraph.records import Modality, Route


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model()


def test_two_runners_of_one_model_do_not_disturb_each_other(model: Any) -> None:
    ours, theirs = batch_of_three(model), batch_of_three(model, seed=2)
    with runner(model) as a, runner(model, plan=plan(16)) as b:
        a.capture()
        b.capture()
        first = answers(a, ours)
        other = answers(b, theirs)
        assert answers(a, ours) == first == [generated(model, p, 3) for p in ours]
        assert other == [generated(model, p, 3) for p in theirs]
        a.shutdown()
        assert answers(b, theirs) == other


@pytest.mark.parametrize("backend", BACKENDS)
def test_shutdown_returns_the_memory_once(backend: str) -> None:
    model = tiny_model(backend)
    made = runner(model, backend=backend)
    report = made.capture()
    made.generate(batch_of_three(model), new_tokens=2)
    held = made.encoders.memory.total_bytes + made.decoder.slabs.num_bytes
    slabs = [weakref.ref(t) for pair in made.decoder.slabs.layers for t in pair]
    slabs += [weakref.ref(t) for t in made.encoders.graphs.slabs]
    cached = made.cache.facts.held_bytes
    before = torch.cuda.memory_reserved() if backend == "cuda" else 0
    freed = made.shutdown()
    gc.collect()
    assert freed >= held + cached
    assert freed == report.total_bytes + report.key_value_bytes + cached
    assert [ref for ref in slabs if ref() is not None] == []
    if backend == "cuda":
        assert before - torch.cuda.memory_reserved() > 0
    assert made.shutdown() == 0
    with pytest.raises(RuntimeError, match="was shut down before a request"):
        made.generate(batch_of_three(model), new_tokens=1)


def test_shutdown_from_within_a_request_ends_it_and_frees_as_it_unwinds(model: Any) -> None:
    recorder = Recorder(torch.device("cpu"))

    def observe(step: Any) -> Any:
        if step.modality == Modality.TEXT and step.route == Route.REPLAY:
            assert made.shutdown() == 0
        return recorder(step)

    made = runner(model, observe=observe)
    made.capture()
    slabs = [weakref.ref(t) for pair in made.decoder.slabs.layers for t in pair]
    with pytest.raises(RuntimeError, match="shut down before token 2 of 8"):
        made.generate(batch_of_three(model), new_tokens=8)
    gc.collect()
    assert made.decoder is None
    assert [ref for ref in slabs if ref() is not None] == []


def test_shutdown_from_another_thread_waits_for_the_stage_and_returns_the_bytes(
    model: Any,
) -> None:
    decoding, freed = threading.Event(), []

    def observe(step: Any) -> Any:
        if step.modality == Modality.TEXT and step.route == Route.REPLAY:
            decoding.set()
            while not made._is_closing:
                pass
        return recorder(step)

    recorder = Recorder(torch.device("cpu"))
    made = runner(model, observe=observe)
    made.capture()

    def close() -> None:
        decoding.wait(30)
        freed.append(made.shutdown())

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(RuntimeError, match="shut down before token 2 of 8"):
        made.generate(batch_of_three(model), new_tokens=8)
    closer.join(30)
    assert freed[0] > 0


def test_a_new_plan_frees_the_old_graphs_before_it_captures(model: Any) -> None:
    alive: list[int] = []
    old: list[weakref.ref[torch.Tensor]] = []

    def observe(step: Any) -> Any:
        alive.append(sum(ref() is not None for ref in old))
        return recorder(step)

    recorder = Recorder(torch.device("cpu"))
    with runner(model, observe=observe) as made:
        made.capture()
        old += [weakref.ref(t) for t in made.encoders.graphs.slabs]
        old += [weakref.ref(g.output) for g in made.decoder.graphs]
        alive.clear()
        report = made.capture(plan(16), batch_sizes=(2,))
        assert set(alive) == {0}
        assert (report.encoder.graphs, report.decoder.graphs) == (1, 1)
        batch = batch_of_three(model)
        assert answers(made, batch[:2], 4) == [generated(model, p, 4) for p in batch[:2]]
        with pytest.raises(ValueError, match="batch_sizes must be 1 to 4"):
            made.capture(batch_sizes=(8,))

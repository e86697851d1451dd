"""Graphs by exact layout: when they are made, kept, dropped, and that they are right."""

import weakref

import pytest
import torch
from helpers import BACKENDS, batch, close, tiny

from encgraph import capturing, exact
from encgraph.errors import CaptureError, StaleBufferError
from encgraph.graphs import State
from encgraph.layouts import Keep, earned, layout_of
from encgraph.records import FallbackReason, Plan, Route
from encgraph.runner import EncoderRunner

SMALL, MIDDLE, LARGE = (8, 8), (12, 16), (16, 16)


def opened(encoder, backend="reference", **keep):
    return exact.open_set(encoder, Keep(**keep), backend=backend)


def items(encoder, grids):
    return [encoder.item_spec(value) for value in batch(grids, encoder)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_layout_is_captured_at_its_second_batch_and_equals_eager(backend):
    encoder = tiny(backend)
    with opened(encoder, backend) as made:
        grids = [SMALL, (4, 4, 6)]
        assert made.pack(items(encoder, grids)).fallback[0].reason is FallbackReason.NOT_CAPTURED
        assert not made.is_captured
        [part] = made.pack(items(encoder, grids)).bins
        assert part.padding_tokens == 0
        assert part.items == (0, 1)
        inputs = batch(grids, encoder, seed=3)
        packed = made.replay(part.capacity, inputs)
        eager = torch.cat([torch.cat(o.tensors, dim=1) for o in encoder.eager(inputs)])
        bound = 1e-5 if backend == "reference" else 3e-2
        assert torch.linalg.vector_norm(
            (packed - eager).float()
        ) <= bound * torch.linalg.vector_norm(eager.float())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pools", ["private", "one"])
def test_one_capacity_in_two_orders_is_two_layouts(backend, pools):
    encoder = tiny(backend)
    with opened(encoder, backend, min_hits=1, pools=pools) as made:
        for grids in ([SMALL, LARGE], [LARGE, SMALL]):
            [part] = made.pack(items(encoder, grids)).bins
            inputs = batch(grids, encoder, seed=1)
            packed = made.replay(part.capacity, inputs)
            eager = torch.cat([torch.cat(o.tensors, dim=1) for o in encoder.eager(inputs)])
            torch.testing.assert_close(packed.float(), eager.float(), rtol=0.1, atol=0.1)
        assert len(made.graphs) == 2
        assert len(made.captured_plan.graphs) == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pools", ["private", "one"])
def test_the_layout_unused_longest_makes_way(backend, pools):
    encoder = tiny(backend)
    with opened(encoder, backend, min_hits=1, max_graphs=2, pools=pools) as made:
        for grids in ([SMALL], [MIDDLE], [SMALL], [LARGE]):
            made.pack(items(encoder, grids))
        assert made.evicted == 1
        made.frozen = True
        assert made.pack(items(encoder, [MIDDLE])).fallback
        assert made.pack(items(encoder, [SMALL])).bins
        assert made.pack(items(encoder, [LARGE])).bins


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("pools", ["private", "one"])
def test_the_only_graph_makes_way_and_comes_back(backend, pools):
    encoder = tiny(backend)
    with opened(encoder, backend, min_hits=1, max_graphs=1, pools=pools) as made:
        for grids in ([SMALL], [LARGE], [SMALL]):
            [part] = made.pack(items(encoder, grids)).bins
            inputs = batch(grids, encoder, seed=1)
            packed = made.replay(part.capacity, inputs)
            eager = torch.cat([torch.cat(o.tensors, dim=1) for o in encoder.eager(inputs)])
            torch.testing.assert_close(packed.float(), eager.float(), rtol=0.1, atol=0.1)
        assert (len(made.graphs), made.evicted) == (1, 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_evicted_graph_is_gone_before_the_next_is_captured(backend):
    encoder, alive = tiny(backend), []

    def record(encoder, graph):
        alive.append([ref() is not None for ref in seen])
        seen.append(weakref.ref(graph.output))
        with capturing.session(backend, encoder.spec.device) as recorded:
            recorded(encoder, graph)

    seen = []
    keep = Keep(min_hits=1, max_graphs=1)
    with exact.open_set(encoder, keep, backend=backend, record=record) as made:
        for grids in ([SMALL], [MIDDLE], [LARGE]):
            assert made.pack(items(encoder, grids)).bins
    assert alive == [[], [False], [False, False]]


@pytest.mark.parametrize("stopped_by", [torch.OutOfMemoryError("no room"), ValueError("too long")])
def test_a_layout_without_buffers_leaves_a_set_that_holds_nothing(stopped_by):
    encoder = NoBuffers(tiny(), 64, stopped_by)
    with opened(encoder, min_hits=1, max_graphs=1) as made:
        assert made.pack(items(encoder, [SMALL])).bins
        for _ in range(2):
            packed = made.pack(items(encoder, [LARGE]))
            assert packed.fallback[0].reason is FallbackReason.CAPTURE_FAILED
        assert made.memory.total_bytes == 0
        assert (made.graphs, made.captured_plan.graphs, made.is_captured) == ([], (), False)
        assert encoder.tries == 1
        assert made.pack(items(encoder, [SMALL])).bins


class NoBuffers:
    """An adapter that cannot allocate the buffers of one number of tokens."""

    def __init__(self, encoder, tokens, error):
        self.encoder, self.tokens, self.error, self.tries = encoder, tokens, error, 0

    def __getattr__(self, name):
        return getattr(self.encoder, name)

    def buffers(self, capacity, device, dtype):
        if capacity.tokens == self.tokens:
            self.tries += 1
            raise self.error
        return self.encoder.buffers(capacity, device, dtype)


def test_only_the_layouts_that_came_last_are_remembered(monkeypatch):
    monkeypatch.setattr(exact, "REMEMBERED", 2)
    encoder = Breaks(tiny(), 16)
    with opened(encoder, min_hits=2) as made:
        for grids in ([SMALL], [MIDDLE], [LARGE], [(4, 4)]):
            assert made.pack(items(encoder, grids)).fallback
        assert list(made.hits) == [layout_of(items(encoder, g)) for g in ([LARGE], [(4, 4)])]
        assert made.pack(items(encoder, [LARGE])).bins
        for _ in range(2):
            made.pack(items(encoder, [SMALL]))
        assert list(made.failures) == [layout_of(items(encoder, [SMALL]))]
        assert made.pack(items(encoder, [LARGE])).bins
        for tokens in (8, 12, 16):
            exact._remember(made.failures, ((tokens, 4 * tokens, 1),), "why")
        assert len(made.failures) == 2


def test_an_observer_that_returns_nothing_is_named():
    encoder = tiny()
    made = exact.open_set(encoder, Keep(min_hits=1), backend="reference", observe=lambda step: None)
    with made, pytest.raises(TypeError, match="observe must return a context manager"):
        made.pack(items(encoder, [SMALL]))


def test_without_eviction_the_first_stay():
    encoder = tiny()
    with opened(encoder, min_hits=1, max_graphs=1, evict=False) as made:
        made.pack(items(encoder, [SMALL]))
        assert made.pack(items(encoder, [LARGE])).fallback[0].reason is FallbackReason.NOT_CAPTURED
        assert made.pack(items(encoder, [SMALL])).bins
        assert made.evicted == 0


def test_a_batch_over_the_limit_says_tokens():
    encoder = tiny()
    with opened(encoder, min_hits=1, max_tokens=16) as made:
        assert made.pack(items(encoder, [LARGE])).fallback[0].reason is FallbackReason.OVER_TOKENS


class Breaks:
    """An adapter whose forward cannot take one number of tokens."""

    def __init__(self, encoder, tokens):
        self.encoder, self.tokens, self.tries = encoder, tokens, 0

    def __getattr__(self, name):
        return getattr(self.encoder, name)

    def forward(self, buffers, capacity):
        if capacity.tokens == self.tokens:
            self.tries += 1
            raise RuntimeError("a shape this encoder cannot take")
        return self.encoder.forward(buffers, capacity)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failure_is_remembered_and_not_tried_again(backend):
    encoder = Breaks(tiny(backend), 16)
    with opened(encoder, backend, min_hits=1) as made:
        for _ in range(3):
            packed = made.pack(items(encoder, [SMALL]))
            assert packed.fallback[0].reason is FallbackReason.CAPTURE_FAILED
        assert encoder.tries == 1
        assert "a shape this encoder cannot take" in next(iter(made.failures.values()))
        assert made.pack(items(encoder, [LARGE])).bins
        assert made.state is State.PARTIAL


def test_what_was_not_packed_cannot_be_replayed():
    encoder = tiny()
    with opened(encoder, min_hits=1) as made:
        [part] = made.pack(items(encoder, [SMALL, LARGE])).bins
        with pytest.raises(CaptureError, match="pack the batch first"):
            made.replay(part.capacity, batch([MIDDLE], encoder))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rebound_weight_is_refused_at_replay_and_before_another_capture(backend):
    encoder = tiny(backend)
    with opened(encoder, backend, min_hits=1) as made:
        [part] = made.pack(items(encoder, [SMALL])).bins
        linear = encoder.module.blocks[1].mlp.linear_fc1
        linear.weight = torch.nn.Parameter(linear.weight.clone())
        with pytest.raises(StaleBufferError, match="linear_fc1"):
            made.replay(part.capacity, batch([SMALL], encoder))
        with pytest.raises(StaleBufferError, match="linear_fc1"):
            made.pack(items(encoder, [LARGE]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cleared_set_holds_and_makes_nothing(backend):
    encoder = tiny(backend)
    made = opened(encoder, backend, min_hits=1)
    made.pack(items(encoder, [SMALL]))
    assert made.memory.slabs_bytes > 0
    assert made.clear() > 0
    assert made.memory.total_bytes == 0
    assert made.pack(items(encoder, [SMALL])).fallback
    assert made.state is State.CLEARED


def test_earlier_traffic_earns_the_commonest_layouts_and_freezes():
    encoder = tiny()
    seen = [items(encoder, [grid]) for grid in (SMALL, LARGE, SMALL, LARGE, SMALL, MIDDLE)]
    assert earned(seen, Keep(max_graphs=1)) == [seen[0]]
    with opened(encoder) as made:
        assert made.warm(seen) == 2
        assert [g.capacity.tokens for g in made.graphs] == [64, 16]
        for _ in range(3):
            assert made.pack(items(encoder, [MIDDLE])).fallback


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_runner_on_layouts_replays_what_came_back_and_tells_why_not(backend):
    steps = []

    def observe(step):
        steps.append(step)
        return exact.graphs.unobserved(step)

    encoder = tiny(backend)
    runner = EncoderRunner(
        encoder=encoder,
        plan=Plan(graphs=(), encoder="qwen3-vl-tiny"),
        backend=backend,
        observe=observe,
        layouts=lambda one: exact.open_set(one, Keep(), backend=backend, observe=observe),
    )
    inputs = batch([SMALL, LARGE], encoder)
    with runner:
        runner.capture()
        first, second = runner.execute(inputs), runner.execute(inputs)
        assert [s.route for s in steps] == [Route.FALLBACK, Route.CAPTURE, Route.REPLAY]
        assert steps[0].reason is FallbackReason.NOT_CAPTURED
        assert all(close(a, b, encoder) for a, b in zip(first, second, strict=True))
        assert runner.memory.slabs_bytes > 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"min_hits": 0}, "min_hits must be at least 1, got 0"),
        ({"max_graphs": 0}, "max_graphs must be at least 1"),
        ({"pools": "two"}, "'private' or 'one', got 'two'"),
    ],
)
def test_limits_are_checked(wrong, said):
    with pytest.raises(ValueError, match=said):
        Keep(**wrong)


def test_the_cuda_backend_is_never_swapped():
    with pytest.raises(ValueError, match="needs an encoder on a CUDA device"):
        opened(tiny(), "cuda")
    with pytest.raises(ValueError, match="got 'gpu'"):
        opened(tiny(), "gpu")


def test_a_layout_keeps_order_and_segments():
    encoder = tiny()
    assert layout_of(items(encoder, [(8, 8), (2, 4, 4)])) == ((16, 64, 1), (8, 32, 2))

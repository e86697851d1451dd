"""The invariants of graph sets, by name, on the reference backend and on a card where there is one."""

import math

import pytest
import torch
from helpers import BACKENDS, Breaks, batch, device_of, plan, tiny

from encgraph import graphs
from encgraph.checks import poison
from encgraph.errors import CaptureError, StaleBufferError
from encgraph.graphs import State
from encgraph.records import Modality, Plan, Route

SMALL, MIDDLE, LARGE = (8, 8), (12, 16), (16, 16)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("slabs", ["shared", "private"])
def test_buffer_addresses_never_change(backend, slabs):
    encoder = tiny(backend)
    with graphs.capture(encoder, plan(16, 64, 128), backend=backend, slabs=slabs) as made:

        def addresses():
            return [t.data_ptr() for g in made.graphs for t in (*g.buffers.values(), g.output)]

        before = addresses()
        for grids in ([SMALL], [LARGE, MIDDLE], [SMALL, SMALL]):
            inputs = batch(grids, encoder)
            tokens = sum(i.item.tokens for i in inputs)
            fit = next(g for g in made.graphs if g.capacity.tokens >= tokens)
            made.replay(fit.capacity, inputs)
        assert addresses() == before


@pytest.mark.parametrize("backend", BACKENDS)
def test_shared_slabs_are_prefix_views_of_one_another(backend):
    encoder = tiny(backend)
    shared = graphs.capture(encoder, plan(16, 64, 128), backend=backend)
    private = graphs.capture(encoder, plan(16, 64, 128), backend=backend, slabs="private")
    assert len({g.output.data_ptr() for g in shared.graphs}) == 1
    assert len({g.output.data_ptr() for g in private.graphs}) == 3
    assert shared.memory.slabs_bytes < 0.7 * private.memory.slabs_bytes


@pytest.mark.parametrize("backend", BACKENDS)
def test_poisoned_padding_changes_nothing(backend):
    encoder = tiny(backend)
    with graphs.capture(encoder, plan(16, 128), backend=backend) as made:
        assert poison.survives(made, batch([MIDDLE], encoder), graph=1)
        assert poison.survives(made, batch([SMALL, (4, 6)], encoder), graph=1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_rows_stay_finite(backend):
    """Large, small, large; on a card the freed pool is filled with NaN in between."""
    encoder = tiny(backend)
    with graphs.capture(encoder, plan(16, 128), backend=backend) as made:
        for index, grids in ((1, [LARGE]), (0, [SMALL]), (1, [MIDDLE]), (0, [(4, 4)])):
            if backend == "cuda":
                scratch = [torch.full((2**20,), math.nan, device="cuda") for _ in range(8)]
                del scratch
            target = made.graphs[index]
            made.replay(target.capacity, batch(grids, encoder))
            assert torch.isfinite(target.output).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_small_replay_after_a_large_one_equals_eager(backend):
    encoder = tiny(backend)
    with graphs.capture(encoder, plan(16, 64, 128), backend=backend) as made:
        for index, grids in (
            (2, [LARGE, MIDDLE]),
            (0, [SMALL]),
            (1, [MIDDLE]),
            (0, [(4, 4), (4, 6)]),
        ):
            inputs = batch(grids, encoder, seed=index)
            packed = made.replay(made.graphs[index].capacity, inputs)
            eager = torch.cat([torch.cat(o.tensors, dim=1) for o in encoder.eager(inputs)])
            bound = 1e-5 if backend == "reference" else 3e-2
            error = torch.linalg.vector_norm((packed - eager).double())
            assert error / torch.linalg.vector_norm(eager.double()) <= bound


@pytest.mark.parametrize("backend", BACKENDS)
def test_budgets_are_captured_largest_first_into_one_pool(backend):
    seen = []

    def observe(step):
        seen.append(step)
        return graphs.unobserved(step)

    with graphs.capture(tiny(backend), plan(16, 64, 128), backend=backend, observe=observe) as made:
        assert [s.token_budget for s in seen] == [128, 64, 16]
        assert all(s.route is Route.CAPTURE for s in seen)
        if backend == "cuda":
            pools = [g.memory.pool_bytes for g in made.graphs]
            assert pools[2] > 0
            assert pools[0] + pools[1] <= pools[2]  # the small live in what the largest owns


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_edited_in_place_are_seen(backend):
    encoder = tiny(backend)
    inputs = batch([SMALL], encoder)
    with graphs.capture(encoder, plan(16), backend=backend) as made:
        before = made.replay(made.graphs[0].capacity, inputs).clone()
        with torch.no_grad():
            for parameter in encoder.module.parameters():
                parameter.mul_(1.1)
        after = made.replay(made.graphs[0].capacity, inputs).clone()
        eager = torch.cat(encoder.eager(inputs)[0].tensors, dim=1)
        assert not torch.allclose(before.float(), after.float(), rtol=1e-2)
        assert torch.linalg.vector_norm((after - eager).float()) <= 3e-2 * torch.linalg.vector_norm(
            eager.float()
        )


def _rebind(module):
    module.blocks[1].mlp.linear_fc1.weight = torch.nn.Parameter(
        module.blocks[1].mlp.linear_fc1.weight.clone()
    )


def _rebind_data(module):
    module.blocks[1].mlp.linear_fc1.weight.data = module.blocks[1].mlp.linear_fc1.weight.clone()


def _swap(module):
    module.blocks[1].mlp = type(module.blocks[1].mlp)(module.config).to(module.dtype)


def _train(module):
    module.blocks[0].train()


def _hook(module):
    module.blocks[0].register_forward_hook(lambda *args: None)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("change", "name"),
    [
        (_rebind, "blocks.1.mlp.linear_fc1.weight"),
        (_rebind_data, "blocks.1.mlp.linear_fc1.weight"),
        (_swap, "blocks.1.mlp"),
        (_train, "blocks.0"),
        (_hook, "blocks.0"),
    ],
)
def test_changed_weights_are_seen_or_refused(backend, change, name):
    encoder = tiny(backend)
    with graphs.capture(encoder, plan(16), backend=backend) as made:
        made.replay(made.graphs[0].capacity, batch([SMALL], encoder))
        change(encoder.module)
        with pytest.raises(StaleBufferError, match=name):
            made.replay(made.graphs[0].capacity, batch([SMALL], encoder))


def test_a_hook_refuses_capture_by_name():
    encoder = tiny("reference")
    _hook(encoder.module)
    with pytest.raises(CaptureError, match=r"'blocks\.0' has forward hooks"):
        graphs.capture(encoder, plan(16), backend="reference")


def bad_shape(buffers):
    """Fail as an encoder does that a shape does not suit."""
    if buffers["pixels"].is_cuda:
        buffers["pixels"].sum().item()  # not allowed while a stream captures
    raise RuntimeError("a shape this encoder cannot take")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failed_capture_leaves_the_rest_usable(backend):
    encoder = tiny(backend)
    inputs = batch([SMALL], encoder)
    stream = torch.cuda.current_stream() if backend == "cuda" else None
    with graphs.capture(
        Breaks(encoder, {64}, bad_shape), plan(16, 64, 128), backend=backend
    ) as made:
        assert stream is None or torch.cuda.current_stream() == stream
        assert made.state is State.PARTIAL
        assert [g.is_captured for g in made.graphs] == [True, False, True]
        assert "test_graphs.py" in made.graphs[1].failure
        assert [c.tokens for c in made.captured_plan.graphs] == [16, 128]
        torch.randn(3, device=device_of(backend))  # the generator is not left in capture
        packed = made.replay(made.graphs[0].capacity, inputs)
        assert torch.isfinite(packed).all()
        with pytest.raises(CaptureError, match="no captured graph"):
            made.replay(made.graphs[1].capacity, inputs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_captured_is_an_error_that_names_the_line(backend):
    with pytest.raises(CaptureError, match=r"test_graphs\.py"):
        graphs.capture(Breaks(tiny(backend), {16}, bad_shape), plan(16), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_clear_is_idempotent_and_gives_memory_back(backend):
    encoder = tiny(backend)
    made = graphs.capture(encoder, plan(16, 128), backend=backend)
    held = made.memory.total_bytes
    assert held > 0
    assert made.clear() == held
    assert made.clear() == 0
    assert made.state is State.CLEARED
    assert made.memory.total_bytes == 0


def test_a_plan_for_another_encoder_is_refused():
    other = Plan(graphs=plan(16).graphs, encoder="qwen3-vl-8b")
    with pytest.raises(ValueError, match=r"'qwen3-vl-8b', got 'qwen3-vl-tiny'; plan again"):
        graphs.capture(tiny(), other, backend="reference")


def test_the_cuda_backend_is_never_swapped_silently():
    with pytest.raises(ValueError, match="needs an encoder on a CUDA device"):
        graphs.capture(tiny(), plan(16), backend="cuda")


def test_an_unknown_backend_names_the_choices():
    with pytest.raises(ValueError, match=r"one of \('cuda', 'reference'\), got 'gpu'"):
        graphs.capture(tiny(), plan(16), backend="gpu")


def test_a_plan_without_graphs_cannot_be_captured():
    with pytest.raises(ValueError, match="run the encoder eager"):
        graphs.capture(tiny(), plan(), backend="reference")


@pytest.mark.parametrize("backend", BACKENDS)
def test_clips_and_images_share_a_graph(backend):
    encoder = tiny(backend)
    inputs = batch([(4, 4, 6), (8, 8)], encoder)
    with graphs.capture(encoder, plan(64), backend=backend) as made:
        assert made.supports(Modality.VIDEO)
        packed = made.replay(made.graphs[0].capacity, inputs)
        eager = torch.cat([torch.cat(o.tensors, dim=1) for o in encoder.eager(inputs)])
        bound = 1e-5 if backend == "reference" else 3e-2
        error = torch.linalg.vector_norm((packed - eager).double())
        assert error / torch.linalg.vector_norm(eager.double()) <= bound


def test_more_rows_than_a_budget_has_are_refused_before_anything_is_written():
    encoder = tiny("reference")
    with graphs.capture(encoder, plan(16), backend="reference") as made:
        pixels = made.graphs[0].buffers["pixels"]
        before = pixels.clone()
        large = batch([(16, 16)], encoder)
        with pytest.raises(ValueError, match="tokens must be at most 16 in the graph of 16 tokens"):
            made.replay(made.graphs[0].capacity, large)
        with pytest.raises(ValueError, match="these buffers hold 64 rows, got 256"):
            made.replay(made.graphs[0].capacity, large, items=[value.item for value in large])
        assert pixels.equal(before)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("grids", "said"),
    [
        (
            [(8, 4, 4)],
            "segments must be at most 4 in the graph of 64 tokens, got 8; pack the batch",
        ),
        ([(4, 4)] * 5, "items must be at most 4 in the graph of 64 tokens, got 5; pack the batch"),
    ],
)
def test_a_replay_refuses_what_its_capacity_does_not_hold(backend, grids, said):
    encoder = tiny(backend)
    with graphs.capture(encoder, plan(64, frames=4), backend=backend) as made:
        [capacity] = made.captured_plan.graphs
        with pytest.raises(ValueError, match=said):
            made.replay(capacity, batch(grids, encoder))
        assert torch.isfinite(made.replay(capacity, batch([SMALL], encoder))).all()

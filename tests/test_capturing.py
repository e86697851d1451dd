"""What stops a capture is said, forgotten by the card, and leaves the rest usable."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from helpers import BACKENDS, Breaks, batch, plan, tiny

from encgraph import broken, capturing, graphs, streams
from encgraph.capturing import BudgetGraph
from encgraph.encoders import compiling
from encgraph.encoders.protocol import EncoderOutput
from encgraph.errors import CaptureError
from encgraph.graphs import State

ASKED = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.80 GiB "
    "of which 11.51 GiB is free. Including non-PyTorch memory, this process has 1 GiB in use."
)


def run_out(buffers):
    """Run out of memory; on a card, truly."""
    if buffers["pixels"].is_cuda:
        taken = torch.empty(2**28, device="cuda")  # the failed pool would hold it
        torch.empty(2**44, dtype=torch.uint8, device="cuda").add_(taken[0])
    raise torch.OutOfMemoryError(ASKED)


@pytest.mark.parametrize("backend", BACKENDS)
def test_out_of_memory_names_the_budget_and_leaves_the_rest_usable(backend):
    encoder = tiny(backend)
    with graphs.capture(Breaks(encoder, {64}, run_out), plan(16, 64, 128), backend=backend) as made:
        assert made.state is State.PARTIAL
        failure = made.graphs[1].failure
        assert "out of memory: the budget of 64 tokens asked for" in failure
        assert "free; plan smaller or fewer budgets" in failure
        packed = made.replay(made.graphs[2].capacity, batch([(16, 16)], encoder))
        assert torch.isfinite(packed).all()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_memory_of_a_failed_capture_returns():
    encoder = tiny("cuda")
    graphs.capture(encoder, plan(16), backend="cuda").clear()  # what loads on first use has loaded
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    with graphs.capture(Breaks(encoder, {128}, run_out), plan(16, 128), backend="cuda"):
        assert torch.cuda.memory_reserved() - before < 2**28
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before


def table_too_small(buffers):
    raise ValueError("the position table is too small")


@pytest.mark.parametrize("backend", BACKENDS)
def test_whatever_stops_a_capture_leaves_the_rest_usable(backend):
    encoder = tiny(backend)
    broken = Breaks(encoder, {64}, table_too_small)
    with graphs.capture(broken, plan(16, 64, 128), backend=backend) as made:
        assert made.state is State.PARTIAL
        assert made.graphs[1].failure.startswith("ValueError: the position table is too small at")
        packed = made.replay(made.graphs[2].capacity, batch([(16, 16)], encoder))
        assert torch.isfinite(packed).all()


class Answers(Breaks):
    """Passes what forward returns for some budgets through `fail`."""

    def forward(self, buffers, capacity):
        output = self.encoder.forward(buffers, capacity)
        return self.fail(output) if capacity.tokens in self.budgets else output


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("slabs", ["shared", "private"])
@pytest.mark.parametrize(
    ("change", "shapes", "which"),
    [
        (lambda o: o.rows(0, 63), [(63, 96)] * 3, "main and extra[0] and extra[1]"),
        (
            lambda o: replace(o, main=o.main.repeat(2, 1)),
            [(128, 96), (64, 96), (64, 96)],
            "main",
        ),
        (
            lambda o: replace(o, main=o.main[:, :-1], extra=(*o.extra[1:], o.main.repeat(1, 2))),
            [(64, 95), (64, 96), (64, 192)],
            "main and extra[1]",
        ),
        (lambda o: replace(o, extra=()), [(64, 96)], "extra[0] and extra[1]"),
    ],
)
def test_other_rows_or_widths_than_the_capacitys_are_refused(backend, slabs, change, shapes, which):
    encoder = tiny(backend)
    wrong = Answers(encoder, {64}, change)
    with graphs.capture(wrong, plan(16, 64, 128), backend=backend, slabs=slabs) as made:
        assert made.state is State.PARTIAL
        assert made.graphs[1].failure == (
            f"forward must return all rows of the capacity, {[(64, 96)] * 3}, got {shapes}; "
            f"look at {which}"
        )
        packed = made.replay(made.graphs[2].capacity, batch([(16, 16)], encoder))
        assert torch.isfinite(packed).all()


def test_outputs_in_each_others_widths_are_refused():
    """As wide as they must be side by side, and cut apart in the wrong place."""
    rows = BudgetGraph(
        capacity=plan(16).graphs[0], buffers={}, output=torch.zeros(16, 5), widths=(2, 3)
    )
    output = EncoderOutput(main=torch.zeros(16, 3), extra=(torch.zeros(16, 2),))
    with pytest.raises(CaptureError, match=r"got \[\(16, 3\), \(16, 2\)\]; look at main and extra"):
        capturing.run(SimpleNamespace(forward=lambda buffers, capacity: output), rows)


def test_what_is_no_output_is_refused_by_its_type():
    wrong = Answers(tiny(), {16}, lambda output: output.main)
    with pytest.raises(CaptureError, match="forward must return an EncoderOutput, got Tensor"):
        graphs.capture(wrong, plan(16), backend="reference")


def test_what_was_asked_and_what_was_free_are_read_from_the_message():
    said = capturing.explain(torch.OutOfMemoryError(ASKED), plan(64).graphs[0])
    assert said == (
        "out of memory: the budget of 64 tokens asked for 20.00 GiB, 11.51 GiB free; "
        "plan smaller or fewer budgets"
    )


def test_running_out_behind_another_error_is_found():
    try:
        try:
            raise torch.OutOfMemoryError(ASKED)
        finally:
            raise RuntimeError("the capture was invalidated")
    except RuntimeError as error:
        assert capturing.explain(error).startswith("out of memory: the buffers asked for 20.00 GiB")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_second_graph_set_beside_the_first_disturbs_neither(backend):
    encoder = tiny(backend)
    small, large = batch([(8, 8)], encoder), batch([(16, 16)], encoder, seed=1)
    first = graphs.capture(encoder, plan(16, 64), backend=backend)
    alone = [first.replay(first.graphs[i].capacity, b).clone() for i, b in ((0, small), (1, large))]
    second = graphs.capture(encoder, plan(16, 64, 128), backend=backend)
    for _ in range(2):
        one = first.replay(first.graphs[0].capacity, small)
        two = second.replay(second.graphs[1].capacity, large)
        torch.testing.assert_close(one, alone[0])
        torch.testing.assert_close(two, alone[1])
    second.clear()
    torch.testing.assert_close(first.replay(first.graphs[1].capacity, large), alone[1])
    first.clear()


def test_without_a_compiler_capture_names_the_cause(monkeypatch):
    def absent(module, inputs):
        raise FileNotFoundError("no C++ compiler was found")

    torch._dynamo.reset()
    monkeypatch.setattr(compiling, "BACKEND", absent)
    encoder = tiny(compiled=True)
    with pytest.raises(CaptureError, match="no C\\+\\+ compiler was found"):
        graphs.capture(encoder, plan(16), backend="reference")
    torch._dynamo.reset()


def test_a_stream_is_used_again_once_its_graphs_are_gone(monkeypatch):
    """Each keeps a workspace, so new ones for each capture would never stop taking memory."""
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: object())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    monkeypatch.setattr(streams, "_IDLE", {})
    device = torch.device("cuda", 0)
    first, second = streams.new_home(device), streams.new_home(device)
    assert first.stream is not second.stream
    stream, graph = first.stream, BudgetGraph(capacity=None, buffers={}, output=None, home=first)
    del first
    assert streams.new_home(device).stream is not stream, "a graph of it is alive"
    del graph
    assert streams.new_home(device).stream is stream


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_capturing_again_and_again_takes_no_more_memory():
    encoder = tiny("cuda")
    taken = []
    for _ in range(5):
        graphs.capture(encoder, plan(16, 128), backend="cuda").clear()
        torch.cuda.empty_cache()
        taken.append(torch.cuda.memory_reserved())
    assert taken[-1] <= taken[0]


def syncs_while_captured(buffers):
    """Do what only a capture forbids, so that warm-ups pass and CUDA invalidates the capture."""
    if torch.cuda.is_current_stream_capturing():
        buffers["pixels"].sum().item()


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("bad", [16, 64, 128])
def test_a_capture_that_cuda_invalidates_leaves_the_rest_usable_and_memory_free(bad):
    encoder = tiny("cuda")
    spoilt = Breaks(encoder, {bad}, syncs_while_captured)
    with graphs.capture(spoilt, plan(16, 64, 128), backend="cuda") as made:
        assert [g.is_captured for g in made.graphs] == [bad != b for b in (16, 64, 128)]
        inputs = batch([(8, 8)], encoder)
        fit = next(g.capacity for g in made.graphs if g.is_captured)
        [right] = encoder.eager(inputs)
        rows = torch.cat(right.tensors, dim=1)
        assert torch.allclose(made.replay(fit, inputs), rows, rtol=2e-2, atol=2e-2)
    block = torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda")
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    del block
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < before, "the allocator gives nothing back any more"


def home_of(monkeypatch, *, left, takes_all, captured):
    """A home on no card; whether a capture was left begun, and whether a reset takes from all."""
    ids = iter(range(9))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, next(ids)))
    monkeypatch.setattr(broken, "recover", lambda device: None)
    monkeypatch.setattr(broken, "RESET_TAKES_ALL", takes_all)
    dropped = []

    def abandon(recorded, pool, device, *, keep):
        dropped.append((recorded, keep))
        return left

    monkeypatch.setattr(broken, "abandon", abandon)
    home = streams.Home(pool=torch.cuda.graph_pool_handle(), stream=None)
    for _ in range(captured):
        home.add()
    return home, dropped


@pytest.mark.parametrize(
    ("captured", "left", "is_renewed"),
    [(0, False, True), (0, True, True), (2, False, False), (2, True, True)],
)
def test_after_a_failure_the_pool_is_kept_where_it_still_takes_captures(
    monkeypatch, captured, left, is_renewed
):
    home, _ = home_of(monkeypatch, left=left, takes_all=False, captured=captured)
    before = home.pool
    home.abandon("graph", torch.device("cuda", 0))
    assert (home.pool != before) == is_renewed
    assert (home.captured, home.pooled) == (captured, 0 if is_renewed else captured)


@pytest.mark.parametrize(("captured", "takes_all"), [(0, True), (2, False), (2, True)])
def test_a_graph_is_reset_unless_that_takes_from_others(monkeypatch, captured, takes_all):
    home, dropped = home_of(monkeypatch, left=True, takes_all=takes_all, captured=captured)
    for graph in ("first", "second"):  # the second fails in a new pool, of the same stream
        home.abandon(graph, torch.device("cuda", 0))
    keeps = captured > 0 and takes_all
    assert dropped == [("first", keeps), ("second", keeps)]
    assert home.retired == (["first", "second"] if keeps else [])

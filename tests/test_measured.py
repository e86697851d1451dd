"""Attention chosen by measurement: once a launch shape, before capture, and on record."""

import pytest
import torch
from helpers import BACKENDS, TINY, batch, close, compilations, plan, reference, tiny
from helpers_families import built, capacity

from encgraph import graphs, sizes, strategies, study, traffic
from encgraph.attention import choose, loop, measured, plain
from encgraph.attention.measured import ChosenAttention, FirstCall, Launch
from encgraph.encoders import compiling
from encgraph.records import Plan
from encgraph.report import sections

CPU = torch.device("cpu")
CARD = torch.cuda.is_available()
HEADS, WIDTH = 2, 16


def launch(rows, *, segments=2, longest=0):
    return Launch(rows, segments, longest or rows, HEADS, WIDTH, torch.float32, CPU)


def given(*strides):
    return FirstCall(strides or ((HEADS * WIDTH, WIDTH, 1),) * 3, 0.25)


def qkv(rows):
    made = torch.randn(rows, 3, HEADS, WIDTH, generator=torch.Generator().manual_seed(1))
    return made.unbind(1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_capture_fixes_and_names_the_fastest_attention_of_each_capacity(backend):
    encoder = tiny(backend, attention="measured")
    assert encoder.spec.attention == "measured"
    with graphs.capture(encoder, plan(16, 64, 128), backend=backend) as made:
        for graph in made.graphs:
            [choice] = graph.attention
            spec = encoder.spec
            assert set(choice.ms) | set(choice.failures) == set(
                measured.candidates(spec.device, spec.dtype)
            )
            assert choice.ms[choice.name] == min(choice.ms.values()) > 0
        inputs = batch([(8, 8), (12, 16)], encoder)
        rows = made.replay(made.graphs[-1].capacity, inputs)
        eager = torch.cat([output.main for output in encoder.eager(inputs)])
        bound = 1e-5 if backend == "reference" else 3e-2
        assert (rows[:, : eager.shape[1]] - eager).norm() <= bound * eager.norm()


def test_a_choice_is_made_once_a_process():
    encoder = tiny(attention="measured")
    chosen = []
    for _ in range(2):
        with graphs.capture(encoder, plan(36), backend="reference") as made:
            chosen.append(made.graphs[0].attention[0])
    assert chosen[0] is chosen[1]


def test_auto_off_the_card_measures_nothing():
    encoder = tiny()
    assert encoder.spec.attention == "loop"
    with graphs.capture(encoder, plan(16), backend="reference") as made:
        assert made.graphs[0].attention == ()


def test_windows_and_whole_segments_are_shapes_of_their_own():
    size = sizes.named("qwen2.5-vl-tiny")
    encoder = built(size.name, attention="measured")
    planned = Plan(graphs=(capacity(size),), encoder=size.name)
    with graphs.capture(encoder, planned, backend="reference") as made:
        assert len(made.graphs[0].attention) == 2


def test_a_compiled_block_is_listened_to_as_well(monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    encoder = tiny(attention="measured", compiled=True)
    before = compilations()
    with graphs.capture(encoder, plan(16, 52), backend="reference") as made:
        assert [len(graph.attention) for graph in made.graphs] == [1, 1]
        assert compilations() - before == 1
        inputs = batch([(8, 8)], encoder)
        [eager] = encoder.eager(inputs)
        packed = made.replay(made.graphs[1].capacity, inputs)
        assert close(eager, tiny().eager(inputs)[0], encoder)
        torch.testing.assert_close(packed[:, : eager.main.shape[1]], eager.main)


def test_what_was_not_measured_takes_the_fixed_order():
    q, k, v = qkv(41)
    offsets = torch.tensor([0, 30, 41], dtype=torch.int32)
    mine = measured.attend(q, k, v, offsets, 30, scale=0.25)
    assert torch.equal(mine, loop.attend(q, k, v, offsets, 30, scale=0.25))


def test_nothing_is_heard_outside_of_listening():
    q, k, v = qkv(43)
    offsets = torch.tensor([0, 43], dtype=torch.int32)
    with measured.listening() as heard:
        measured.attend(q, k, v, offsets, 43, scale=0.25)
    measured.attend(q[:40], k[:40], v[:40], offsets.clamp(max=40), 40, scale=0.25)
    assert list(heard) == [launch(43, segments=1)]
    assert heard[launch(43, segments=1)].strides == (q.stride(),) * 3
    assert measured.settle({}) == ()


def test_full_loads_are_of_the_longest_and_of_the_most_segments():
    assert measured.loads(launch(100, segments=4, longest=40)) == [
        [0, 40, 80, 100, 100],
        [0, 25, 50, 75, 100],
    ]
    assert measured.loads(launch(100, segments=1)) == [[0, 100]]
    assert measured.loads(launch(3, segments=5)) == [[0, 3, 3, 3, 3, 3], [0, 1, 2, 3, 3, 3]]


def test_an_attention_that_fails_is_out_and_says_why():
    broadcast = (0, WIDTH, 1)  # rows in one place cannot be written to
    [choice] = measured.settle({launch(47): given(broadcast, broadcast, broadcast)})
    assert choice.name == plain.first(CPU, torch.float32)
    assert choice.ms == {}
    assert set(choice.failures) == {"loop", "sdpa"}
    assert all(choice.failures.values())


@pytest.mark.parametrize("error", [ValueError("spans too much"), OSError("no libcudnn.so.9")])
def test_whatever_an_attention_raises_only_that_one_is_out(monkeypatch, error):
    def refuses(*given, **named):
        raise error

    monkeypatch.setitem(plain.FUNCTIONS, "loop", refuses)
    [choice] = measured.settle({launch(61 + len(str(error))): given()})
    assert choice.name == "sdpa"
    assert choice.failures == {"loop": str(error)}


def test_measuring_leaves_the_random_numbers_of_others_alone():
    before = torch.get_rng_state()
    measured.settle({launch(53): given()})
    assert torch.equal(before, torch.get_rng_state())


def test_measured_needs_two_to_choose_from():
    reason = choose.missing("measured", device=torch.device("meta"), dtype=torch.float32)
    assert reason == "measured needs two attentions to choose from, got ('sdpa',)"
    with pytest.raises(ValueError, match=r"'measured' cannot run here: .*two"):
        choose.named("measured", device=torch.device("meta"), dtype=torch.float32)


@pytest.mark.cuda
@pytest.mark.skipif(not CARD, reason="needs an NVIDIA GPU")
def test_auto_is_measured_where_a_card_has_several():
    device = torch.device("cuda")
    several = len(measured.candidates(device, torch.bfloat16)) > 1
    name = choose.named("auto", device=device, dtype=torch.bfloat16).name
    assert (name == "measured") == several
    assert measured.candidates(device, torch.float32) == ()


@pytest.mark.cuda
@pytest.mark.skipif(not CARD, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("on_default_stream", [True, False])
def test_a_failing_attention_leaves_the_card_usable(on_default_stream):
    device = torch.device("cuda")
    broadcast = (0, WIDTH, 1)
    shape = Launch(59 + on_default_stream, 2, 59, HEADS, WIDTH, torch.bfloat16, device)
    stream = torch.cuda.current_stream() if on_default_stream else torch.cuda.Stream()
    with torch.cuda.stream(stream):
        [choice] = measured.settle({shape: FirstCall((broadcast,) * 3, 0.25)})
        assert isinstance(choice, ChosenAttention)
        assert choice.ms == {}
        assert torch.isfinite(torch.randn(4, device=device)).all()
        [good] = measured.settle({shape._replace(rows=64, longest=64): given()})
    assert good.name in good.ms


def test_a_report_names_what_each_graph_was_given():
    setting = reference(largest=256, attention="measured")
    drawn = traffic.read("builtin:coco", TINY, count=1, seed=3)
    options = study.Procedure(command="test", repeats=1, planned=plan(64, 512))
    found = study.run(drawn, setting, strategies.ENCGRAPH_PLAIN, options)
    names = [graph.attention for graph in found.graphs]
    assert set(names) <= {"loop", "sdpa"}
    assert found.encoder.attention == "measured"
    assert f"attention measured ({names[0]} for " in sections.header(found)

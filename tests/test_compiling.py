"""The compiled body: one compilation for every layer and capacity, the same answers."""

import copy

import pytest
import torch
from helpers import BACKENDS, batch, compilations, plan, tiny

from encgraph import graphs
from encgraph.encoders import compiling


@pytest.fixture
def compiled(monkeypatch):
    """Compile without generating code, which tests what is compiled and how often."""

    def made(backend):
        torch._dynamo.reset()
        if backend == "reference":
            monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
        return tiny(backend, compiled=True)

    return made


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_compilation_serves_every_layer_and_capacity(compiled, backend):
    encoder = compiled(backend)
    before = compilations()
    with graphs.capture(encoder, plan(16, 37, 64, 128, 200), backend=backend) as made:
        assert [g.failure for g in made.graphs] == [None] * 5
        assert compilations() - before == 1
        encoder.eager(batch([(8, 8), (6, 10)], encoder))
        assert compilations() - before == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_compiled_body_gives_the_same_answers(compiled, backend):
    encoder = compiled(backend)
    inputs = batch([(8, 8), (12, 16), (4, 4, 6)], encoder)
    stock = torch.cat([torch.cat(o.tensors, 1) for o in encoder.stock().eager(inputs)]).double()
    with graphs.capture(encoder, plan(128), backend=backend) as made:
        packed = made.replay(made.graphs[0].capacity, inputs).double()
    bound = 1e-5 if backend == "reference" else 3e-2
    assert torch.linalg.vector_norm(packed - stock) <= bound * torch.linalg.vector_norm(stock)
    assert encoder.spec.compiled


def test_the_tower_itself_is_not_compiled(compiled):
    encoder = compiled("reference")
    plain = copy.deepcopy(encoder.module)
    assert "forward" not in vars(encoder.module.blocks[0])
    assert type(plain.blocks[0]) is type(encoder.module.blocks[0])

"""Faces share every parameter with a module that stays as it was."""

from types import MethodType

import pytest
import torch
from helpers_layouts import SIZES, built
from torch import nn

from encgraph.encoders import faces


def test_a_face_has_the_same_parameters_under_another_attention():
    module = built(SIZES["bert-tiny"]).module
    face = faces.with_attention(module, "another")
    assert {id(p) for p in face.parameters()} == {id(p) for p in module.parameters()}
    assert face.config._attn_implementation == "another"
    assert face.encoder.layer[1].attention.self.config is face.config
    assert module.config._attn_implementation == "sdpa"
    assert module.encoder.layer[1].attention.self.config is module.config


def test_a_parameter_bound_anew_is_seen_through_both():
    module = nn.Sequential(nn.Linear(2, 2))
    face = faces.with_attention(module, "another")
    module[0].weight = nn.Parameter(torch.ones(2, 2))
    assert face[0].weight is module[0].weight


def test_an_exchanged_child_is_in_the_face_alone():
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    face = faces.with_children(module, {"1": nn.Tanh()})
    assert type(face[1]) is nn.Tanh
    assert type(module[1]) is nn.ReLU
    assert face[0] is module[0]


def test_what_has_no_config_anywhere_below_is_the_module_itself():
    module = built(SIZES["bert-tiny"]).module
    face = faces.with_attention(module, "another")
    assert face.embeddings.word_embeddings is module.embeddings.word_embeddings
    assert face.encoder.layer[0] is not module.encoder.layer[0]


def pair():
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    return module, faces.Face(module, lambda m: faces.with_children(m, {"1": nn.Tanh()}))


def test_a_face_is_made_again_once_the_module_is_another():
    module, face = pair()
    first = face.now()
    assert face.now() is first
    module[0] = nn.Linear(2, 2)
    assert face.now()[0] is module[0]
    assert face.now() is not first


def test_a_face_made_of_a_module_in_training_is_in_evaluation_after_eval():
    module, face = pair()
    assert face.now().training
    module.eval()
    assert not face.now().training


def test_a_face_that_cannot_be_made_again_says_so_each_time_until_it_can():
    def make(module):
        return faces.unaltered(faces.with_children(module, {}), module)

    module = nn.Sequential(nn.Linear(2, 2))
    face = faces.Face(module, make)
    module.forward = MethodType(lambda self, rows: rows, module)
    for _ in range(2):
        with pytest.raises(ValueError, match="module 'encoder' must run the forward of its class"):
            face.now()
    del module.forward
    assert face.now()[0] is module[0]


def test_a_module_that_the_face_shares_may_have_a_forward_of_its_own():
    module, face = pair()
    module[0].forward = MethodType(lambda self, rows: rows + 1, module[0])
    shown = faces.unaltered(face.now(), module)
    assert torch.equal(shown(torch.zeros(2)), torch.ones(2).tanh())


@pytest.mark.parametrize("kind", ["subclass", "hook", "forward"])
def test_a_module_whose_weights_are_read_in_another_way_must_run_as_it_is(kind):
    class Adapted(nn.Linear):
        pass

    module = Adapted(2, 2) if kind == "subclass" else nn.Linear(2, 2)
    if kind == "hook":
        module.register_forward_hook(lambda *_: None)
    if kind == "forward":
        module.forward = MethodType(lambda self, rows: rows, module)
    with pytest.raises(ValueError, match="module 'proj' must be one of torch or transformers"):
        faces.replaced(module, "proj")
    plain = nn.Linear(2, 2)
    assert faces.replaced(plain, "proj") is plain

"""Faces share every parameter with a module that stays as it was."""

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

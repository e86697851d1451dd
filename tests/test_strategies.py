"""Presets: what each is made of, and that a rung of the ladder adds one idea."""

import dataclasses
import itertools
import typing

import pytest

from encgraph import strategies
from encgraph.strategies import LADDER


def changed(before, after):
    fields = [f.name for f in dataclasses.fields(before) if f.name not in ("name", "about")]
    return {name for name in fields if getattr(before, name) != getattr(after, name)}


def test_a_rung_adds_one_idea():
    steps = [changed(a, b) for a, b in itertools.pairwise(LADDER)]
    assert steps == [
        {"plan", "packing"},
        {"metadata", "slabs", "fill", "ownership"},
        {"item_caps"},
        {"attention"},
        {"compiled"},
        {"fused"},
    ]


def test_the_ladder_goes_from_the_reference_system_to_ours():
    assert changed(strategies.VLLM, LADDER[0]) == {"attention"}
    assert changed(strategies.ENCGRAPH, LADDER[-1]) == {"attention"}


def test_the_compiled_baseline_differs_from_the_plain_one_by_compiling_alone():
    assert changed(strategies.EAGER_VARLEN, strategies.EAGER_COMPILED) == {"compiled"}
    assert changed(strategies.EAGER_COMPILED, strategies.EAGER_FUSED) == {"fused"}


def test_a_group_stands_for_its_members_once_and_in_order():
    names = [s.name for s in strategies.chosen("ladder_caps, eager,ladder")]
    assert names == [
        "ladder_caps",
        "eager",
        "ladder_vllm",
        "ladder_plan",
        "ladder_slabs",
        "ladder_attention",
        "ladder_compile",
        "ladder_kernels",
    ]


def test_a_strategy_named_twice_is_refused_by_name():
    with pytest.raises(ValueError, match="strategies must be named once each, got 'vllm' twice"):
        strategies.chosen("vllm,eager, vllm")


def test_an_unknown_name_is_refused_with_the_known():
    with pytest.raises(ValueError, match=r"got 'sglang'; did you mean 'sglang_exact'\?"):
        strategies.chosen("eager,sglang")


@pytest.mark.parametrize("field", strategies.PIECES)
def test_what_is_no_choice_is_refused(field):
    with pytest.raises(ValueError, match=f"{field} must be one of .*, got 'privat'"):
        dataclasses.replace(strategies.VLLM, **{field: "privat"})


def test_every_choice_of_a_type_is_known():
    for field in dataclasses.fields(strategies.Strategy):
        if typing.get_origin(field.type) is typing.Literal:
            assert strategies.PIECES[field.name] == typing.get_args(field.type)

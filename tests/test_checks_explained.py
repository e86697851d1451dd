"""What a check says is true: no change is blamed for what was wrong before it, one fault is told once.

What is compared with itself is not called proven.
"""

import checks_misleading as misleading
import pytest
import torch
from checks_examples import ReturnsTooFewRows, Tower, Toy, subject_of
from helpers import tiny
from test_checks import said, with_runner

from encgraph.checks import (
    audit,
    bad_inputs,
    conformance,
    edits,
    fallbacks,
    ownership,
    poison,
    stale,
    suite,
)
from encgraph.checks.checked import Unjudged
from encgraph.checks.subject import Subject, synthetic
from encgraph.encoders import wrap


@pytest.mark.parametrize("encoder", [misleading.IsSlightlyWrong, misleading.MixesItems])
def test_edits_are_not_judged_where_replays_are_wrong_without_one(encoder):
    found = with_runner(edits.edited_weight, encoder())
    assert (found.passed, len(found.detail)) == (None, 1)
    assert found.detail[0].startswith("not judged: replays are wrong before any edit: item 0 of")


CHANGED = {
    "poison": poison.check,
    "contagion": poison.contagion,
    "bad_inputs": bad_inputs.check,
    "borrowing": ownership.borrowing,
    **{name: suite.RUNNING[name] for name in stale.CHANGES},
}
"""Checks that compare before and after a change."""


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize(
    ("encoder", "why"),
    [
        (misleading.Drifts, "not judged: the same batch twice gives two answers"),
        (misleading.GivesNaN, "not judged: rows are not finite with nothing changed"),
    ],
)
def test_a_change_is_not_blamed_for_what_happens_without_it(name, encoder, why):
    found = with_runner(CHANGED[name], encoder())
    assert (found.passed, found.detail) == (None, (why,))


def test_nan_of_its_own_is_blamed_on_no_later_batch():
    assert with_runner(ownership.check, misleading.GivesNaN()).passed
    assert conformance.fill(subject_of(misleading.GivesNaN())).passed


@pytest.mark.parametrize("name", ["edited_weight", "poison", *stale.CHANGES])
def test_what_no_graph_holds_is_not_judged(name):
    found = with_runner(suite.RUNNING[name], misleading.BreaksBeyondTheSmallest())
    assert (found.passed, found.detail) == (
        None, ("not judged: no graph that holds 16 tokens was captured",)
    )  # fmt: skip
    assert not isinstance(found, Unjudged)


def test_a_forward_that_drifts_is_named_as_such():
    assert "same rows for the same buffers" in said(
        conformance.fill(subject_of(misleading.Drifts()))
    )
    found = said(audit.paths(subject_of(misleading.Drifts())))
    assert found.startswith("with the same inputs the next time forward takes another path")


@pytest.mark.parametrize(
    ("encoder", "who"),
    [
        (misleading.IsItsOwnStock(), "stock() is the adapter itself"),
        (
            misleading.CallsItsOwnEagerStock(),
            "stock() runs the adapter's own eager on the same module",
        ),
    ],
)
def test_a_stock_that_is_the_adapter_proves_nothing(encoder, who):
    found = fallbacks.check(subject_of(encoder))
    assert (found.passed, found.detail) == (
        None, (f"{who}: nothing proves eager against the untouched module",)
    )  # fmt: skip


def test_a_wrapped_module_is_its_own_stock_and_a_tower_of_the_registry_is_not():
    example = torch.zeros(3, 4, 4)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 5)).eval()
    wrapped = wrap.fixed(module, example)
    subject = Subject(
        encoder=wrapped, make_inputs=lambda wanted, seed: [wrapped.input(example) for _ in wanted]
    )
    assert fallbacks.check(subject).passed is None
    encoder = tiny()
    assert fallbacks.check(Subject(encoder=encoder, make_inputs=synthetic(encoder.spec))).passed


def test_what_eager_and_forward_both_do_to_the_module_is_found():
    for check in (fallbacks.check, conformance.forward):
        assert "differs from stock().eager: relative error 1," in said(
            check(subject_of(misleading.Doubles()))
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_oracle_that_is_not_the_stock_module_is_found(dtype):
    encoder = misleading.DoublesItsOracle(Tower().to(dtype))
    assert "stock() and oracle() must be one untouched module in two dtypes" in said(
        fallbacks.check(subject_of(encoder))
    )


def test_outputs_that_require_gradients_are_named(recwarn):
    encoder = misleading.KeepsGradients()
    found = said(with_runner(ownership.check, encoder))
    assert "outputs of eager require gradients, which keeps every activation alive" in found
    assert fallbacks.check(subject_of(encoder)).passed
    assert [str(w.message) for w in recwarn] == []


def test_too_few_rows_are_explained_once():
    found = {one.name: one for one in suite.run(subject_of(ReturnsTooFewRows()))}
    assert "[(136, 8)], got [(135, 8)]; look at main" in said(found["capture"])
    assert {found[name].detail for name in suite.RUNNING} == {("nothing was captured",)}


def test_rows_that_are_missing_are_no_fault_of_fill():
    found = conformance.fill(subject_of(ReturnsTooFewRows()))
    why = "a stale tail is not judged: forward returns other rows"
    assert (found.passed, found.detail) == (None, (why,))


def test_a_spec_that_breaks_is_explained_once():
    class Breaks(Toy):
        spec = property(lambda self: {}["name"])

    found = list(suite.run(subject_of(Breaks())))
    assert "KeyError: 'name' at" in said(found[0])
    assert {one.detail for one in found[1 : -len(suite.RUNNING)]} == {("broke off as methods did",)}
    assert {one.passed for one in found[1:]} == {None}


def test_inputs_that_are_not_what_was_asked_for_are_explained_once():
    subject = Subject(encoder=Toy(), make_inputs=lambda wanted, seed: [None])
    found = [one for one in suite.run(subject) if one.passed is False]
    assert [one.name for one in found] == ["buffers"]
    assert "make_inputs must return an Input for each item wanted, got ['NoneType']" in said(
        found[0]
    )

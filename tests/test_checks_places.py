"""Checks say only what they saw: budgets full in one replay, NaN beside other items, tensors kept."""

import inspect

import checks_places as places
import pytest
import torch
from checks_examples import AnswersInAnotherOrder, Toy, subject_of
from checks_places import slots_of
from test_checks import said, with_runner

from encgraph.checks import audit, fallbacks, poison, running, stale, suite
from encgraph.encoders import wrap
from encgraph.records import Item

PLACES = {
    places.FillsThree: (3, 8),
    places.FillsInReverse: (0, 4),
    places.DoublesTheFourth: (3, 4),
    places.DoublesInAGraphOfFour: (0, 4),
    places.DoublesTheLastSlot: (3, 4),
}
"""The first item that is wrong in a full budget, and of how many."""


def of_slots(check, encoder):
    subject = slots_of(encoder)
    with subject.runner() as runner:
        return check(subject, runner)


def line_of(owner, text):
    """file:line of the line of a class that holds a text."""
    lines, start = inspect.getsourcelines(owner)
    offset = next(i for i, line in enumerate(lines) if text in line)
    return f"checks_places.py:{start + offset}"


def test_slots_that_are_right_pass_every_check_that_applies():
    found = {one.name: one for one in suite.run(slots_of(places.Slots()))}
    unjudged = {name for name, one in found.items() if one.passed is None}
    assert [one for one in found.values() if one.passed is False] == []
    assert unjudged == {"boundaries", "clips", "last_row", "poison"}
    assert (
        found["full_budget"]
        .detail[0]
        .startswith(
            "full in one replay: 4 tokens by 1 item, 16 tokens by 4 items, 32 tokens by 8 items; "
            "up to 8 items in one replay, no plan was given: worst"
        )
    )
    assert "up to 8 items in one replay" in found["parity"].detail[0]


def test_budgets_are_full_of_tokens_as_well_as_of_items():
    found = with_runner(running.full_budget, Toy())
    assert "4 tokens by 1 item, 136 tokens by 8 items" in found.detail[0]


@pytest.mark.parametrize(("encoder", "wrong"), PLACES.items())
def test_an_item_that_is_wrong_in_its_place_alone_fails_at_a_full_budget(encoder, wrong):
    item, count = wrong
    found = said(of_slots(running.full_budget, encoder()))
    assert f"item {item} of a batch of {[4] * count} tokens differs from stock().eager" in found


@pytest.mark.parametrize("encoder", PLACES)
def test_parity_puts_items_into_one_replay(encoder):
    assert "tokens differs from stock().eager" in said(of_slots(running.parity, encoder()))


def test_an_item_is_held_against_the_module_that_is_given_it_alone():
    module = places.DoublesBeyondThree().eval()
    wrapped = wrap.fixed(module, torch.zeros(3, 4, 4))
    module.told = True

    def images(wanted, seed):
        generator = torch.Generator().manual_seed(seed)
        return [wrapped.input(torch.rand(3, 4, 4, generator=generator)) for _ in wanted]

    subject = places.Subject(encoder=wrapped, make_inputs=images)
    assert "item 3 of a batch of [1, 1, 1, 1]" in said(fallbacks.check(subject))


def test_items_of_one_content_are_said_not_to_show_their_places():
    def alike(wanted, seed):
        return places.make_slots(wanted[:1], 0) * len(wanted)

    subject = places.Subject(encoder=places.FillsInReverse(), make_inputs=alike)
    with subject.runner() as runner:
        found = running.full_budget(subject, runner)
    assert found.passed
    assert found.detail[0].endswith("; items' rows are too alike to tell one in another's place")


@pytest.mark.parametrize(
    ("encoder", "reaches"),
    [(places.Slots, "does not reach"), (places.AddsNothingOfAll, "reaches")],
)
def test_whether_nan_reaches_other_items_is_seen_in_one_replay(encoder, reaches):
    found = of_slots(poison.contagion, encoder())
    assert found.passed
    assert found.detail[0].endswith(f"; in one replay of 3 items NaN of one {reaches} the others")


@pytest.mark.parametrize("encoder", [places.Slots, places.AddsAllSquares])
def test_poison_that_fill_overwrites_shows_nothing(encoder):
    found = of_slots(poison.check, encoder())
    assert (found.passed, found.detail) == (None, (poison.OVERWRITTEN,))


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        (slots_of(places.FillsInReverse()), "item 0 of a batch of [4, 4, 4] tokens differs"),
        (slots_of(places.AnswersBackwards()), "item 0 of a batch of [4, 4, 4] tokens differs"),
        (slots_of(places.DoublesTheLastSlot()), "item 2 of a batch of [4, 4, 4] tokens differs"),
        (subject_of(AnswersInAnotherOrder()), "item 0 of a batch of [4, 8, 4] tokens differs"),
    ],
)
def test_no_submodule_is_accused_where_answers_are_wrong_with_none_swapped(subject, why):
    with subject.runner() as runner:
        found = stale.swapped_module(subject, runner)
    assert found.passed is None
    assert found.detail[0].startswith(f"not judged: answers are wrong with nothing swapped: {why}")


@pytest.mark.parametrize(
    ("encoder", "text", "what"),
    [
        (places.KeepsInADict, "hidden + CACHE", "uses a tensor kept from an earlier call"),
        (places.KeepsFromTheFirstCall, "+ self.kept", "uses a tensor kept from an earlier call"),
        (places.MakesFromNumpy, "torch.from_numpy", "from_numpy() copies from the host"),
    ],
)
def test_the_audit_names_the_line_that_keeps_or_copies_without_an_operator(encoder, text, what):
    places.CACHE.clear()
    found = said(audit.check(subject_of(encoder())))
    assert line_of(encoder, text) in found
    assert what in found


def test_a_tensor_that_is_overwritten_and_never_read_is_no_problem():
    for _ in range(20):  # whether an address is taken again is chance
        found = audit.check(subject_of(places.Remembers()))
        assert found.passed, found.detail


def test_a_tensor_that_was_there_before_any_call_is_said_with_its_line():
    found = audit.check(subject_of(places.HoldsATensor()))
    assert found.passed
    assert "uses a tensor that module does not hold" in found.detail[0]
    assert line_of(places.HoldsATensor, "self.shift.to") in found.detail[0]


def test_functions_that_the_audit_watches_are_torchs_again():
    made = torch.from_numpy
    audit.check(subject_of(Toy()))
    assert torch.from_numpy is made


def test_an_error_names_the_line_of_the_adapter_and_not_of_the_project():
    found = {one.name: one for one in suite.run(slots_of(places.RefusesEverything()))}
    assert line_of(places.RefusesEverything, "require(False") in said(found["buffers"])


def test_an_error_of_a_helper_that_an_adapter_calls_names_the_adapter():
    class Calls(places.Slots):
        def item_spec(self, value):
            return Item(tokens=0, patches=0)

    found = {one.name: one for one in suite.run(slots_of(Calls()))}
    assert "test_checks_places.py" in said(found["buffers"])
    assert "(return Item(tokens=0, patches=0))" in said(found["buffers"])

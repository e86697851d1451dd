"""What few inputs show is tried: large items, many items, buffers; lines say what was tried of what."""

import checks_blind as blind
import pytest
import torch
from checks_examples import AnswersInAnotherOrder, Toy, make_inputs, subject_of
from test_checks import said, with_runner

from encgraph.checks import (
    audit,
    conformance,
    edits,
    fallbacks,
    parity,
    reaching,
    running,
    stale,
    suite,
)
from encgraph.checks.subject import Subject
from encgraph.encoders.protocol import EncoderOutput

pytest_plugins = ["encgraph.checks.fixture"]
ABOVE = (40, 50, 60)


def of_64(encoder):
    return Subject(encoder=encoder, make_inputs=blind.up_to_64)


@pytest.mark.parametrize("above", ABOVE)
def test_the_largest_legal_item_is_compared_in_forward_parity_and_full_budgets(above):
    encoder = blind.IsWrongAbove(above)
    with of_64(encoder).runner() as runner:
        found = [
            said(check)
            for check in (
                conformance.forward(of_64(encoder)),
                running.parity(of_64(encoder), runner),
                running.full_budget(of_64(encoder), runner),
            )
        ]
    for lines in found[:2]:
        assert "item 0 of a batch of [64] tokens differs from stock().eager" in lines
    assert "item 0 of a batch of [64, 1] tokens differs from stock().eager" in found[2]


def test_an_adapter_that_is_right_up_to_its_largest_item_passes_and_says_what_was_tried():
    encoder = blind.IsWrongAbove(64)
    with of_64(encoder).runner() as runner:
        found = running.parity(of_64(encoder), runner)
    assert found.passed
    tried = "alone items of 1, 2, 4, 8, 16, 32, 64 tokens, of 1 to 64 that are legal: worst"
    assert tried in found.detail[0]
    said_of_forward = conformance.forward(of_64(encoder)).detail[0]
    assert "real ones as stock gives them" in said_of_forward
    assert said_of_forward.endswith("tried has 64 tokens, of 1 to 64 that are legal")


def test_items_too_large_for_the_time_there_is_are_said_not_to_be_tried(monkeypatch):
    monkeypatch.setattr(reaching, "REACH_S", 0.0)
    found = conformance.forward(subject_of(Toy()))
    assert found.passed
    assert found.detail[0].endswith(
        "tried has 128 tokens, of 4 to 1,024 that are legal; larger ones are too slow or too large here"
    )


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize(
    ("adapter", "name"), [(blind.FoldsTheScale, "scale"), (blind.FoldsTheShift, "shift")]
)
def test_a_buffer_folded_into_a_number_is_named(adapter, name, persistent):
    found = with_runner(edits.edited_weight, adapter(blind.Scaled(persistent=persistent)))
    assert said(found).startswith(f"buffer {name!r} edited in place is not seen: something derived")


def test_edited_buffers_are_counted_and_those_that_tell_nothing_named():
    encoder = blind.ReadsItsBuffers(blind.Scaled())
    before = {name: tensor.clone() for name, tensor in encoder.module.state_dict().items()}
    found = with_runner(edits.edited_weight, encoder)
    assert found.passed
    assert found.detail[0] == (
        "an edit of 6 weights and 2 float buffers in place is seen by the next replay; not judged, "
        "since it cannot be scaled in place: buffer repeated; not judged, since no output of stock() "
        "changes: buffer unused"
    )
    after = encoder.module.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_what_was_edited_is_put_back_when_something_fails():
    plain, overlapping = torch.ones(3), torch.ones(1).expand(3)
    for held in ({"a": plain, "b": overlapping}, {"a": overlapping, "b": plain}):
        with pytest.raises(RuntimeError), edits._scaled(held):
            pass
        assert plain.tolist() == [1.0] * 3
    with pytest.raises(KeyError), edits._scaled({"plain": plain}):
        raise KeyError
    assert plain.tolist() == [1.0] * 3


@pytest.mark.parametrize(
    ("tensor", "is_editable"),
    [
        (torch.ones(3, 4), True),
        (torch.ones(3, 4).t(), True),
        (torch.ones(4)[::2], True),
        (torch.ones(()), True),
        (torch.ones(1).expand(3), False),
        (torch.ones(4).as_strided((3, 2), (1, 1)), False),
        (torch.ones(3).to(torch.float8_e4m3fn), False),
    ],
)
def test_only_what_can_be_scaled_in_place_is_edited(tensor, is_editable):
    assert edits._is_editable(tensor) is is_editable


def test_too_little_memory_is_no_fault_of_the_encoder():
    def short():
        raise torch.OutOfMemoryError("no room")

    found = suite._Tried().run("parity", short)
    assert found.passed is None
    assert "too little memory" in found.detail[0]


def test_items_that_mix_beyond_eight_fail_with_a_plan_of_more():
    found = with_runner(running.full_budget, blind.MixesAboveEight())
    assert found.passed
    assert "; up to 8 items in one replay, no plan was given: worst" in found.detail[0]
    found = with_runner(running.full_budget, blind.MixesAboveEight(), given=blind.OF_TWELVE)
    assert f"item 0 of a batch of {[4] * 12} tokens differs from stock().eager" in said(found)


def test_a_right_adapter_passes_with_a_plan_and_says_up_to_how_many_items():
    found = with_runner(running.full_budget, Toy(), given=blind.OF_TWELVE)
    assert found.passed
    assert "48 tokens by 12 items" in found.detail[0]
    assert "; up to 12 items in one replay, budgets of the plan given among them" in found.detail[0]


def test_the_fixture_takes_a_plan(check_encoder):
    found = {one.name: one for one in check_encoder(Toy(), make_inputs, plan=blind.OF_TWELVE)}
    assert "48 tokens by 12 items" in found["full_budget"].detail[0]
    with pytest.raises(pytest.fail.Exception, match="full_budget: item 0 of a batch of"):
        check_encoder(blind.MixesAboveEight(), make_inputs, plan=blind.OF_TWELVE)


def test_a_budget_of_the_plan_that_is_not_captured_fails():
    class BreaksAt48(Toy):
        def longest(self, capacity):
            if capacity.tokens == 48:
                raise RuntimeError("no such kernel")
            return super().longest(capacity)

    found = said(with_runner(running.full_budget, BreaksAt48(), given=blind.OF_TWELVE))
    assert found.startswith("48 tokens: ") and "no such kernel" in found


def test_paths_say_how_many_other_inputs_were_tried():
    found = audit.paths(subject_of(Toy())).detail[0]
    assert "the same with the 13 other inputs tried, in 4 batches, and under capture" in found


def test_another_number_of_rows_is_told_in_rows_and_not_as_nan():
    assert (
        "relative error 0.1, allowed 1e-05"
        in parity.ItemParity(item=0, error_ratio=0.1, eager_error_ratio=0.0, values=9).said
    )
    four, wide = (EncoderOutput(main=torch.zeros(4, width)) for width in (8, 9))
    assert parity.misfit(four, four) is None
    assert parity.misfit(wide, four) == "outputs of shapes [(4, 9)] where there must be [(4, 8)]"
    found = said(fallbacks.check(subject_of(AnswersInAnotherOrder())))
    assert "nan" not in found
    found = said(fallbacks.check(subject_of(blind.HasAnOracleOfFewerRows())))
    assert "but differ: 4 rows where there must be 3; either they are two" in found


def test_a_vague_refusal_is_told_what_it_must_say():
    def check(subject, runner):
        return stale.refused("training_mode", subject, runner)

    found = said(with_runner(check, blind.RefusesVaguely()))
    assert found.startswith("the refusal must say 'eval mode' or 'training mode', got ValueError: ")

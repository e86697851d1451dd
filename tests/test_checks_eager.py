"""A wrong `eager` is found whatever its inputs have to be for that, and no wrong answer passes unsaid."""

import checks_eager as eager
import checks_places as places
import pytest
from checks_examples import Toy, subject_of
from test_checks import said, with_runner

from encgraph.checks import checked, edits, fallbacks, suite
from encgraph.checks.subject import Subject

MANY = [4] * 17


@pytest.mark.parametrize(
    ("encoder", "what"),
    [
        (eager.RoundsLarge, "item 0 of a batch of [1024] tokens differs from stock().eager"),
        (eager.FlipsTheLargest, "item 0 of a batch of [1024] tokens differs from stock().eager"),
        (eager.DropsOfMany, f"item 0 of a batch of {MANY} tokens differs from stock().eager"),
        (eager.JoinsChunksOfEight, f"item 0 of a batch of {MANY} tokens differs"),
        (eager.JoinsChunksOfSixteen, f"item 0 of a batch of {MANY} tokens differs"),
        (eager.ForgetsTheLast, "eager must return a list of 17 outputs, got a list of 16"),
        (eager.GivesDoubles, "eager must return torch.float32, got ['torch.float64']"),
        (
            eager.KeepsByAddress,
            "with other pixels written into tensors that were encoded before, item 0 of a batch",
        ),
    ],
)
def test_an_eager_that_is_wrong_for_some_inputs_is_found(encoder, what):
    assert what in said(fallbacks.check(subject_of(encoder())))


@pytest.mark.parametrize(
    ("encoder", "why"), [(eager.RefusesLarge, "too large"), (eager.RefusesMany, "too many")]
)
def test_an_eager_that_breaks_off_for_some_inputs_fails_with_its_line(encoder, why):
    found = {one.name: one for one in suite.run(subject_of(encoder()))}
    assert f"AssertionError: {why} at" in said(found["fallback"])


def test_sizes_and_numbers_of_items_are_said():
    assert fallbacks.check(subject_of(Toy())).detail == (
        "40 items as the untouched forward gives them: batches of 4, 1, 17, 9 items of 4, 8, 12, 16 "
        "tokens; alone items of 4, 8, 16, 32, 64, 128, 256, 512, 1,024 tokens, of 4 to 1,024 that "
        "are legal",
    )


def test_sizes_without_memory_are_said_not_to_be_tried():
    found = fallbacks.check(subject_of(eager.HasNoMemoryForLarge()))
    assert found.passed
    assert found.detail[0].endswith(
        "alone items of 4, 8, 16, 32, 64 tokens, of 4 to 1,024 that are legal; larger ones are too "
        "slow or too large here"
    )


def test_items_of_one_content_are_said_not_to_show_their_order():
    found = fallbacks.check(Subject(encoder=Toy(), make_inputs=eager.alike))
    assert found.passed
    assert found.detail[0].endswith("; items' rows are too alike to tell one in another's place")


def test_wrong_answers_that_no_check_failed_for_fail_where_they_are_seen():
    found = {one.name: one for one in suite.run(subject_of(eager.DriftsLate()))}
    failed = [name for name, one in found.items() if one.passed is False]
    assert failed == ["swapped_module"]
    line = said(found["swapped_module"])
    assert line.startswith("answers are wrong with nothing swapped: item 0 of a batch of [4, 8, 4]")
    assert line.endswith("; no check before this one failed, so answers change from call to call")


def test_wrong_answers_that_a_check_failed_for_are_explained_once():
    found = {one.name: one for one in suite.run(places.slots_of(places.AnswersBackwards()))}
    assert found["fallback"].passed is False
    assert found["swapped_module"].passed is None
    assert found["swapped_module"].detail[0].startswith("not judged: answers are wrong")


def test_a_check_that_sees_wrong_answers_first_fails():
    tried = suite._Tried()
    seen = tried.run("poison", lambda: checked.unjudged("poison", "two answers"))
    assert said(seen) == f"two answers; {suite.UNSTEADY}"
    assert tried.run("x", lambda: checked.unjudged("x", "two answers")).passed is None
    assert suite._Tried().run("x", lambda: checked.not_run("x", "images")).passed is None


def test_a_weight_of_which_the_module_keeps_a_copy_is_named():
    found = said(with_runner(edits.edited_weight, Toy(eager.KeepsACopy())))
    assert found == (
        "weight 'extra.weight' edited in place is not seen, not even by stock(): a copy of it was "
        "kept and is read in its place"
    )


def test_a_weight_whose_edit_tells_nothing_is_said_not_to_be_judged():
    found = with_runner(edits.edited_weight, Toy(eager.KeepsATransposedCopy()))
    assert found.passed
    assert found.detail[0] == (
        "an edit of 6 weights and 0 float buffers in place is seen by the next replay; not judged, "
        "since no output of stock() changes: weight extra.weight"
    )


def test_a_kept_weight_of_what_is_normalised_is_named():
    found = said(with_runner(edits.edited_weight, eager.KeepsANormedWeight()))
    assert found.startswith("weight 'out.weight' edited in place is not seen: something derived")

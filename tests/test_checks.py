"""The suite passes a right adapter, and fails a wrong one in the right check with the line or item."""

import inspect
import json

import checks_examples as examples
import pytest
import torch
from checks_examples import Toy, subject_of
from helpers import BACKENDS, tiny

from encgraph import codec
from encgraph.checks import (
    audit,
    bad_inputs,
    checked,
    conformance,
    edits,
    fallbacks,
    ownership,
    poison,
    running,
    stale,
    suite,
)
from encgraph.checks.checked import Checked
from encgraph.checks.subject import Subject, synthetic
from encgraph.encoders import following, protocol

pytest_plugins = ["encgraph.checks.fixture"]


def line_of(owner, text):
    """file:line of the line of a class or function that holds a text."""
    lines, start = inspect.getsourcelines(owner)
    offset = next(i for i, line in enumerate(lines) if text in line)
    return f"checks_examples.py:{start + offset}"


def said(one: Checked) -> str:
    assert one.passed is False, one
    return "\n".join(one.detail)


def with_runner(check, encoder, **options):
    subject = subject_of(encoder, **options)
    with subject.runner() as runner:
        return check(subject, runner)


def test_a_right_adapter_passes_every_check_that_applies(check_encoder):
    found = check_encoder(Toy(), examples.make_inputs)
    assert [one.name for one in found] == list(suite.CHECK_NAMES)
    assert {one.name: one.detail for one in found if not one.passed} == {
        "clips": ("toy takes image alone",)
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_right_adapter_passes_in_half_precision(dtype):
    encoder = Toy(examples.Tower().to(dtype))
    with subject_of(encoder).runner() as runner:
        found = [
            conformance.forward(subject_of(encoder)),
            running.parity(subject_of(encoder), runner),
            edits.edited_weight(subject_of(encoder), runner),
        ]
    assert [one.passed for one in found] == [True] * 3, found
    assert found[1].figures["tolerance_ratio"] > 1e-5


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_every_check_passes_on_a_card(backend):
    encoder = tiny(backend)
    subject = Subject(encoder=encoder, make_inputs=synthetic(encoder.spec), backend=backend)
    assert [one for one in suite.run(subject) if not one.passed] == []


@pytest.mark.parametrize(
    ("encoder", "text", "call"),
    [
        (examples.ReadsTheGrid, "live.tolist()", "tolist() makes the host wait"),
        (examples.MakesOnTheHost, "torch.ones(1)", "ones() has no device="),
        (examples.IndexesByMask, "pixels[~live]", "indexing by a mask makes the host wait"),
    ],
)
def test_the_audit_names_the_line_that_waits_or_copies(encoder, text, call):
    found = said(audit.check(subject_of(encoder())))
    assert line_of(encoder, text) in found
    assert call in found


def test_the_audit_names_the_function_that_caches_a_tensor():
    found = said(audit.check(subject_of(examples.CachesATensor())))
    assert f"{line_of(examples.scale.__wrapped__, 'lru_cache')} (scale): lru_cache holds" in found


def test_a_cache_that_forward_does_not_use_is_no_problem():
    examples.scale(3)
    assert audit.check(subject_of(Toy())).passed


def test_another_path_under_capture_is_named():
    found = said(audit.paths(subject_of(examples.LooksForACapture())))
    assert found.startswith("under capture forward takes another path")
    assert line_of(examples.LooksForACapture, "hidden.clone()") in found


def test_a_value_baked_by_fill_is_named():
    found = said(audit.paths(subject_of(examples.BakesTheCount())))
    assert found.startswith("with other inputs forward takes another path")
    assert line_of(examples.BakesTheCount, "1e-9 * self.count") in found


def test_a_question_whether_a_stream_is_captured_is_answered_truly_again():
    ask = torch.cuda.is_current_stream_capturing
    audit.check(subject_of(Toy()))
    assert torch.cuda.is_current_stream_capturing is ask


def test_a_stale_tail_names_the_item():
    found = said(conformance.fill(subject_of(examples.LeavesAStaleTail())))
    assert "item 1 differs after a larger batch filled the same buffers" in found


def test_too_short_a_longest_segment_fails_at_a_full_budget():
    found = said(with_runner(running.full_budget, examples.AttendsTooShort()))
    assert "item 0 of a batch of [136] tokens differs from stock().eager" in found


def test_too_few_rows_are_told_apart_from_the_budget():
    found = said(conformance.forward(subject_of(examples.ReturnsTooFewRows())))
    assert "must return all rows of the capacity, [(136, 8)], got [(135, 8)]" in found


def test_a_fallback_in_another_order_names_its_items():
    found = said(fallbacks.check(subject_of(examples.AnswersInAnotherOrder())))
    line = "item 0 of a batch of [4, 8, 4, 12] tokens differs from stock().eager: 12 rows where there must be 4"
    assert line in found


def test_outputs_that_a_later_batch_overwrites_are_found():
    found = said(with_runner(ownership.check, examples.ReusesItsOutput()))
    assert "a later batch changed outputs of eager" in found


def test_a_weight_of_which_a_copy_is_kept_is_named():
    found = with_runner(edits.edited_weight, examples.KeepsADerivedWeight())
    [line] = found.detail
    assert not found.passed
    assert line.startswith("weight 'out.weight' edited in place is not seen")


@pytest.mark.parametrize("encoder", [examples.ReducesOverPadding, examples.MultipliesByZero])
def test_poison_finds_padding_that_reaches_live_rows(encoder):
    found = said(with_runner(poison.check, encoder()))
    assert "nan in the padding of budget 136 reaches the rows of 1 items" in found


def test_a_batch_of_nan_must_leave_nothing_behind():
    found = said(with_runner(poison.contagion, examples.MultipliesByZero()))
    assert "item 1 changes after an earlier batch was NaN" in found


@pytest.mark.parametrize("attention", ["sdpa", "loop"])
def test_a_batch_of_nan_leaves_nothing_in_rows_that_attention_does_not_write(attention):
    """sdpa, like kernels that load whole tiles, multiplies the values of unused rows by zero."""
    encoder = tiny(attention=attention)
    subject = Subject(encoder=encoder, make_inputs=synthetic(encoder.spec))
    with subject.runner() as runner:
        found = poison.contagion(subject, runner)
    assert found.passed, found.detail


def test_a_masked_layout_must_bear_finite_poison_alone():
    assert with_runner(poison.check, examples.MultipliesByZero(), layout="masked").passed
    with pytest.raises(ValueError, match="layout must be 'packed' or 'masked', got 'odd'"):
        subject_of(Toy(), layout="odd")


@pytest.mark.parametrize("name", ["rebound_weight", "swapped_module", "forward_hook"])
def test_an_encoder_whose_module_is_not_what_it_runs_is_still_refused_by_the_watch(name):
    def check(subject, runner):
        return stale.refused(name, subject, runner)

    assert with_runner(check, examples.WatchesNothing()).passed


def test_an_edit_that_reaches_no_output_is_not_called_seen():
    found = with_runner(edits.edited_weight, examples.WatchesNothing())
    assert (found.passed, found.outcome) == (None, "not run")


@pytest.mark.parametrize("name", stale.CHANGES)
def test_a_change_is_undone(name):
    module = examples.Tower().eval()
    before = {n: (id(w), w.data_ptr(), w.clone()) for n, w in module.named_parameters()}
    children = dict(module.named_modules())
    with stale.CHANGES[name](module):
        pass
    for n, w in module.named_parameters():
        assert (id(w), w.data_ptr()) == before[n][:2]
        assert torch.equal(w, before[n][2])
    assert dict(module.named_modules()) == children
    assert not any(m.training or m._forward_hooks for m in module.modules())


def test_bad_inputs_that_are_accepted_are_found():
    found = with_runner(bad_inputs.check, examples.TrustsItsInputs())
    assert "pixels that require gradients" not in said(found)
    assert "a patch too few:" in said(found)


def test_what_an_adapter_lacks_is_told_step_by_step():
    found = {one.name: one for one in suite.run(subject_of(examples.Begun()))}
    assert found["methods"].detail[0] == (
        "'buffers' is missing: Allocate static inputs; each shape is a function of the capacity, "
        "rows first."
    )
    assert found["buffers"].detail == ("needs buffers",)
    assert found["fallback"].detail == ("needs buffers, fill, forward, eager, stock, oracle",)
    assert {one.passed for name, one in found.items() if name != "methods"} == {None}


def test_a_stub_inherited_from_the_protocol_is_missing():
    class Stub(examples.Encoder):
        pass

    assert protocol.missing(Stub()) == list(protocol.MEMBERS)


def test_a_check_that_breaks_off_says_where():
    class Breaks(Toy):
        def last(self, hidden):
            raise RuntimeError("no such kernel")

    found = {one.name: one for one in suite.run(subject_of(Breaks()))}
    assert "RuntimeError: no such kernel at" in said(found["fill"])
    assert "test_checks.py" in said(found["fill"])
    assert found["forward"].detail == ("broke off as fill did",)
    assert "no budget could be captured" in said(found["capture"])
    assert found["parity"].detail == ("nothing was captured",)


def test_an_outcome_is_json_and_its_figures_have_units():
    one = checked.of("parity", [], said="fine", figures={"worst_error_ratio": float("nan")})
    assert json.loads(codec.dumps(one)) == {
        "name": "parity", "passed": True, "detail": ["fine"], "figures": {}
    }  # fmt: skip
    with pytest.raises(ValueError, match="figure 'speed' must be finite and end in a unit"):
        Checked(name="x", passed=True, detail=(), figures={"speed": 1.0})


def test_many_problems_are_counted():
    assert checked.of("x", list("a" * 30), said="").detail[-1] == "and 18 more"


def test_the_fixture_fails_with_a_line_a_problem_unless_told_to_skip(check_encoder):
    with pytest.raises(pytest.fail.Exception, match="methods: 'buffers' is missing"):
        check_encoder(examples.Begun(), examples.make_inputs)
    found = check_encoder(examples.Begun(), examples.make_inputs, skip=["methods", *suite.PROOFS])
    assert found[0].passed is False
    with pytest.raises(ValueError, match=r"skip must name checks of .* got \['speed'\]"):
        check_encoder(Toy(), examples.make_inputs, skip=["speed"])


def test_an_undefined_tensor_of_a_list_goes_back_to_the_dispatcher():
    """As FlashAttention-3 returns them: two results and two that were not asked for."""
    rows = torch.ones(2, 3)
    back = following.handed_back([rows, None], results=1)
    assert back[0] is rows and back[1].shape == (0,)
    assert following.handed_back([rows, rows], results=2) == (rows, rows)
    assert following.handed_back(rows, results=1) is rows

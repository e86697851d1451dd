"""Bad inputs: a clear error that names the item, never a wrong answer, and no harm to the others."""

from dataclasses import replace

import pytest
import torch
from helpers import batch, plan, tiny

from encgraph.encoders.protocol import EncoderOutput
from encgraph.errors import CaptureError, StaleBufferError
from encgraph.records import Item
from encgraph.runner import EncoderRunner
from encgraph.sizes import Grid


@pytest.fixture(scope="module")
def encoder():
    return tiny()


@pytest.fixture
def runner(encoder):
    with EncoderRunner(encoder=encoder, plan=plan(64), backend="reference") as made:
        made.capture()
        yield made


@pytest.fixture(scope="module")
def good(encoder):
    return batch([(4, 4), (8, 6), (4, 8)], encoder)


BAD = {
    "channels last": (lambda v: replace(v, pixels=v.pixels.t()), "pixels of shape"),
    "too narrow a patch": (lambda v: replace(v, pixels=v.pixels[:, :-3]), "pixels of shape"),
    "a patch too few": (lambda v: replace(v, pixels=v.pixels[:-1]), "pixels of shape"),
    "a grid not divisible": (lambda v: replace(v, grid=Grid(1, 3, 16)), "divide by 2"),
    "an empty clip": (lambda v: replace(v, grid=Grid(0, 8, 6)), r"got \(0, 8, 6\)"),
    "no tokens": (lambda v: replace(v, grid=Grid(1, 0, 6)), r"got \(1, 0, 6\)"),
    "integers": (lambda v: replace(v, pixels=v.pixels.int()), "float dtype"),
    "gradients": (lambda v: replace(v, pixels=v.pixels.clone().requires_grad_()), "detach"),
    "sizes of another": (lambda v: replace(v, item=Item(tokens=5, patches=20)), "12 tokens"),
    "no input at all": (lambda v: v.pixels, "must be an Input, got Tensor"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_item_is_refused_by_name(what, runner, good):
    spoil, said = BAD[what]
    with pytest.raises((ValueError, TypeError), match=rf"item 1\b.*{said}"):
        runner.execute([good[0], spoil(good[1]), good[2]])


@pytest.mark.parametrize("what", BAD)
def test_a_bad_item_does_not_fail_the_others_when_asked(what, runner, good):
    spoil, _ = BAD[what]
    first, refused, last = runner.execute_each([good[0], spoil(good[1]), good[2]])
    assert isinstance(refused, ValueError | TypeError)
    assert str(refused).startswith("item 1")
    alone = runner.execute([good[0], good[2]])
    assert torch.equal(first.main, alone[0].main)
    assert torch.equal(last.main, alone[1].main)


def test_execute_each_of_good_items_is_execute(runner, good):
    pairs = zip(runner.execute_each(good), runner.execute(good), strict=True)
    assert all(torch.equal(mine.main, true.main) for mine, true in pairs)


def test_execute_each_of_bad_items_alone_encodes_nothing(runner, good):
    bad = replace(good[1], grid=Grid(1, 3, 16))
    found = runner.execute_each([bad, good[0], bad])
    assert [isinstance(one, EncoderOutput) for one in found] == [False, True, False]
    assert str(found[2]).startswith("item 2")
    assert len(runner.execute_each([bad])) == 1


def test_no_items_give_no_outputs(runner):
    assert runner.execute([]) == runner.execute_each([]) == []


def test_a_changed_encoder_is_no_items_fault(runner, encoder, good):
    hook = encoder.module.register_forward_hook(lambda *_: None)
    try:
        with pytest.raises(StaleBufferError, match="changed its forward hooks"):
            runner.execute_each(good)
        with pytest.raises(CaptureError, match="has forward hooks"):
            EncoderRunner(encoder=encoder, plan=plan(64), backend="reference").capture()
    finally:
        hook.remove()


def test_an_encoder_in_training_mode_is_refused(runner, encoder, good):
    encoder.module.train()
    try:
        with pytest.raises(ValueError, match=r"eval mode; call \.eval\(\)"):
            runner.execute(good)
    finally:
        encoder.module.eval()


def test_mixed_dtypes_in_one_batch_are_converted(runner, good):
    dtypes = (torch.float32, torch.float16, torch.bfloat16)
    mixed = [replace(v, pixels=v.pixels.to(d)) for v, d in zip(good, dtypes, strict=True)]
    exact = [replace(v, pixels=v.pixels.float()) for v in mixed]
    pairs = zip(runner.execute(mixed), runner.execute(exact), strict=True)
    assert all(torch.equal(mine.main, true.main) for mine, true in pairs)


def test_an_item_over_every_budget_falls_back_and_is_right(runner, encoder):
    [large] = batch([(18, 16)], encoder)
    [output] = runner.execute([large])
    [eager] = encoder.stock().eager([large])
    assert output.main.shape == (72, 96)
    torch.testing.assert_close(output.main, eager.main, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", ["execute", "execute_each", "borrow"])
def test_a_runner_without_its_graphs_warns_its_caller_once(way):
    encoder = tiny()
    runner = EncoderRunner(encoder=encoder, plan=plan(16), backend="reference")
    call = {
        "execute": runner.execute,
        "execute_each": runner.execute_each,
        "borrow": runner.borrow,
    }[way]
    inputs = batch([(8, 8)], encoder)
    with pytest.warns(UserWarning, match=r"every batch runs eager; call capture\(\)$") as said:
        call(inputs)
        call(inputs)
    assert [warning.filename for warning in said] == [__file__]


def test_a_runner_that_was_left_warns_and_one_that_was_cleared_does_not(recwarn):
    encoder = tiny()
    with EncoderRunner(encoder=encoder, plan=plan(16), backend="reference") as runner:
        runner.capture()
        runner.clear()
        runner.execute(batch([(8, 8)], encoder))
    assert not [w for w in recwarn if "nothing is captured" in str(w.message)]
    with pytest.warns(UserWarning, match="nothing is captured"):
        runner.execute(batch([(8, 8)], encoder))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"plan": {"graphs": []}}, "plan must be a Plan, got dict"),
        ({"plan": None}, "plan must be a Plan, got NoneType"),
        ({"encoder": "qwen3-vl-tiny"}, "got str without spec, module, item_spec"),
        ({"backend": "cudaa"}, "backend must be one of .*, got 'cudaa'"),
        ({"slabs": "own"}, "slabs must be one of .*, got 'own'"),
        ({"observe": None}, "observe must take a step, got None"),
        ({"packer": "zz"}, "packer must make the packer of a plan, got 'zz'"),
        ({"ownership": "mine"}, "ownership must be one of .*, got 'mine'"),
    ],
)
def test_a_runner_is_not_made_of_what_it_cannot_use(wrong, said):
    with pytest.raises((TypeError, ValueError), match=said):
        EncoderRunner(**{"encoder": tiny(), "plan": plan(16), **wrong})

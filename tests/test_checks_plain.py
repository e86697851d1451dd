"""Checks judge modules without parts, of short weights or compiled, and say what cannot be tried."""

import pytest
import torch
from checks_examples import Toy, subject_of
from torch import nn

from encgraph.checks import bad_inputs, stale, suite
from encgraph.checks.subject import Subject
from encgraph.encoders import wrap


def tower():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 6)).eval()


def half_compiled():
    module = tower()
    module[0] = torch.compile(module[0], backend="eager")
    return module


MODULES = {
    "linear": lambda: nn.Linear(8, 6).eval(),
    "norm": lambda: nn.Sequential(nn.LayerNorm(8)).eval(),
    "compiled": lambda: torch.compile(tower(), backend="eager"),
    "a compiled part": half_compiled,
}
OF_ONE_SHAPE = {"fallback", "boundaries", "clips", "last_row", "poison"}
"""What nothing is said of for any wrapped module of one image."""


def drawn(module):
    encoder = wrap.fixed(module, torch.zeros(8))

    def make(wanted, seed):
        generator = torch.Generator().manual_seed(seed)
        return [encoder.input(torch.randn(8, generator=generator)) for _ in wanted]

    return Subject(encoder=encoder, make_inputs=make)


@pytest.mark.parametrize("name", MODULES)
def test_a_plain_module_passes_every_check_that_can_be_tried(name):
    found = list(suite.run(drawn(MODULES[name]())))
    assert [one.detail for one in found if one.passed is False] == []
    untried = {one.name: one.detail for one in found if one.passed is None}
    if name == "linear":
        said = untried.pop("swapped_module")
        assert said == ("module has no submodule that holds weights",)
    assert untried.keys() == OF_ONE_SHAPE


class HoldsNoWeight(Toy):
    """Its module has none; what runs lies elsewhere."""

    def __init__(self):
        super().__init__()
        self.tower, self.module = self.module, nn.Identity().eval()

    spec = property(lambda self: Toy(self.tower).spec)

    def forward(self, buffers, capacity):
        return Toy(self.tower).forward(buffers, capacity)

    def eager(self, inputs):
        return Toy(self.tower).eager(inputs)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rebound_weight", "module holds no weight"),
        ("changed_dtype", "module holds no weight"),
        ("swapped_module", "module has no submodule that holds weights"),
    ],
)
def test_a_change_that_cannot_be_made_is_not_run_and_says_why(name, said):
    subject = subject_of(HoldsNoWeight())
    with subject.runner() as runner:
        found = stale.refused(name, subject, runner)
        assert (found.passed, found.detail) == (None, (said,))
        assert stale.refused("forward_hook", subject, runner).passed


class ReadsMemory(Toy):
    """Takes pixels for contiguous whatever their strides."""

    def fill(self, buffers, inputs):
        super().fill(buffers, inputs)
        start = 0
        for value in inputs:
            shape = value.pixels.shape
            rows = torch.as_strided(value.pixels, shape, (shape[1], 1))
            buffers["pixels"][start : start + len(rows)].copy_(rows)
            start += len(rows)


def test_pixels_taken_for_contiguous_are_a_bad_input():
    for encoder, problems in ((Toy(), 0), (ReadsMemory(), 1)):
        subject = subject_of(encoder)
        with subject.runner() as runner:
            found = bad_inputs.check(subject, runner)
        assert found.passed is not bool(problems)
        said = (
            "pixels that lie apart in memory: accepted, with another answer; refuse it in item_spec"
        )
        assert [said] * problems == [line for line in found.detail if "apart in memory" in line]


def test_a_function_of_no_module_is_passed_over(monkeypatch):
    made = eval("lambda: 0", {"__name__": None})
    assert made.__module__ is None
    monkeypatch.setitem(globals(), "made", made)
    subject = subject_of(HoldsNoWeight())
    assert suite.STATIC["audit"][0](subject).passed

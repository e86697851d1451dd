"""The check of a swapped submodule passes what runs the new one, or refuses, and names what was kept."""

import pytest
import torch
from checks_examples import Toy, subject_of

from encgraph.checks import stale
from encgraph.checks.subject import Subject, synthetic
from encgraph.encoders import registry


class KeepsASubmodule(Toy):
    def __init__(self, tower=None):
        super().__init__(tower)
        self.out = self.module.out

    def last(self, hidden):
        return self.out(hidden)


class RefusesASwap(KeepsASubmodule):
    def last(self, hidden):
        if self.out is not self.module.out:
            raise ValueError("out was swapped; wrap the tower again")
        return super().last(hidden)


def swapped(encoder):
    subject = subject_of(encoder)
    with subject.runner() as runner:
        return stale.swapped_module(subject, runner)


def test_a_submodule_that_is_kept_from_before_a_swap_is_named():
    found = swapped(KeepsASubmodule())
    assert not found.passed
    assert list(found.detail) == [
        "submodule 'out' swapped is not seen by a new capture or by eager: the old one was kept; "
        "read it from the module in forward"
    ]


@pytest.mark.parametrize(
    "name", ["bert-tiny", "dinov3-tiny", "glm4v-tiny", "idefics3-tiny", "siglip2-naflex-tiny"]
)
def test_a_swapped_submodule_of_any_layout_runs_after_a_new_capture(name):
    encoder = registry.named(name, device="cpu", dtype=torch.float32)
    subject = Subject(encoder=encoder, make_inputs=synthetic(encoder.spec))
    with subject.runner() as runner:
        found = stale.swapped_module(subject, runner)
    assert found.passed
    assert found.detail[0].endswith("; captured again, the new one runs")


def test_a_swap_that_is_refused_when_captured_again_says_so():
    found = swapped(RefusesASwap())
    assert found.passed
    assert "; captured again: CaptureError: no budget could be captured" in found.detail[0]

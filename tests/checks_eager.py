"""Adapters whose `eager` alone is wrong, and adapters that keep what an edit of a weight should change."""

from dataclasses import replace

import torch
from checks_examples import H, Tower, Toy, W, make_inputs
from torch import nn
from torch.nn.functional import dropout, linear, normalize

from encgraph.encoders.protocol import EncoderOutput


def changed(outputs, change):
    return [EncoderOutput(main=change(output.main)) for output in outputs]


class RoundsLarge(Toy):
    def eager(self, inputs):
        return changed(
            super().eager(inputs), lambda rows: rows.half().float() if len(rows) > 512 else rows
        )


class FlipsTheLargest(Toy):
    def eager(self, inputs):
        return changed(
            super().eager(inputs), lambda rows: rows.flip(0) if len(rows) == 1024 else rows
        )


class RefusesLarge(Toy):
    def eager(self, inputs):
        assert all(len(value.pixels) <= 256 for value in inputs), "too large"
        return super().eager(inputs)


class RefusesMany(Toy):
    def eager(self, inputs):
        assert len(inputs) <= 4, "too many"
        return super().eager(inputs)


class DropsOfMany(Toy):
    def eager(self, inputs):
        outputs = super().eager(inputs)
        return changed(outputs, dropout) if len(inputs) > 4 else outputs


class JoinsChunksOfEight(Toy):
    size = 8

    def eager(self, inputs):
        outputs = []
        for start in range(0, len(inputs), self.size):
            outputs = super().eager(inputs[start : start + self.size]) + outputs
        return outputs


class JoinsChunksOfSixteen(JoinsChunksOfEight):
    size = 16


class ForgetsTheLast(Toy):
    def eager(self, inputs):
        return super().eager(inputs[:16])


class KeepsByAddress(Toy):
    def __init__(self, tower=None):
        super().__init__(tower)
        self.answers = {}

    def eager(self, inputs):
        known = [value for value in inputs if self.address(value) not in self.answers]
        made = zip(known, super().eager(known), strict=True)
        self.answers |= {self.address(value): output for value, output in made}
        return [self.answers[self.address(value)] for value in inputs]

    def address(self, value):
        return value.pixels.data_ptr()


class GivesDoubles(Toy):
    def eager(self, inputs):
        return changed(super().eager(inputs), torch.Tensor.double)


class HasNoMemoryForLarge(Toy):
    def eager(self, inputs):
        if any(len(value.pixels) > 64 for value in inputs):
            raise torch.OutOfMemoryError("no room")
        return super().eager(inputs)


class DriftsLate(Toy):
    """Right for all that `fallback` asks, and wrong from then on."""

    calls = 0

    def eager(self, inputs):
        self.calls += 1
        return changed(super().eager(inputs), lambda rows: rows * (1.01 if self.calls > 20 else 1))


class KeepsACopy(Tower):
    """A module that keeps a copy of one weight when it first runs."""

    kept = None

    def attend(self, hidden, mask=None):
        return super().attend(hidden, mask) + linear(hidden, self.copied(), None)[:, :H]

    def copied(self):
        if self.kept is None:
            self.kept = self.derived().detach().clone()
        return self.kept

    def derived(self):
        return self.extra.weight

    def __init__(self):
        super().__init__()
        self.extra = nn.Linear(H, H, bias=False)


class KeepsATransposedCopy(KeepsACopy):
    def derived(self):
        return self.extra.weight.t().contiguous()


class Normed(Tower):
    """Its last weight can be of any size: what it gives is normalised."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(H, W, bias=False)

    def forward(self, pixels, lengths):
        return normalize(super().forward(pixels, lengths))


class KeepsANormedWeight(Toy):
    def __init__(self):
        super().__init__(Normed())
        self.kept = self.module.out.weight.clone()

    def last(self, hidden):
        return normalize(hidden @ self.kept.t())


def alike(wanted, seed):
    """Items of one content, if of one size."""
    made = make_inputs(wanted, seed)
    return [replace(value, pixels=torch.ones_like(value.pixels)) for value in made]

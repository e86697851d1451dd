"""Adapters of slots of one shape: a right one, and ones that go wrong with several items in a replay.

And adapters of the toy tower that keep or make a tensor where no operator shows it.

Shape legend: N slots, K patch width.
"""

from dataclasses import replace

import numpy as np
import torch
from checks_examples import K, Toy
from checks_examples import make_inputs as make_images
from torch import nn

from encgraph.checks.subject import Subject
from encgraph.encoders.protocol import EncoderOutput
from encgraph.errors import require

ROWS = 4
CACHE = {}


class Slots(Toy):
    """Right: every item takes one slot, and `fill` clears all others."""

    @property
    def spec(self):
        return replace(super().spec, min_tokens=ROWS, max_tokens=ROWS)

    def item_spec(self, value):
        require(value.pixels.shape == (ROWS, K), f"must have pixels ({ROWS}, {K})")
        return super().item_spec(value)

    def buffers(self, capacity, device, dtype):
        return {"pixels": torch.zeros(capacity.items, ROWS, K, device=device, dtype=dtype)}

    def fill(self, buffers, inputs):
        buffers["pixels"].zero_()
        for slot, value in zip(self.slots(buffers["pixels"]), self.order(inputs), strict=False):
            slot.copy_(value.pixels)

    def forward(self, buffers, capacity):
        each = [self.module.attend(self.module.embed(slot)) for slot in buffers["pixels"]]
        return EncoderOutput(main=self.joined(torch.stack(each).flatten(0, 1), capacity))

    def slots(self, pixels):
        return pixels

    def order(self, inputs):
        return inputs

    def joined(self, hidden, capacity):
        return self.module.out(hidden)


class FillsThree(Slots):
    def slots(self, pixels):
        return pixels[:3]


class FillsInReverse(Slots):
    def order(self, inputs):
        return inputs[::-1]


class DoublesTheFourth(Slots):
    def joined(self, hidden, capacity):
        rows = super().joined(hidden, capacity)
        return torch.cat((rows[: 3 * ROWS], 2 * rows[3 * ROWS :]))


class DoublesInAGraphOfFour(Slots):
    def joined(self, hidden, capacity):
        return super().joined(hidden, capacity) * (2 if capacity.items == 4 else 1)


class DoublesTheLastSlot(Slots):
    def joined(self, hidden, capacity):
        rows = super().joined(hidden, capacity)
        return torch.cat((rows[:-ROWS], (2 if capacity.items > 1 else 1) * rows[-ROWS:]))


class AddsNothingOfAll(Slots):
    """Right for finite pixels; one item's NaN is everybody's."""

    def joined(self, hidden, capacity):
        return super().joined(hidden + 0 * hidden.mean(), capacity)


class AddsAllSquares(Slots):
    def joined(self, hidden, capacity):
        return super().joined(hidden + 0.1 * (hidden * hidden).mean(), capacity)


class AnswersBackwards(Slots):
    def eager(self, inputs):
        return super().eager(inputs)[::-1]


class DoublesBeyondThree(nn.Module):
    """A module that itself answers otherwise for an item after the third of a batch, once told to."""

    def __init__(self):
        super().__init__()
        self.out, self.told = nn.Linear(48, 5), False

    def forward(self, pixels):
        rows = self.out(pixels.flatten(1))
        return torch.cat((rows[:3], 2 * rows[3:])) if self.told else rows


class KeepsInADict(Toy):
    def last(self, hidden):
        if hidden.shape not in CACHE:
            CACHE[hidden.shape] = torch.zeros_like(hidden)
        return super().last(hidden + CACHE[hidden.shape])


class KeepsFromTheFirstCall(Toy):
    kept = None

    def fill(self, buffers, inputs):
        super().fill(buffers, inputs)
        if self.kept is None:
            self.kept = [0 * buffers["pixels"].mean()]

    def last(self, hidden):
        return super().last(hidden) + self.kept[0]


class Remembers(Toy):
    """Overwrites at each call what no call reads: a fresh tensor may lie where it lay."""

    def last(self, hidden):
        self.seen = hidden * 1.0
        return super().last((hidden + 1.0) - 1.0)


class MakesFromNumpy(Toy):
    def last(self, hidden):
        return super().last(hidden) + torch.from_numpy(np.zeros(1, dtype=np.float32))


class HoldsATensor(Toy):
    """Right on the CPU; on a card only if the tensor was made there."""

    def __init__(self, tower=None):
        super().__init__(tower)
        self.shift = torch.zeros(1)

    def last(self, hidden):
        return super().last(hidden) + self.shift.to(hidden.device)


class RefusesEverything(Slots):
    def item_spec(self, value):
        require(False, "must never be")


def make_slots(wanted, seed):
    return make_images([replace(item, tokens=ROWS, patches=ROWS) for item in wanted], seed)


def slots_of(encoder):
    return Subject(encoder=encoder, make_inputs=make_slots)

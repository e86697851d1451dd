"""Adapters that could mislead a check: compared with themselves, wrong before any change, drifting."""

import copy

import torch
from checks_examples import Toy

from encgraph.encoders.protocol import EncoderOutput


class IsItsOwnStock(Toy):
    def stock(self):
        return self


class CallsItsOwnEagerStock(Toy):
    def stock(self):
        return CallsItsOwnEagerStock(self.module)


class Doubles(Toy):
    """Twice what the tower gives, eager and in graphs."""

    def last(self, hidden):
        return 2 * super().last(hidden)

    def eager(self, inputs):
        return [EncoderOutput(main=2 * output.main) for output in super().eager(inputs)]


class DoublesItsOracle(Doubles):
    def oracle(self):
        return Doubles(copy.deepcopy(self.module).float())


class IsSlightlyWrong(Toy):
    def last(self, hidden):
        return 1.0001 * super().last(hidden)


class MixesItems(Toy):
    def last(self, hidden):
        return super().last(hidden + hidden.mean(0))


class GivesNaN(Toy):
    def last(self, hidden):
        return torch.nan * super().last(hidden)


class Drifts(Toy):
    """Another answer every time."""

    runs = 0

    def last(self, hidden):
        self.runs += 1
        return super().last(hidden) * (1 + self.runs / 16)


class BreaksBeyondTheSmallest(Toy):
    def longest(self, capacity):
        if capacity.tokens > 4:
            raise RuntimeError("too large")
        return super().longest(capacity)


class KeepsGradients(Toy):
    def __init__(self, tower=None):
        super().__init__(tower)
        self.module.requires_grad_(True)

    def eager(self, inputs):
        with torch.enable_grad():
            return Toy.eager.__wrapped__(self, inputs)

"""Adapters that are wrong where few inputs come: large items, many items, buffers, plain refusals."""

from dataclasses import replace

import torch
from checks_examples import Tower, Toy, Untouched, make_inputs

from encgraph.encoders.protocol import EncoderOutput
from encgraph.errors import require
from encgraph.records import Capacity, Plan


class IsWrongAbove(Toy):
    """One in a hundred wrong for items of more than so many tokens; 1 to 64 are legal."""

    def __init__(self, above):
        super().__init__()
        self.above = above

    @property
    def spec(self):
        return replace(super().spec, min_tokens=1, max_tokens=64)

    def item_spec(self, value):
        require(value.grid.w <= 64, "must have at most 64 tokens")
        return super().item_spec(value)

    def forward(self, buffers, capacity):
        main, ends = super().forward(buffers, capacity).main, buffers["ends"]
        lengths = torch.diff(ends, prepend=torch.zeros_like(ends[:1]))
        rows = torch.arange(capacity.patches, device=ends.device)
        item = torch.searchsorted(ends, rows, right=True).clamp_max(len(ends) - 1)
        return EncoderOutput(
            main=torch.where((lengths[item] > self.above)[:, None], 1.01 * main, main)
        )


def up_to_64(wanted, seed):
    """The nearest legal items."""
    return make_inputs([replace(item, tokens=min(item.tokens, 64)) for item in wanted], seed)


class MixesAboveEight(Toy):
    """Items of a replay of more than 8 reach one another."""

    def forward(self, buffers, capacity):
        main, ends = super().forward(buffers, capacity).main, buffers["ends"]
        items = (torch.diff(ends, prepend=torch.zeros_like(ends[:1])) > 0).sum()
        live = torch.arange(capacity.patches, device=ends.device) < ends[-1]
        mean = torch.where(live[:, None], main, 0.0).sum(0) / ends[-1]
        return EncoderOutput(main=torch.where(items > 8, main + mean, main))


OF_TWELVE = Plan(
    graphs=(Capacity(tokens=48, patches=48, items=12, segments=12, longest_segment=48, frames=12),),
    encoder="toy",
    dtype="float32",
)


class Scaled(Tower):
    """Multiplies and shifts by buffers; the shift is of zeros."""

    def __init__(self, *, persistent=True):
        super().__init__()
        self.register_buffer("scale", torch.tensor(1.5), persistent=persistent)
        self.register_buffer("shift", torch.zeros(8), persistent=persistent)
        self.register_buffer("unused", torch.ones(2))
        self.register_buffer("repeated", torch.ones(1).expand(2))
        self.register_buffer("steps", torch.ones(2, dtype=torch.int64))

    def forward(self, pixels, lengths):
        return super().forward(pixels, lengths) * self.scale + self.shift


class ReadsItsBuffers(Toy):
    def last(self, hidden):
        return super().last(hidden) * self.module.scale + self.module.shift


class FoldsTheScale(Toy):
    def __init__(self, tower):
        super().__init__(tower)
        self.scale = float(self.module.scale)

    def last(self, hidden):
        return super().last(hidden) * self.scale + self.module.shift


class FoldsTheShift(Toy):
    def __init__(self, tower):
        super().__init__(tower)
        self.shift = self.module.shift.tolist()[0]

    def last(self, hidden):
        return super().last(hidden) * self.module.scale + self.shift


class RefusesVaguely(Toy):
    def item_spec(self, value):
        require(not self.module.training, "this will not do")
        return super().item_spec(value)


class DropsARow(Untouched):
    def eager(self, inputs):
        return [EncoderOutput(main=each.main[1:]) for each in super().eager(inputs)]


class HasAnOracleOfFewerRows(Toy):
    def oracle(self):
        return DropsARow(self.module)

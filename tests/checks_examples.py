"""A toy tower outside the registry with a right adapter, and adapters that are wrong in one way each.

Shape legend: P patches, K patch width, H hidden, W output width, M max items.
"""

import copy
import functools
from dataclasses import replace

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from encgraph.checks.subject import Subject
from encgraph.encoders.protocol import Encoder as Encoder
from encgraph.encoders.protocol import EncoderOutput, EncoderSpec, Input
from encgraph.records import Item, Modality
from encgraph.sizes import Grid, TokenRule

K, H, W = 12, 16, 8
RULE = TokenRule(
    patch=2, merge=1, min_pixels=16, max_pixels=4096, video_min_pixels=0, video_max_pixels=0
)


class Tower(nn.Module):
    """One attention layer; each item attends within itself."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.qkv, self.out = nn.Linear(K, H), nn.Linear(H, 3 * H), nn.Linear(H, W)

    def attend(self, hidden, mask=None):
        q, k, v = self.qkv(hidden)[None, None].chunk(3, -1)
        return hidden + scaled_dot_product_attention(q, k, v, attn_mask=mask)[0, 0]

    def forward(self, pixels, lengths):
        parts = self.embed(pixels).split(lengths)
        return self.out(torch.cat([self.attend(part) for part in parts]))


class Toy:
    """Right in every way."""

    def __init__(self, tower=None):
        self.module = (tower or Tower()).eval().requires_grad_(False)

    @property
    def spec(self):
        weight = self.module.out.weight
        return EncoderSpec(
            name="toy",
            modalities=frozenset({Modality.IMAGE}),
            widths=(W,),
            dtype=weight.dtype,
            device=weight.device,
            rule=RULE,
            min_tokens=4,
            max_tokens=1024,
            attention="own",
            compiled=False,
        )

    def item_spec(self, value):
        rows = value.grid.h * value.grid.w
        problem = (
            "be in eval mode; call .eval()" if self.module.training
            else f"have pixels ({rows}, {K})" if tuple(value.pixels.shape) != (rows, K)
            else f"be an image of {rows} tokens" if value.item.tokens != rows or value.grid.t != 1
            else "have float pixels" if not value.pixels.is_floating_point()
            else "need no gradient" if value.pixels.requires_grad
            else None
        )  # fmt: skip
        if problem:
            raise ValueError(f"must {problem}")
        return Item(tokens=rows, patches=rows)

    def buffers(self, capacity, device, dtype):
        return {
            "pixels": torch.zeros(capacity.patches, K, device=device, dtype=dtype),
            "ends": torch.zeros(capacity.items, device=device, dtype=torch.int64),
        }

    def fill(self, buffers, inputs):
        total = 0
        for index, value in enumerate(inputs):
            buffers["pixels"][total : total + len(value.pixels)].copy_(value.pixels)
            total += len(value.pixels)
            buffers["ends"][index] = total
        self.clear(buffers, len(inputs), total)

    def clear(self, buffers, items, total):
        buffers["ends"][items:] = total

    def forward(self, buffers, capacity):
        rows = torch.arange(capacity.patches, device=buffers["pixels"].device)
        live = rows < buffers["ends"][-1]
        hidden = self.module.embed(self.masked(buffers["pixels"], live))
        item = torch.searchsorted(buffers["ends"], rows, right=True)
        near = (rows[:, None] - rows).abs() < self.longest(capacity)
        return EncoderOutput(
            main=self.last(self.module.attend(hidden, near & (item[:, None] == item)))
        )

    def masked(self, pixels, live):
        return torch.where(live[:, None], pixels, 0.0)

    def longest(self, capacity):
        return capacity.longest_segment

    def last(self, hidden):
        return self.module.out(hidden)

    @torch.no_grad()
    def eager(self, inputs):
        if not inputs:
            return []
        for value in inputs:
            self.item_spec(value)
        lengths = [len(value.pixels) for value in inputs]
        packed = torch.cat([v.pixels.to(self.spec.dtype) for v in inputs])
        return [EncoderOutput(main=rows) for rows in self.module(packed, lengths).split(lengths)]

    def stock(self):
        return Untouched(self.module)

    def oracle(self):
        return Untouched(copy.deepcopy(self.module).float())


class Untouched(Toy):
    """The tower as it is, an item at a time."""

    @torch.no_grad()
    def eager(self, inputs):
        pixels = [value.pixels.to(self.spec.dtype) for value in inputs]
        return [EncoderOutput(main=self.module(each, [len(each)])) for each in pixels]


def make_inputs(wanted, seed):
    generator = torch.Generator().manual_seed(seed)
    return [
        Input(
            item=replace(item, modality=Modality.IMAGE),
            pixels=torch.rand(item.tokens, K, generator=generator),
            grid=Grid(1, 1, item.tokens),
        )
        for item in wanted
    ]


def subject_of(encoder, **options):
    return Subject(encoder=encoder, make_inputs=make_inputs, **options)


class ReadsTheGrid(Toy):
    def masked(self, pixels, live):
        return pixels[: len(live.tolist())]


class MakesOnTheHost(Toy):
    def masked(self, pixels, live):
        return super().masked(pixels, live) * torch.ones(1)


class IndexesByMask(Toy):
    def masked(self, pixels, live):
        pixels = pixels.clone()
        pixels[~live] = 0
        return pixels


@functools.lru_cache(maxsize=4)
def scale(rows):
    return torch.full((rows, 1), 1.0, device="cpu")


class CachesATensor(Toy):
    def masked(self, pixels, live):
        return super().masked(pixels, live) * scale(len(pixels))


class LooksForACapture(Toy):
    def last(self, hidden):
        if torch.cuda.is_current_stream_capturing():
            hidden = hidden.clone()
        return super().last(hidden)


class BakesTheCount(Toy):
    count = 0

    def clear(self, buffers, items, total):
        self.count = items
        super().clear(buffers, items, total)

    def last(self, hidden):
        return super().last(hidden) + 1e-9 * self.count


class LeavesAStaleTail(Toy):
    def clear(self, buffers, items, total):
        buffers["ends"][-1] = total


class AttendsTooShort(Toy):
    def longest(self, capacity):
        return capacity.longest_segment - capacity.longest_segment // 16


class ReusesItsOutput(Toy):
    def __init__(self, tower=None):
        super().__init__(tower)
        self.scratch = torch.zeros(4096, W)

    def eager(self, inputs):
        outputs = super().eager(inputs)
        total = 0
        for index, output in enumerate(outputs):
            rows = self.scratch[total : total + len(output.main)].copy_(output.main)
            outputs[index], total = EncoderOutput(main=rows), total + len(rows)
        return outputs


class KeepsADerivedWeight(Toy):
    def __init__(self, tower=None):
        super().__init__(tower)
        self.transposed = self.module.out.weight.t().contiguous()

    def last(self, hidden):
        return hidden @ self.transposed + self.module.out.bias


class ReducesOverPadding(Toy):
    def masked(self, pixels, live):
        return pixels + 0.0 * pixels.amax()


class MultipliesByZero(Toy):
    def masked(self, pixels, live):
        return pixels * live[:, None]


class ReturnsTooFewRows(Toy):
    def last(self, hidden):
        return super().last(hidden)[:-1]


class AnswersInAnotherOrder(Toy):
    def eager(self, inputs):
        return super().eager(inputs[::-1])


class TrustsItsInputs(Toy):
    def item_spec(self, value):
        return Item(tokens=value.item.tokens, patches=value.item.tokens)


class WatchesNothing(Toy):
    """Its `module` is not what it runs."""

    def __init__(self, tower=None):
        super().__init__(tower)
        self.module, self.hidden = nn.Sequential(nn.Linear(2, 2)).eval(), self.module

    spec = property(lambda self: Toy(self.hidden).spec)

    def item_spec(self, value):
        return Toy(self.hidden).item_spec(value)

    def forward(self, buffers, capacity):
        return Toy(self.hidden).forward(buffers, capacity)

    def eager(self, inputs):
        return Toy(self.hidden).eager(inputs)

    def stock(self):
        return Untouched(self.hidden)


class Begun:
    """An adapter after its first step."""

    spec = Toy.spec

    def __init__(self):
        self.module = Tower().eval()

    def item_spec(self, value):
        return Item(tokens=value.item.tokens, patches=value.item.tokens)

"""The adapter of docs/adapters.md: a tower that is not in the registry, in under 40 lines."""

# fmt: off
import copy

import torch
from transformers import ViTConfig, ViTModel

from encgraph.encoders.protocol import EncoderOutput, EncoderSpec, Input
from encgraph.errors import require
from encgraph.records import Item, Modality
from encgraph.sizes import Grid, TokenRule

SHAPE, ROWS = (3, 32, 32), 17  # an image; its rows: 4 x 4 patches and the class token
RULE = TokenRule(patch=8, merge=1, min_pixels=1024, max_pixels=1024, resize="fixed",
                 prefix=1, prefix_tokens=1)


class Vit:
    def __init__(self, module):
        self.module = module

    @property
    def spec(self):
        return EncoderSpec(name="my-vit", modalities=frozenset({Modality.IMAGE}), rule=RULE,
            widths=(self.module.config.hidden_size,), dtype=self.module.dtype, compiled=False,
            device=self.module.device, min_tokens=ROWS, max_tokens=ROWS, attention="own")

    def item_spec(self, value):
        require(not self.module.training, "the module must be in eval mode; call .eval() on it")
        require(value.pixels.shape == SHAPE, f"must have pixels {SHAPE}, got {value.pixels.shape}")
        require(value.pixels.is_floating_point(), "must have pixels of a float dtype")
        require(not value.pixels.requires_grad, "must have pixels without gradient; detach them")
        return Item(tokens=ROWS, patches=ROWS)

    def buffers(self, capacity, device, dtype):
        return {"pixels": torch.zeros(capacity.items, *SHAPE, device=device, dtype=dtype)}

    def fill(self, buffers, inputs):
        buffers["pixels"].zero_()
        for slot, value in zip(buffers["pixels"], inputs, strict=False):
            slot.copy_(value.pixels, non_blocking=True)

    def forward(self, buffers, capacity):  # the module's own, but for a mask: see `paths` below
        rows = buffers["pixels"]
        for part in (self.module.embeddings, *self.module.layers, self.module.layernorm):
            rows = part(rows)
        return EncoderOutput(main=rows.flatten(0, 1))

    @torch.no_grad()
    def eager(self, inputs):
        pixels = [value.pixels.to(self.module.device, self.module.dtype) for value in inputs]
        rows = self.module(torch.stack(pixels)).last_hidden_state if pixels else ()
        return [EncoderOutput(main=each) for each in rows]

    def stock(self):
        return Untouched(self.module)

    def oracle(self):
        return Untouched(copy.deepcopy(self.module).float())


class Untouched(Vit):
    @torch.no_grad()
    def eager(self, inputs):  # the module alone, an item at a time: what all else is held against
        each = [self.module(value.pixels[None].to(self.module.device, self.module.dtype)) for value in inputs]
        return [EncoderOutput(main=made.last_hidden_state[0]) for made in each]


def build(device, dtype):
    config = ViTConfig(image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=2,
                       num_attention_heads=2, intermediate_size=64)
    return Vit(ViTModel(config, add_pooling_layer=False).to(device, dtype).eval())


def make_inputs(wanted, seed):
    generator = torch.Generator().manual_seed(seed)
    item = Item(tokens=ROWS, patches=ROWS)
    return [
        Input(item=item, pixels=torch.rand(SHAPE, generator=generator), grid=Grid(1, 4, 4))
        for _ in wanted
    ]

"""An item over its processor's limits is refused by name, or sent eager with the reason, and right."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from helpers_families import PACKED, a_clip, assert_same, batch, stock

from encgraph import sizes
from encgraph.encoders import registry
from encgraph.encoders.protocol import Input
from encgraph.records import FallbackReason, Plan, Route
from encgraph.runner import EncoderRunner
from encgraph.sizes import Grid

CPU = torch.device("cpu")
BY_ITS_GRID = [name for name in PACKED if sizes.named(name).rule.resize != "longest_edge"]
LIMIT = 16
"""Tokens to which the processor is limited here."""


def limited(name, **switches):
    """A tiny tower whose processor takes at most so many tokens."""
    size = sizes.named(name)
    pixels = LIMIT * size.rule.factor**2 * size.rule.image_frames
    rule = replace(size.rule, max_pixels=pixels, min_pixels=size.rule.factor**2)
    if rule.video_max_pixels:
        rule = replace(rule, video_max_pixels=2 * pixels)
    small = replace(size, rule=rule)
    build = registry.FAMILIES[size.family].build
    return build(small, device=CPU, dtype=torch.float32, seed=0, **switches)


def executed(encoder, items):
    """Outputs and fallback reasons of a runner whose one budget is the processor's limit."""
    seen = []

    def observe(step):
        seen.append(step)
        return nullcontext()

    budget = sizes.capacity(LIMIT, encoder.size.rule, items=2, frames=4)
    plan = Plan(graphs=(budget,), encoder=encoder.spec.name)
    with EncoderRunner(encoder=encoder, plan=plan, backend="reference") as runner:
        runner.capture()
        runner.observe = observe
        outputs = runner.execute(items)
    return outputs, [(step.route, step.reason) for step in seen]


@pytest.mark.parametrize("metadata", ["graph", "host"])
@pytest.mark.parametrize("name", BY_ITS_GRID)
def test_an_image_over_the_pixel_limit_goes_eager_with_the_reason(name, metadata):
    encoder = limited(name, metadata=metadata)
    size, merge = encoder.size, encoder.size.rule.merge
    items = batch(size, [Grid(1, 6 * merge, 5 * merge), Grid(1, 2 * merge, 2 * merge)])
    assert items[0].item.tokens > size.rule.max_tokens
    outputs, routes = executed(encoder, items)
    assert_same(outputs, stock(encoder, items))
    assert routes == [
        (Route.REPLAY, None),
        (Route.FALLBACK, FallbackReason.OVER_TOKENS),
    ]


@pytest.mark.parametrize("name", BY_ITS_GRID)
def test_a_clip_over_the_limit_goes_eager_with_the_reason(name):
    encoder = limited(name)
    merge = encoder.size.rule.merge
    items = [a_clip(encoder.size, Grid(8, 3 * merge, 3 * merge))]
    outputs, routes = executed(encoder, items)
    assert_same(outputs, stock(encoder, items))
    assert routes == [(Route.FALLBACK, FallbackReason.OVER_TOKENS)]


def test_a_side_past_pixtral_s_position_table_is_refused_by_name():
    encoder = limited("pixtral-tiny")
    size = encoder.size
    most = size.rule.longest_side(size.rule.max_pixels)
    good = batch(size, [Grid(1, most, most)])
    assert_same(encoder.eager(good), stock(encoder, good))
    items = [*good, *batch(size, [Grid(1, 1, most + 1)])]
    with pytest.raises(ValueError, match=f"item 1 must have at most {most} patches a side"):
        encoder.eager(items)
    with pytest.raises(ValueError, match=f"item 1.* at most {most} patches a side"):
        executed(encoder, items)


def test_an_image_over_naflex_s_patches_is_refused_by_name():
    encoder = registry.named("siglip2-naflex-tiny", device=CPU, dtype=torch.float32)
    pixels = torch.zeros(encoder.length + 1, encoder.size.patch_width)
    item = sizes.item(Grid(1, 1, encoder.length), encoder.size.rule)
    with pytest.raises(ValueError, match=f"item 0 must be an image of 1 to {encoder.length}"):
        encoder.eager([Input(item=item, pixels=pixels, grid=Grid(1, 1, encoder.length + 1))])


def test_more_tiles_than_a_processor_cuts_are_refused_by_name():
    encoder = registry.named("internvl-tiny", device=CPU, dtype=torch.float32)
    good = encoder.input(torch.zeros(2, *encoder.slot.shape))
    over = replace(good, pixels=torch.zeros(encoder.slot.most + 1, *encoder.slot.shape))
    with pytest.raises(ValueError, match=f"item 1 must have pixels.* up to {encoder.slot.most}"):
        encoder.eager([good, over])


def test_audio_of_another_length_is_refused_by_name():
    encoder = registry.named("whisper-tiny", device=CPU, dtype=torch.float32)
    mels, frames = encoder.slot.shape
    good = encoder.input(torch.zeros(mels, frames))
    for length in (0, frames - 1, frames + 1):
        wrong = replace(good, pixels=torch.zeros(mels, length))
        with pytest.raises(ValueError, match="item 0 must have pixels of shape"):
            encoder.eager([wrong])


def test_a_text_over_the_position_table_is_refused_by_name():
    encoder = registry.named("bert-tiny", device=CPU, dtype=torch.float32)
    longest = encoder.size.rule.max_pixels
    good = encoder.input(torch.arange(8, 12))
    wrong = replace(good, pixels=torch.full((longest + 1,), 9))
    with pytest.raises(ValueError, match=f"item 1 must have 1 to {longest} token ids"):
        encoder.eager([good, wrong])

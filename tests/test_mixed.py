"""Images, clips and audio of one request: grouped, packed and returned in order."""

from contextlib import nullcontext

import pytest
import torch
from helpers import BACKENDS, batch, close, plan, tiny

from encgraph.encoders import registry
from encgraph.encoders.protocol import Input
from encgraph.errors import StaleBufferError
from encgraph.mixed import MixedRunner
from encgraph.records import Modality, Plan, Route
from encgraph.runner import EncoderRunner

MIX = [(8, 8), (2, 8, 8), (4, 8), (3, 4, 8), (40, 40), (8, 8)]


def whisper(backend):
    vision = tiny(backend)
    return registry.named("whisper-tiny", device=vision.spec.device, dtype=vision.spec.dtype)


def audio(encoder, count):
    torch.manual_seed(count)
    shape = (count, *encoder.slot.shape)
    pixels = torch.randn(shape, device=encoder.spec.device).to(encoder.spec.dtype)
    return [encoder.input(one) for one in pixels]


def runners(backend, observe=lambda step: nullcontext()):
    vision, hearing = tiny(backend), whisper(backend)
    heard = Plan(graphs=(hearing.capacity(2 * hearing.slot.rows),), encoder=hearing.spec.name)
    seeing = EncoderRunner(encoder=vision, plan=plan(16, 64, 128), backend=backend, observe=observe)
    listening = EncoderRunner(encoder=hearing, plan=heard, backend=backend, observe=observe)
    return {Modality.IMAGE: seeing, Modality.VIDEO: seeing, Modality.AUDIO: listening}


@pytest.mark.parametrize("backend", BACKENDS)
def test_images_and_clips_share_one_runner_and_come_back_in_order(backend):
    encoder = tiny(backend)
    inputs = batch(MIX, encoder)
    steps = []

    def observe(step):
        steps.append(step)
        return nullcontext()

    runner = EncoderRunner(encoder=encoder, plan=plan(16, 64, 128), backend=backend)
    with runner:
        runner.capture()
        runner.observe = observe
        outputs = runner.execute(inputs)
    for value, output in zip(inputs, outputs, strict=True):
        assert close(output, encoder.eager([value])[0], encoder)
    replayed = {step.modality for step in steps if step.route is Route.REPLAY}
    assert replayed == {Modality.IMAGE, Modality.VIDEO}


@pytest.mark.parametrize("backend", BACKENDS)
def test_audio_among_images_and_clips_goes_to_its_own_encoder(backend):
    made = runners(backend)
    images = batch(MIX, made[Modality.IMAGE].encoder)
    heard = audio(made[Modality.AUDIO].encoder, 3)
    mixed = [heard[0], *images[:2], heard[1], *images[2:], heard[2]]
    with MixedRunner(made) as runner:
        runner.capture()
        outputs = runner.execute(mixed)
        for value, output in zip(mixed, outputs, strict=True):
            encoder = made[value.item.modality].encoder
            assert close(output, encoder.eager([value])[0], encoder)
        assert runner.execute([]) == []
    assert not any(one.has_graphs for one in made.values())


def test_one_modality_alone_leaves_the_other_encoder_untouched():
    steps = []

    def observe(step):
        steps.append(step)
        return nullcontext()

    with MixedRunner(runners("reference", observe)) as runner:
        runner.capture()
        steps.clear()
        runner.execute(audio(whisper("reference"), 2))
        assert {step.modality for step in steps} == {Modality.AUDIO}
        assert sum(step.items for step in steps) == 2


def test_errors_name_the_place_in_the_whole_batch_and_spare_the_others():
    made = runners("reference")
    [heard] = audio(made[Modality.AUDIO].encoder, 1)
    image, other = batch([(8, 8), (4, 4)], made[Modality.IMAGE].encoder)
    bad = Input(item=image.item, pixels=image.pixels[:-1], grid=image.grid)
    with MixedRunner(made) as runner:
        runner.capture()
        with pytest.raises(ValueError, match=r"^item 2 must have pixels of shape"):
            runner.execute([heard, other, bad])
        first, second, third, fourth = runner.execute_each([heard, bad, other, "image"])
        assert isinstance(second, ValueError)
        assert isinstance(fourth, TypeError)
        assert "item 3 must be an Input, got str" in str(fourth)
        assert torch.equal(first.main, runner.execute([heard])[0].main)
        assert torch.equal(third.main, runner.execute([other])[0].main)


def test_a_modality_without_a_runner_is_refused():
    made = runners("reference")
    seeing = MixedRunner({Modality.IMAGE: made[Modality.IMAGE]})
    with pytest.raises(ValueError, match=r"item 0 must be one of .*got audio"):
        seeing.execute(audio(made[Modality.AUDIO].encoder, 1))


def test_a_runner_under_a_modality_it_does_not_take_is_refused():
    made = runners("reference")
    with pytest.raises(ValueError, match="runner for image must take it, got 'whisper-tiny'"):
        MixedRunner({Modality.IMAGE: made[Modality.AUDIO]})
    with pytest.raises(ValueError, match="at least one runner"):
        MixedRunner({})


def test_a_stale_encoder_is_no_item_s_fault():
    made = runners("reference")
    images = batch([(8, 8)], made[Modality.IMAGE].encoder)
    with MixedRunner(made) as runner:
        runner.capture()
        weight = made[Modality.IMAGE].encoder.module.patch_embed.proj.weight
        weight.data = weight.data.clone()
        with pytest.raises(StaleBufferError):
            runner.execute_each(images)

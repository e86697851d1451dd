"""Clips through the model runner: laid out, placed, cached and answered as transformers does."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import plan
from helpers_model_runner import GATES, answers, clip, generated, images, runner, tiny_model
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.video_utils import VideoMetadata

from encgraph.measure import Recorder
from encgraph.model_runner import prompts
from encgraph.model_runner.prompts import Clip, Prompt, Run
from encgraph.records import FallbackReason, Modality, Route
from encgraph.sizes import Grid

NEW = 6
ROOM = {"length": 128}
VIDEO = Modality.VIDEO


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model()


def batch_of_clips(model: Any, seed: int = 0) -> list[Prompt]:
    """A clip between images, text alone, two clips side by side, and a clip of one step."""
    [a, b] = images((4, 6), (6, 6), seed=seed)
    long, short, still = (
        clip(*grid, seed=seed + at) for at, grid in enumerate([(3, 4, 4), (2, 4, 6), (1, 4, 4)])
    )
    parts = ([1, a, long, 2, b, 3], [7, 8, 9], [short, long, 5], [4, still])
    return [prompts.compose(part, model.config) for part in parts]


@pytest.fixture(scope="module")
def right(model: Any) -> list[tuple[int, ...]]:
    return [generated(model, prompt, NEW) for prompt in batch_of_clips(model)]


def video_steps(recorder: Recorder) -> list[Any]:
    return [t.step for t in recorder.steps if t.step.modality == VIDEO]


@pytest.mark.parametrize("gates", [GATES, replace(GATES, encoder_supported=False)])
@pytest.mark.parametrize("is_captured", [True, False])
def test_clips_among_images_are_answered_as_transformers_does(
    model: Any, right: list[tuple[int, ...]], gates: Any, is_captured: bool
) -> None:
    with runner(model, gates, options=ROOM) as made:
        if is_captured and gates.encoder_supported:
            made.capture()
        assert answers(made, batch_of_clips(model), NEW) == right
        assert [answers(made, [p], NEW)[0] for p in batch_of_clips(model)] == right


def test_clips_replay_and_a_known_clip_is_not_encoded_again(
    model: Any, right: list[tuple[int, ...]]
) -> None:
    recorder = Recorder(torch.device("cpu"))
    with runner(model, options=ROOM, observe=recorder) as made:
        made.capture()
        first = answers(made, batch_of_clips(model), NEW)
        assert {step.route for step in video_steps(recorder)} == {Route.REPLAY}
        assert sum(step.items for step in video_steps(recorder)) == 3
        recorder.steps.clear()
        assert answers(made, batch_of_clips(model), NEW) == first == right
        assert video_steps(recorder) == []


def test_every_clip_and_its_deepstack_features_change_the_answer(model: Any) -> None:
    batch = batch_of_clips(model)
    seen = [[v for v in prompt.items if v.item.modality == VIDEO] for prompt in batch]
    assert [len(found) for found in seen] == [1, 0, 2, 1]
    with runner(model, options=ROOM) as made:
        whole = [c.logits for c in made.generate(batch, new_tokens=1, keep_logits=True)]
        for row, found in enumerate(seen):
            for value in found:
                made.cache.clear()
                at = batch[row].items.index(value)
                items = list(batch[row].items)
                items[at] = replace(value, pixels=-value.pixels)
                other = replace(batch[row], items=tuple(items))
                [one] = made.generate([other], new_tokens=1, keep_logits=True)
                assert not torch.allclose(one.logits, whole[row], atol=1e-2)


def test_a_clip_longer_than_the_captured_frames_runs_eager_with_the_reason(model: Any) -> None:
    recorder = Recorder(torch.device("cpu"))
    batch = [prompts.compose([1, clip(5, 4, 4), 2], model.config)]
    [small] = plan(32).graphs
    few = replace(plan(32), graphs=(replace(small, frames=4),))
    with runner(model, options=ROOM, plan=few, observe=recorder) as made:
        made.capture()
        recorder.steps.clear()
        assert answers(made, batch, NEW) == [generated(model, batch[0], NEW)]
    [step] = video_steps(recorder)
    assert (step.route, step.reason) == (Route.FALLBACK, FallbackReason.OVER_FRAMES)


def test_a_clip_is_a_run_a_step_behind_its_timestamp(model: Any) -> None:
    config = model.config
    prompt = prompts.compose([1, clip(2, 4, 6), 2], config)
    start, end, pad = (
        config.vision_start_token_id,
        config.vision_end_token_id,
        config.video_token_id,
    )
    step = [start, *[pad] * 6, end]
    assert list(prompt.token_ids) == [1, 20, 40, *step, 21, 40, *step, 2]
    runs = (Run(start=4, length=6, modality=VIDEO), Run(start=14, length=6, modality=VIDEO))
    assert prompts.runs(prompt, config) == runs


@pytest.mark.parametrize("frames", [[0, 12, 24, 36], [0, 7, 15]])
def test_steps_and_timestamps_are_laid_out_as_the_processor_does(frames: list[int]) -> None:
    steps = -(-len(frames) // 2)
    words = SimpleNamespace(image_token_id="I", video_token_id="V")
    words.vision_start_token_id, words.vision_end_token_id = "S", "E"
    stamps = tuple((text,) for text in prompts.timestamps(frames, fps=25))
    made = prompts.compose([Clip(value=clip(steps, 4, 6).value, stamps=stamps)], words)
    processor = SimpleNamespace(
        video_processor=SimpleNamespace(merge_size=2, temporal_patch_size=2),
        video_token="V",
        vision_start_token="S",
        vision_end_token="E",
        _calculate_timestamps=lambda *given: Qwen3VLProcessor._calculate_timestamps(None, *given),
    )
    metadata = VideoMetadata(total_num_frames=len(frames), fps=25, frames_indices=list(frames))
    clips = {"video_grid_thw": torch.tensor([[steps, 4, 6]]), "video_metadata": [metadata]}
    assert "".join(made.token_ids) == Qwen3VLProcessor.replace_video_token(processor, clips, 0)


def test_steps_start_where_the_text_before_them_ends(model: Any) -> None:
    positions, offset = prompts.position_ids(
        prompts.compose([1, clip(2, 4, 6), 2], model.config), model
    )
    step = [[0] * 6, [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2]]
    assert (positions[:, 4:10] - 4).tolist() == step
    assert positions[:, 10].tolist() == [7, 7, 7]  # a step is as long as its longer side
    assert (positions[:, 14:20] - 11).tolist() == step
    assert offset == 16 - positions.shape[1]


def test_clips_that_do_not_match_the_placeholders_are_refused(model: Any) -> None:
    one = clip(2, 4, 6)
    [image] = images((4, 6))
    whole = prompts.compose([1, one, 2, image], model.config)
    steps = "one run of placeholders a temporal step of a clip"
    refused = {
        rf"prompt 0 must have {steps}, got 2 runs for 0 clips of 0 steps": (image,),
        rf"{steps}, got 2 runs for 2 clips of 4 steps": (one.value, one.value, image),
        r"one run of placeholders an image, got 1 runs for 0 images": (one.value,),
        r"item 0 of prompt 0 is of modality image, but its run at token 4 holds": (
            image,
            one.value,
        ),
        r"item 0 .* runs of 4 tokens, but the one at token 4": (clip(2, 4, 4).value, image),
    }
    with runner(model, options=ROOM) as made:
        for match, items in refused.items():
            with pytest.raises(ValueError, match=match):
                made.generate([replace(whole, items=items)], new_tokens=1)


def test_a_clip_without_steps_or_without_timestamps_is_refused(model: Any) -> None:
    one = clip(2, 4, 6)
    none = replace(one.value, grid=Grid(0, 4, 6))
    config = model.config
    with pytest.raises(ValueError, match="item 0 is a clip and must have at least one temporal"):
        prompts.compose([Clip(value=none, stamps=())], config)
    with pytest.raises(ValueError, match="item 0 of prompt 0 is a clip and must have at least"):
        prompts.runs(Prompt(token_ids=(1,), items=(none,)), config)
    with pytest.raises(ValueError, match=r"clip of 2 temporal steps .* timestamp for each, got 0"):
        prompts.compose([one.value], config)
    with pytest.raises(ValueError, match="item 0 is an image, which has no timestamps, got 1"):
        prompts.compose([Clip(value=images((4, 6))[0], stamps=((1,),))], config)
    with pytest.raises(ValueError, match="at least one frame, got none"):
        prompts.timestamps([], fps=24)
    with pytest.raises(ValueError, match="fps must be positive, got 0"):
        prompts.timestamps([0], fps=0)


def test_what_is_neither_image_nor_clip_is_refused(model: Any) -> None:
    [image] = images((4, 6))
    sound = replace(image, item=replace(image.item, modality=Modality.AUDIO))
    with pytest.raises(ValueError, match="item 0 must be an image or a clip, got modality audio"):
        prompts.compose([sound], model.config)


def test_a_still_clip_and_an_image_of_the_same_pixels_share_one_output(
    model: Any,
) -> None:
    still = clip(1, 4, 6)
    image = replace(still.value, item=replace(still.value.item, modality=Modality.IMAGE))
    batch = [prompts.compose([1, part], model.config) for part in (still, image)]
    with runner(model, options=ROOM) as made:
        assert answers(made, batch, NEW) == [generated(model, p, NEW) for p in batch]
        assert made.cache.facts.entries == 1

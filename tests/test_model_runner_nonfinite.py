"""A request whose pixels are not finite changes no later one."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers import BACKENDS
from helpers_model_runner import GATES, images, runner, tiny_model

from encgraph.model_runner import prompts
from encgraph.model_runner.gates import Gates
from encgraph.model_runner.prompts import Prompt
from encgraph.model_runner.runner import ModelRunner

NEW = 6


def clean(model: Any) -> list[list[Prompt]]:
    """Batches of one and of several, shorter and longer than the broken prompt."""
    [image] = images((4, 6), seed=1)
    words, shown = ([7, 8, 9], [5, 6, image, 10])
    short, long = (prompts.compose(parts, model.config) for parts in (words, shown))
    return [[short], [long], [short, long, short], [short, short]]


def answered(made: ModelRunner, batch: list[Prompt]) -> list[Any]:
    """Tokens and logits of each."""
    found = made.generate(batch, new_tokens=NEW, keep_logits=True)
    return [(one.token_ids, one.logits) for one in found]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("gates", [GATES, Gates(eager_only=True)])
def test_an_image_that_is_not_finite_changes_no_later_answer(
    backend: str, value: float, gates: Gates
) -> None:
    model = tiny_model(backend)
    [image] = images((8, 8))
    broken = replace(image, pixels=torch.full_like(image.pixels, value))
    bad = prompts.compose([1, broken, 2], model.config)
    with (
        runner(model, gates, backend=backend) as made,
        runner(model, gates, backend=backend) as new,
    ):
        for one in (made, new):
            if not gates.eager_only:
                one.capture()
        [(_, logits), *_] = answered(made, [bad, clean(model)[0][0], bad])
        assert not logits.isfinite().any()
        for batch in clean(model) * 2:
            for mine, fresh in zip(answered(made, batch), answered(new, batch), strict=True):
                assert mine[0] == fresh[0]
                assert torch.equal(mine[1], fresh[1])


def test_what_shares_a_batch_with_an_image_that_is_not_finite_is_answered_as_alone() -> None:
    model = tiny_model()
    [image] = images((8, 8))
    broken = replace(image, pixels=torch.full_like(image.pixels, float("nan")))
    bad = prompts.compose([1, broken, 2], model.config)
    with runner(model) as made:
        made.capture()
        [alone] = answered(made, clean(model)[1])
        beside = answered(made, [bad, clean(model)[1][0]])[1]
    assert beside[0] == alone[0]
    assert torch.allclose(beside[1], alone[1], atol=1e-4)


@pytest.mark.parametrize("attention", ["loop", "sdpa"])
def test_what_shared_a_replay_with_an_image_that_is_not_finite_is_encoded_again_alone(
    attention: str,
) -> None:
    model = tiny_model()
    good, bad = images((4, 4), (4, 4))
    bad = replace(bad, pixels=torch.full_like(bad.pixels, float("nan")))
    with runner(model, Gates(), options={"attention": attention}) as made:
        made.capture()
        made.encode([good, bad])
        [alone], [again] = made.encode([good]), made.encode([good])
        assert made.cache.facts.hits == (2 if attention == "loop" else 1)
        with runner(model, Gates(eager_only=True)) as fresh:
            [right] = fresh.encode([good])
    assert torch.allclose(alone.main, right.main, atol=1e-4)
    assert torch.equal(again.main, alone.main)

"""Prompts of like length are run together, and it makes no difference to any answer."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from helpers import BACKENDS
from helpers_model_runner import (
    answers,
    batch_of_three,
    clip,
    generated,
    images,
    runner,
    tiny_model,
)

from encgraph.model_runner import prefilling, prompts


def cost(found: Sequence[Sequence[int]], lengths: Sequence[int], launch: int) -> int:
    return sum(launch + len(rows) * max(lengths[row] for row in rows) for rows in found)


def partitions(rows: list[int]) -> Iterator[list[list[int]]]:
    """Every way to part rows, in any order of lengths."""
    if not rows:
        yield []
        return
    first, rest = rows[0], rows[1:]
    for parted in partitions(rest):
        yield [[first], *parted]
        for index, part in enumerate(parted):
            yield [*parted[:index], [first, *part], *parted[index + 1 :]]


@pytest.mark.parametrize("seed", range(60))
def test_no_other_way_to_part_a_batch_computes_less(seed: int) -> None:
    drawn = random.Random(seed)
    lengths = [drawn.randint(1, 60) for _ in range(drawn.randint(1, 6))]
    launch = drawn.randint(0, 80)
    found = prefilling.groups(lengths, launch_tokens=launch)
    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    least = min(cost(way, lengths, launch) for way in partitions(list(range(len(lengths)))))
    assert cost(found, lengths, launch) == least


def test_like_prompts_share_a_run_and_a_long_one_has_its_own() -> None:
    assert prefilling.groups([300, 310, 305]) == [[0, 2, 1]]
    assert prefilling.groups([300, 9000, 305]) == [[0, 2], [1]]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("launch", [0, 10, 10_000])
def test_answers_are_those_of_each_prompt_alone_however_the_batch_is_parted(
    backend: str, launch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(backend)
    moving = prompts.compose([1, clip(2, 4, 6), 2, images((4, 4), seed=3)[0]], model.config)
    batch = [*batch_of_three(model), moving]
    monkeypatch.setattr(prefilling, "LAUNCH_TOKENS", launch)
    calls: list[int] = []
    text = model.model.language_model
    hook = text.register_forward_pre_hook(
        lambda module, given, named: calls.append(len(named["inputs_embeds"])), with_kwargs=True
    )
    with runner(model, backend=backend) as made:
        [*found] = made.generate(batch, new_tokens=1, keep_logits=True)
        hook.remove()
        together = answers(made, batch, 6)
    assert (len(calls), sum(calls)) == ({0: 4, 10: 2, 10_000: 1}[launch], 4)
    assert [one.token_ids[:1] for one in found] == [ids[:1] for ids in together]
    if backend == "reference":
        assert together == [generated(model, prompt, 6) for prompt in batch]


def test_deepstack_rows_go_to_their_own_prompt_in_every_order() -> None:
    """Placeholders of all prompts lie end to end; a group takes those of its rows, in its order."""
    embeds = torch.arange(3 * 4, dtype=torch.float32).view(3, 4, 1)
    visual = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 1, 1]], dtype=torch.bool)
    deep = torch.tensor([[10.0], [11.0], [30.0], [31.0], [32.0]])
    batch = prefilling.Batch(
        embedded=prefilling.Embedded(embeds_bLH=embeds, visual_bL=visual, deepstack_VH=(deep,)),
        positions_3bL=torch.arange(36).view(3, 3, 4),
        lengths=(3, 2, 4),
        visuals=(2, 0, 3),
    )
    made: dict[str, Any] = batch.arguments([2, 0], torch.tensor([2, 0]))
    assert made["deepstack_visual_embeds"][0].flatten().tolist() == [30, 31, 32, 10, 11]
    assert torch.equal(made["visual_pos_masks"], visual[[2, 0]])
    assert made["inputs_embeds"].shape == (2, 4, 1)
    short = batch.arguments([1, 0], torch.tensor([1, 0]))
    assert torch.equal(short["inputs_embeds"], embeds[[1, 0], :3])
    assert torch.equal(short["position_ids"], batch.positions_3bL[:, [1, 0], :3])
    assert short["deepstack_visual_embeds"][0].flatten().tolist() == [10, 11]

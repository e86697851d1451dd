"""The encoder cache, and prompts with their positions."""

from dataclasses import replace

import pytest
import torch
from helpers_model_runner import images, tiny_model
from helpers_sync import SyncAuditor

from encgraph.encoders.protocol import EncoderOutput
from encgraph.model_runner import cache, encoding, prompts
from encgraph.model_runner.cache import EncoderCache
from encgraph.model_runner.prompts import Run
from encgraph.sizes import Grid


def output(value: float, rows: int = 2) -> EncoderOutput:
    """Two tensors of rows x 4 float32, 32 bytes a row in all."""
    made = torch.full((rows, 4), float(value))
    return EncoderOutput(main=made, extra=(made.clone(),))


def test_the_cache_drops_what_was_unused_longest_and_never_exceeds_its_bytes() -> None:
    held = EncoderCache(max_bytes=2 * 64)
    held.keep("a", output(1))
    held.keep("b", output(2))
    assert held.find("a") is not None
    held.keep("c", output(3))
    assert held.find("b") is None
    assert float(held.find("a").main[0, 0]) == 1
    facts = held.facts
    assert (facts.entries, facts.held_bytes, facts.evictions) == (2, 128, 1)
    assert (facts.hits, facts.misses) == (2, 1)


def test_an_output_larger_than_the_cache_is_refused_and_evicts_nothing() -> None:
    held = EncoderCache(max_bytes=100)
    held.keep("a", output(1))
    held.keep("big", output(2, rows=4))
    assert (held.facts.refused, held.facts.evictions, held.facts.entries) == (1, 0, 1)
    with pytest.raises(ValueError, match="max_bytes must be positive, got 0"):
        EncoderCache(0)


def test_keeping_a_content_twice_counts_its_bytes_once() -> None:
    held = EncoderCache(max_bytes=1000)
    held.keep("a", output(1))
    held.keep("a", output(1))
    assert (held.facts.held_bytes, held.clear(), held.facts.held_bytes) == (64, 64, 0)


def test_the_cache_owns_its_memory() -> None:
    held = EncoderCache(max_bytes=1000)
    rows = torch.zeros(100, 4)
    held.keep("a", EncoderOutput(main=rows[:2], extra=(rows[2:4],)))
    rows.fill_(7)
    found = held.find("a")
    assert float(found.main.sum()) == 0
    assert sum(t.untyped_storage().nbytes() for t in found.tensors) == held.facts.held_bytes


def test_keys_tell_pixels_grids_and_dtypes_apart_and_nothing_else() -> None:
    [image] = images((4, 6))
    same = replace(image, pixels=image.pixels.clone(), item=replace(image.item, request=5))
    pixels = image.pixels.clone()
    pixels[-1, -1] += 1
    others = [
        replace(image, pixels=pixels),
        replace(image, grid=Grid(1, 6, 4)),
        replace(image, pixels=image.pixels.bfloat16()),
    ]
    assert cache.content_key(same) == cache.content_key(image)
    assert len({cache.content_key(one) for one in (image, *others)}) == 4


def test_outputs_come_in_order_however_the_cache_stands() -> None:
    held = EncoderCache(max_bytes=1000)
    held.keep("b", output(2))
    a, c = images((4, 4), (4, 6))
    asked: list[int] = []

    def encode(batch):
        asked.append(len(batch))
        return [output(float(image.item.tokens)) for image in batch]

    found = encoding.through(held, encode, [a, a, c, a], keys=["a", "b", "c", "a"])
    assert [float(one.main[0, 0]) for one in found] == [4, 2, 6, 4]
    assert asked == [2]


def test_what_is_not_finite_is_never_found_and_gives_its_bytes_back() -> None:
    held = EncoderCache(max_bytes=1000)
    held.keep("a", output(1))
    for key, value in (("nan", float("nan")), ("inf", float("-inf"))):
        one = output(2)
        one.extra[0][1, 3] = value
        held.keep(key, one)
    assert [held.find(key) is not None for key in ("nan", "a", "inf")] == [False, True, False]
    facts = held.facts
    assert (facts.entries, facts.held_bytes, facts.refused) == (1, 64, 2)
    assert (facts.hits, facts.misses) == (1, 2)


def test_values_as_large_as_their_type_has_are_finite() -> None:
    held = EncoderCache(max_bytes=1000)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        held.keep(
            str(dtype), EncoderOutput(main=torch.full((2, 4), -torch.finfo(dtype).max, dtype=dtype))
        )
        assert held.find(str(dtype)) is not None


def test_an_output_evicted_before_anybody_looked_is_not_looked_at() -> None:
    held = EncoderCache(max_bytes=64)
    held.keep("a", output(float("nan")))
    held.keep("b", output(1))
    assert held.find("b") is not None
    assert (held.facts.refused, held.facts.evictions) == (0, 1)


def test_to_keep_an_output_reads_nothing_and_all_that_was_kept_is_read_at_once() -> None:
    held = EncoderCache(max_bytes=1000)
    with SyncAuditor() as keeping:
        held.keep("a", output(1))
        held.keep("b", output(2))
    with SyncAuditor() as finding:
        held.find("a")
        held.find("b")
    assert (len(keeping.found), len(finding.found)) == (0, 1)


def test_a_composed_prompt_has_a_run_for_each_image() -> None:
    model = tiny_model()
    a, b = images((4, 6), (8, 4))
    prompt = prompts.compose([1, a, b, 2], model.config)
    assert prompts.runs(prompt, model.config) == (Run(start=2, length=6), Run(start=10, length=8))


def test_positions_are_the_models_own_rule() -> None:
    model = tiny_model()
    [image] = images((4, 6))
    positions, offset = prompts.position_ids(prompts.compose([1, image, 2], model.config), model)
    assert positions[:, 0].tolist() == [0, 0, 0]
    rows = [[0] * 6, [0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2]]
    assert (positions[:, 2:8] - 2).tolist() == rows
    assert positions[:, -1].tolist() == [6, 6, 6]
    assert offset == 7 - positions.shape[1]

"""What torch makes where nothing is said, its default dtype and device, changes no bit of an answer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from helpers_layouts import SIZES, case
from helpers_model_runner import answers as tokens_of
from helpers_model_runner import batch_of_three, clip, runner, tiny_model
from torch import Tensor

from encgraph import sizes
from encgraph.checks.subject import Subject, synthetic
from encgraph.encoders import pixels, registry
from encgraph.encoders.protocol import Encoder, Input
from encgraph.model_runner import prompts
from encgraph.published import tiles

CPU = torch.device("cpu")
TINY = tuple(name for name in sizes.SIZES if name.endswith("-tiny"))
SWITCHES = {name: {} for name in TINY} | {
    f"{name}, host metadata": {"metadata": "host"}
    for name in TINY
    if sizes.named(name).layout == "packed"
}


@contextmanager
def dtype_by_default(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def built(named: str) -> Encoder:
    name = named.partition(",")[0]
    return registry.named(name, device=CPU, dtype=torch.float32, **SWITCHES[named])


def batches(encoder: Encoder) -> list[list[Input]]:
    """Random items, and the same as 8-bit pixels where the family takes those."""
    subject = Subject(encoder=encoder, make_inputs=synthetic(encoder.spec))
    floats = subject.batch(*subject.several)
    if sizes.named(encoder.spec.name).family not in pixels.NORMALISATIONS:
        return [floats]
    levels = [((one.pixels + 1) / 2 * pixels.LEVELS).to(torch.uint8) for one in floats]
    return [floats, [replace(one, pixels=raw) for one, raw in zip(floats, levels, strict=True)]]


def replayed(encoder: Encoder, batch: list[Input]) -> Tensor:
    subject = Subject(encoder=encoder, make_inputs=synthetic(encoder.spec))
    capacity = subject.capacity(batch)
    buffers = encoder.buffers(capacity, CPU, torch.float32)
    encoder.fill(buffers, batch)
    rows = sum(encoder.spec.rows(encoder.item_spec(one)) for one in batch)
    return encoder.forward(buffers, capacity).main[:rows]


def answers(named: str) -> list[Tensor]:
    """Of the captured forward and of eager, for all batches."""
    encoder, made = built(named), []
    for batch in batches(encoder):
        made += [replayed(encoder, batch), *(one.main for one in encoder.eager(batch))]
    return made


def untouched(named: str) -> list[Tensor]:
    encoder = built(named)
    stock = encoder.stock()
    return [one.main for batch in batches(encoder) for one in stock.eager(batch)]


def assert_same_bits(make: Callable[[str], list[Tensor]], named: str) -> None:
    ordinary = make(named)
    with dtype_by_default(torch.bfloat16):
        mine = make(named)
    assert [one.dtype for one in mine] == [torch.float32] * len(ordinary)
    assert all(torch.equal(one, other) for one, other in zip(mine, ordinary, strict=True))


@pytest.mark.parametrize("make", [answers, untouched], ids=["ours", "stock"])
@pytest.mark.parametrize("named", SWITCHES)
def test_another_default_dtype_changes_no_bit(named, make):
    assert_same_bits(make, named)


@pytest.mark.parametrize("named", SWITCHES)
def test_another_default_device_changes_no_bit(named):
    ordinary = answers(named)
    with torch.device("meta"):
        mine = answers(named)
    assert all(torch.equal(one, other) for one, other in zip(mine, ordinary, strict=True))


def test_positions_of_a_side_that_bfloat16_cannot_divide_keep_their_rows():
    size = replace(SIZES["idefics3-tiny"], rule=tiles.by_edge(80, 8, merge=2))
    chosen = case(size)
    encoder = chosen.build()
    batch = chosen.inputs(encoder, [1, 2], 0)
    true = [one.main for one in encoder.eager(batch)]
    with dtype_by_default(torch.bfloat16):
        mine = [one.main for one in encoder.eager(batch)]
    assert all(torch.equal(one, other) for one, other in zip(mine, true, strict=True))


def test_a_whole_model_answers_the_same_under_another_default_device():
    model = tiny_model()
    with runner(model) as made:
        made.capture()
        mixed = prompts.compose([5, clip(2, 4, 4), 9], model.config)
        batch = [*batch_of_three(model), mixed]
        ordinary = tokens_of(made, batch)
        with torch.device("meta"):
            assert tokens_of(made, batch) == ordinary

"""Poison what rows nobody owns hold, replay again, and demand the same answer.

Packed layouts must bear NaN and infinity there: no padding row may reach a live one. Masked layouts
multiply padding by zero, and 0 x NaN is NaN: they must bear any finite value, and keep padding finite
themselves.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from encgraph.capturing import BudgetGraph
from encgraph.checks import checked, parity
from encgraph.checks.checked import Checked
from encgraph.checks.subject import Subject
from encgraph.encoders.protocol import Encoder, EncoderOutput, Input
from encgraph.graphs import GraphSet
from encgraph.runner import EncoderRunner

_SAME_RATIO = 0.01
"""Closer than one item's rows are to any other's; NaN is never this close."""
SENTINEL = 77.25
"""Exact in every float dtype, and no pixel."""
POISONS = {"packed": (math.nan, math.inf), "masked": (1e4, -1e4)}


def survives(
    graph_set: GraphSet, inputs: Sequence[Input], *, graph: int, value: float = math.nan
) -> bool:
    """Replay with every static input poisoned before `fill`, and demand the answer without poison.

    What `fill` writes is clean again; what it leaves is padding. Buffers that `fill` never writes are
    scratch of the forward, which keeps them finite itself, and stay as they are.

    Args:
        graph_set: Captured.
        inputs: Items that fit the graph and leave padding.
        graph: Index of the graph.
        value: The poison.

    Returns:
        Whether live rows are the same, bit for bit, and finite.
    """
    target = graph_set.graphs[graph]
    clean = graph_set.replay(target.capacity, inputs).clone()
    with _poisoned(graph_set.encoder, target, inputs, value):
        dirty = graph_set.replay(target.capacity, inputs).clone()
    return bool(torch.isfinite(dirty).all()) and torch.equal(clean, dirty)


@contextmanager
def _poisoned(
    encoder: Encoder, graph: BudgetGraph, inputs: Sequence[Input], value: float
) -> Iterator[None]:
    floats = {n: t for n, t in graph.buffers.items() if t.is_floating_point()}
    saved = {name: tensor.clone() for name, tensor in floats.items()}
    try:
        for tensor in floats.values():
            tensor.fill_(SENTINEL)
        encoder.fill(graph.buffers, inputs)
        for name, tensor in floats.items():
            written = not bool((tensor == SENTINEL).all())
            tensor.fill_(value) if written else tensor.copy_(saved[name])
        yield
    finally:
        for name, tensor in floats.items():
            tensor.copy_(saved[name])


def check(subject: Subject, runner: EncoderRunner) -> Checked:
    """Poison the padding of every graph that one smallest item, or several, leave padding in."""
    problems, tried = [], 0
    assert runner.graphs is not None
    for batch in (subject.batch(subject.low), subject.batch(*subject.several)):
        why = subject.unrepeated(runner, batch)
        if why:
            return checked.not_run("poison", why)
        load = subject.load(batch)
        for index, graph in enumerate(runner.graphs.graphs):
            room = graph.capacity.holds(load) and load.tokens < graph.capacity.tokens
            if not (graph.is_captured and room):
                continue
            for value in POISONS[subject.layout]:
                tried += 1
                if not survives(runner.graphs, batch, graph=index, value=value):
                    problems.append(
                        f"{value} in the padding of budget {graph.capacity.tokens} reaches the "
                        f"rows of {len(batch)} items; mask padding rows, reduce over none of them"
                    )
    if not tried:
        return checked.not_run("poison", "no graph leaves padding for the smallest items")
    said = f"{tried} replays with poisoned padding gave the same rows, bit for bit"
    return checked.of("poison", problems, said=said)


def contagion(subject: Subject, runner: EncoderRunner) -> Checked:
    """A batch of NaN leaves nothing behind that a later batch would read.

    Within its batch NaN may reach other items, where attention is by a mask; that is said, not failed.
    """
    batch, large = subject.batch(*subject.several), subject.batch(8 * subject.low)
    if not batch[0].pixels.is_floating_point():
        return checked.not_run("contagion", "items of integers hold no NaN")
    why = subject.unrepeated(runner, batch, within=_SAME_RATIO)
    if why:
        return checked.not_run("contagion", why)
    right = runner.execute(batch)
    beside = runner.execute([batch[0], _sick(batch[1]), batch[2]])
    spreads = not all(_same(beside[index], right[index]) for index in (0, 2))
    runner.execute([_sick(value) for value in large])
    problems = [
        f"item {index} changes after an earlier batch was NaN: something it wrote is still read"
        for index, (mine, true) in enumerate(zip(runner.execute(batch), right, strict=True))
        if not _same(mine, true)
    ]
    runner.execute(large)
    within = "reaches" if spreads else "does not reach"
    said = f"a batch of NaN leaves nothing behind; within a batch NaN {within} other items"
    return checked.of("contagion", problems, said=said)


def _same(mine: EncoderOutput, other: EncoderOutput) -> bool:
    return parity.distance(mine, other) <= _SAME_RATIO


def _sick(value: Input) -> Input:
    return replace(value, pixels=torch.full_like(value.pixels, math.nan))

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
from encgraph.checks import checked, parity, replays
from encgraph.checks.checked import Checked
from encgraph.checks.subject import Subject
from encgraph.encoders.protocol import Encoder, EncoderOutput, Input
from encgraph.graphs import GraphSet
from encgraph.runner import EncoderRunner

_SAME_RATIO = 0.01
"""Closer than one item's rows are to any other's; NaN is never this close."""
SENTINEL = 77.25
"""Exact in every float dtype, and no pixel."""
OVERWRITTEN = (
    "not judged: fill leaves no value of a float buffer as it was, so the forward meets no poison"
)
POISONS = {"packed": (math.nan, math.inf), "masked": (1e4, -1e4)}


def survives(
    graph_set: GraphSet, inputs: Sequence[Input], *, graph: int, value: float = math.nan
) -> bool | None:
    """Replay with every static input poisoned before `fill`, and demand the answer without poison.

    What `fill` writes is clean again; what it leaves is padding. Buffers that `fill` never writes are
    scratch of the forward, which keeps them finite itself, and stay as they are.

    Args:
        graph_set: Captured.
        inputs: Items that fit the graph and leave padding.
        graph: Index of the graph.
        value: The poison.

    Returns:
        Whether live rows are the same, bit for bit, and finite; None where `fill` leaves no poison that
        the forward could meet.
    """
    target = graph_set.graphs[graph]
    clean = graph_set.replay(target.capacity, inputs).clone()
    with _poisoned(graph_set.encoder, target, inputs, value) as stays:
        if not stays:
            return None
        dirty = graph_set.replay(target.capacity, inputs).clone()
    return bool(torch.isfinite(dirty).all()) and torch.equal(clean, dirty)


@contextmanager
def _poisoned(
    encoder: Encoder, graph: BudgetGraph, inputs: Sequence[Input], value: float
) -> Iterator[bool]:
    """Poison the float buffers that `fill` writes; gives whether it leaves poison anywhere."""
    floats = [tensor for tensor in graph.buffers.values() if tensor.is_floating_point()]
    saved, stays = [tensor.clone() for tensor in floats], False
    try:
        for tensor in floats:
            tensor.fill_(SENTINEL)
        encoder.fill(graph.buffers, inputs)
        for tensor, kept in zip(floats, saved, strict=True):
            left = tensor == SENTINEL
            written = not bool(left.all())
            stays |= written and bool(left.any())
            tensor.fill_(value) if written else tensor.copy_(kept)
        yield stays
    finally:
        for tensor, kept in zip(floats, saved, strict=True):
            tensor.copy_(kept)


def check(subject: Subject, runner: EncoderRunner) -> Checked:
    """Poison the padding of every graph that one smallest item, or several, leave padding in.

    Not judged where `fill` writes over it: then no forward meets it.
    """
    problems: list[str] = []
    found: list[bool | None] = []
    assert runner.graphs is not None
    for batch in (subject.batch(subject.low), subject.batch(*subject.several)):
        unrepeated = subject.unrepeated("poison", runner, batch)
        if unrepeated:
            return unrepeated
        load = subject.load(batch)
        for index, graph in enumerate(runner.graphs.graphs):
            room = graph.capacity.holds(load) and load.tokens < graph.capacity.tokens
            if not (graph.is_captured and room):
                continue
            for value in POISONS[subject.layout]:
                found.append(survives(runner.graphs, batch, graph=index, value=value))
                if found[-1] is False:
                    problems.append(
                        f"{value} in the padding of budget {graph.capacity.tokens} reaches the "
                        f"rows of {len(batch)} items; mask padding rows, reduce over none of them"
                    )
    tried = len(found) - found.count(None)
    if not tried:
        nowhere = "no graph leaves padding for the smallest items"
        return checked.not_run("poison", OVERWRITTEN if found else nowhere)
    said = f"{tried} replays with poisoned padding gave the same rows, bit for bit"
    return checked.of("poison", problems, said=said)


def contagion(subject: Subject, runner: EncoderRunner) -> Checked:
    """A batch of NaN leaves nothing behind that a later batch would read.

    Within one replay NaN may reach other items, where attention is by a mask; that is said, not failed.
    """
    batch = subject.batch(*subject.several)
    if not batch[0].pixels.is_floating_point():
        return checked.not_run("contagion", "items of integers hold no NaN")
    unrepeated = subject.unrepeated("contagion", runner, batch, within=_SAME_RATIO)
    if unrepeated:
        return unrepeated
    assert runner.graphs is not None
    capacities = runner.graphs.captured_plan.graphs
    full = list(replays.filling(subject, capacities[-1]))
    large = max(full, key=lambda each: subject.load(each).tokens, default=batch)
    right = runner.execute(batch)
    beside = runner.execute([batch[0], _sick(batch[1]), batch[2]])
    spreads = not all(_same(beside[index], right[index]) for index in (0, 2))
    sick = [_sick(value) for value in large]
    replays.one(runner.graphs, capacities[-1], sick)
    problems = [
        f"item {index} changes after an earlier batch was NaN: something it wrote is still read"
        for index, (mine, true) in enumerate(zip(runner.execute(batch), right, strict=True))
        if not _same(mine, true)
    ]
    replays.one(runner.graphs, capacities[-1], large)
    within = "reaches" if spreads else "does not reach"
    said = (
        "a graph full of NaN leaves nothing behind; in one replay of "
        f"{len(batch)} items NaN of one {within} the others"
    )
    return checked.of("contagion", problems, said=said)


def _same(mine: EncoderOutput, other: EncoderOutput) -> bool:
    return parity.distance(mine, other) <= _SAME_RATIO


def _sick(value: Input) -> Input:
    return replace(value, pixels=torch.full_like(value.pixels, math.nan))

"""Do what other engines do and no piece of ours does: dummy segments, item counts, whole compilation.

Each is an encoder around an encoder, or a way to plan and pack, so that a strategy can be put together
from it and compared on the same kernels.

Source:
    The multimodal encoder graphs of TensorRT-LLM 1.4; torch.compile(mode="reduce-overhead").
"""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from encgraph import capturing, sizes
from encgraph.budgets import Target
from encgraph.capturing import BudgetGraph
from encgraph.encoders.protocol import Buffers, Encoder, EncoderOutput, EncoderSpec, Input
from encgraph.errors import require
from encgraph.packing import Packer
from encgraph.records import Bin, Capacity, Fallback, FallbackReason, Item, Load, Packing, Plan
from encgraph.sizes import EncoderSize, Grid


class Around:
    """An encoder that passes everything on to another."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    @property
    def spec(self) -> EncoderSpec:
        """The inner encoder's."""
        return self.encoder.spec

    @property
    def module(self) -> torch.nn.Module:
        """The inner encoder's."""
        return self.encoder.module

    def item_spec(self, value: Input) -> Item:
        """The inner encoder's."""
        return self.encoder.item_spec(value)

    def buffers(self, capacity: Capacity, device: torch.device, dtype: torch.dtype) -> Buffers:
        """The inner encoder's."""
        return self.encoder.buffers(capacity, device, dtype)

    def fill(self, buffers: Buffers, inputs: Sequence[Input]) -> None:
        """The inner encoder's."""
        self.encoder.fill(buffers, inputs)

    def forward(self, buffers: Buffers, capacity: Capacity) -> EncoderOutput:
        """The inner encoder's."""
        return self.encoder.forward(buffers, capacity)

    def eager(self, inputs: Sequence[Input]) -> list[EncoderOutput]:
        """The inner encoder's."""
        return self.encoder.eager(inputs)

    def stock(self) -> Encoder:
        """The inner encoder's."""
        return self.encoder.stock()

    def oracle(self) -> Encoder:
        """The inner encoder's."""
        return self.encoder.oracle()


class DummySegment(Around):
    """Turns padding into an item of its own, which attention isolates from the real ones.

    The dummy is as near a square as the rule takes; rows it leaves over, fewer than a side, lie outside
    of all segments. Capacities need one item, one token and one segment more than the real ones take.
    """

    def __init__(self, encoder: Encoder, size: EncoderSize) -> None:
        require(
            size.layout == "packed",
            "strategy 'trtllm' makes padding a dummy segment, which needs a packed layout, got "
            f"{size.name!r} of the {size.layout!r} layout; leave it out",
        )
        super().__init__(encoder)
        self.size = size
        self._zeros: Tensor | None = None

    def fill(self, buffers: Buffers, inputs: Sequence[Input]) -> None:
        """Fill in the inputs, then a dummy over the rows left."""
        left = len(buffers["pixels"]) - sum(len(value.pixels) for value in inputs)
        rule = self.size.rule
        tokens = left // rule.merge_area
        dummies = [] if tokens < 1 else [self._dummy(tokens, buffers["pixels"])]
        self.encoder.fill(buffers, [*inputs, *dummies])

    def _dummy(self, tokens: int, like: Tensor) -> Input:
        high = math.isqrt(tokens)
        merge = self.size.rule.merge
        grid = Grid(1, high * merge, tokens // high * merge)
        item = sizes.item(grid, self.size.rule)
        if self._zeros is None or len(self._zeros) < item.patches:
            self._zeros = torch.zeros_like(like)
        return Input(item=item, pixels=self._zeros[: item.patches], grid=grid)


def by_item_count(
    requests: Sequence[Sequence[Item]], *, target: Target, largest: int, max_graphs: int
) -> Plan:
    """Plan graphs of exactly so many items and up to so many tokens: those that requests use most.

    A request of n items and t tokens uses the graph of n items and the next power of two above t,
    since one token is the dummy's; each capacity has room for the dummy.

    Args:
        requests: The traffic to plan for.
        target: What the plan is for.
        largest: Most tokens of a graph.
        max_graphs: How many are kept.
    """
    used: Counter[tuple[int, int]] = Counter()
    for items in requests:
        budget = 1 << sum(item.tokens for item in items).bit_length()
        if items and budget <= largest:
            used[budget, len(items)] += 1
    kept = sorted(used.most_common(max_graphs))
    graphs = [
        sizes.capacity(budget, target.size.rule, items=items + 1) for (budget, items), _ in kept
    ]
    reasons = [
        f"{budget} tokens, {items} items: used by {count} of {len(requests)} requests"
        for (budget, items), count in kept
    ]
    return target.plan(graphs, reasons)


def item_count_packer(plan: Plan) -> Packer:
    """A packer that replays a whole batch where its item count has a graph, and nothing else."""

    def pack(items: Sequence[Item]) -> Packing:
        load = Load.of(items)
        exact = [(i, graph) for i, graph in enumerate(plan.graphs) if graph.items == len(items) + 1]
        everything = tuple(range(len(items)))
        for index, graph in exact:
            if _over(load, graph) is None:
                taken = Bin(items=everything, graph=index, capacity=graph, load=load)
                return Packing(bins=(taken,))
        reason = _over(load, exact[-1][1]) if exact else FallbackReason.OVER_ITEMS
        assert reason is not None
        return Packing(bins=(), fallback=tuple(Fallback(item=i, reason=reason) for i in everything))

    return pack


def _over(load: Load, graph: Capacity) -> FallbackReason | None:
    """What a load and one dummy exceed, or None."""
    with_dummy = replace(
        load, tokens=load.tokens + 1, items=load.items + 1, segments=load.segments + 1
    )
    return graph.exceeded(with_dummy)


RECOMPILES = 8
"""Shapes that torch.compile takes for one function by default; beyond, it gives up on it."""
RUNS = 3
"""A graph tree compiles and warms up in the first run, records in the second, replays in the third."""


class ReduceOverhead(Around):
    """The whole forward under torch.compile(mode="reduce-overhead"): one compilation a shape."""

    def __init__(self, encoder: Encoder, **options: Any) -> None:
        super().__init__(encoder)
        given = options or {"mode": "reduce-overhead"}
        self._compiled = torch.compile(encoder.forward, fullgraph=True, dynamic=False, **given)

    @property
    def spec(self) -> EncoderSpec:
        """The inner encoder's, compiled."""
        return replace(self.encoder.spec, compiled=True)

    def forward(self, buffers: Buffers, capacity: Capacity) -> EncoderOutput:
        """Run the compiled forward; its outputs live until the next run."""
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        made: EncoderOutput = self._compiled(dict(buffers), capacity)
        return made


def recorded_by_running(encoder: Encoder, graph: BudgetGraph) -> None:
    """Record a forward that makes its own graphs as it is run; a failure is kept, not raised."""
    start = time.perf_counter()
    try:
        with torch.no_grad():
            for _ in range(RUNS):
                capturing.run(encoder, graph)
        graph.is_captured = True
    except Exception as error:
        graph.failure = capturing.explain(error, graph.capacity)
    graph.seconds = time.perf_counter() - start

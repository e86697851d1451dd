"""Allocate the static tensors of graphs: prefix views of one slab each, or tensors of their own."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from encgraph.capturing import BudgetGraph
from encgraph.encoders.protocol import Encoder
from encgraph.records import Capacity, Plan


def own(encoder: Encoder, capacity: Capacity, *, is_staged: bool = False) -> BudgetGraph:
    """A graph yet to be captured, with static tensors that no other graph sees."""
    return _graph(encoder, capacity, _tensors(encoder, capacity), is_staged=is_staged)


def shared(encoder: Encoder, plan: Plan) -> tuple[list[BudgetGraph], tuple[Tensor, ...]]:
    """A graph a capacity, on prefix views of one slab a tensor; the slabs, as large as the largest."""
    spec, slabs = encoder.spec, _tensors(encoder, plan.largest())

    def views(capacity: Capacity) -> dict[str, Tensor]:
        shapes = encoder.buffers(capacity, torch.device("meta"), spec.dtype)
        seen = {name: slabs[name][: shape.shape[0]] for name, shape in shapes.items()}
        return seen | {"output": slabs["output"][: spec.rows(capacity)]}

    return [_graph(encoder, c, views(c)) for c in plan.graphs], tuple(slabs.values())


def of(graphs: Sequence[BudgetGraph]) -> tuple[Tensor, ...]:
    """Every static tensor of some graphs."""
    return tuple(tensor for g in graphs for tensor in (*g.buffers.values(), g.output))


def named(graphs: Sequence[BudgetGraph]) -> Mapping[str, Tensor]:
    """Static tensors by name, for the watch."""
    return {
        f"{name} of budget {g.capacity.tokens}": tensor
        for g in graphs
        for name, tensor in {**g.buffers, "output": g.output}.items()
    }


def _tensors(encoder: Encoder, capacity: Capacity) -> dict[str, Tensor]:
    spec = encoder.spec
    rows = (spec.rows(capacity), sum(spec.widths))
    output = torch.zeros(rows, device=spec.device, dtype=spec.dtype)
    return {**encoder.buffers(capacity, spec.device, spec.dtype), "output": output}


def _graph(
    encoder: Encoder, capacity: Capacity, tensors: dict[str, Tensor], *, is_staged: bool = False
) -> BudgetGraph:
    return BudgetGraph(
        capacity=capacity,
        output=tensors.pop("output"),
        widths=encoder.spec.widths,
        buffers=tensors,
        is_staged=is_staged,
    )

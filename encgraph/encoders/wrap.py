"""Make an encoder of any module whose inputs have one shape, without an adapter."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from encgraph.encoders.fixed import Fixed, Slot
from encgraph.errors import require
from encgraph.records import Modality
from encgraph.sizes import Grid, TokenRule

Call = Callable[[Any, Tensor], Any]
"""Runs a module on a batch and returns a tensor, or several, batch first."""


def call(module: Any, pixels: Tensor) -> Any:
    """Call the module with the batch alone; of a model's record, take `last_hidden_state`.

    Raises:
        ValueError: If what came back is neither a tensor nor such a record; names what it holds.
    """
    made = module(pixels)
    if isinstance(made, Tensor):
        return made
    if isinstance(made, dict) and "last_hidden_state" in made:
        return made["last_hidden_state"]
    held = sorted(made) if isinstance(made, dict) else type(made).__name__
    raise ValueError(f"the module must return a tensor, got {held!r}; choose one by `run`")


def fixed(
    module: nn.Module,
    example: Tensor,
    *,
    name: str = "",
    run: Call = call,
    modality: Modality = Modality.IMAGE,
    most: int = 1,
) -> Fixed:
    """Make an encoder of a module; it is run three times to learn its output.

    Args:
        module: In eval mode, on its device, called with a batch of items of one shape.
        example: The tensor of one item, without the batch dimension.
        name: Name in records; empty means the class's, in lower case.
        run: What to call and which of the outputs to take, such as
            `lambda module, x: module(x).pooler_output`; several outputs may be given, of equally
            many rows an item: the first is the main one.
        modality: Of the items.
        most: Most slots of this shape an item may take, stacked.

    Returns:
        An encoder of rows: of (N, W) outputs 1 an item, of (N, R, W) R, of (N, W, h, w) maps h x w.

    Raises:
        ValueError: If an output is not batch first, outputs differ in rows, or an item's rows depend
            on the others in its batch.

    >>> encoder = fixed(nn.Linear(3, 5).eval(), torch.zeros(3))
    >>> encoder.spec.widths, encoder.slot.rows
    ((5,), 1)
    """
    require(not module.training, "the module must be in eval mode; call .eval() on it")

    def rows(held: Any, pixels: Tensor) -> Sequence[Tensor]:
        return _rows(run(held, pixels), len(pixels))

    made = _probe(module, example, rows)
    counts = {tensor.shape[1] for tensor in made}
    require(
        len(counts) == 1, f"all outputs must have equally many rows an item, got {sorted(counts)}"
    )
    count = counts.pop()
    rule = TokenRule(patch=1, merge=1, min_pixels=count, max_pixels=count, resize="length")
    slot = Slot(
        shape=tuple(example.shape),
        rows=count,
        patches=count,
        widths=tuple(tensor.shape[2] for tensor in made),
        grid=Grid(1, 1, count),
        rule=rule,
        modality=modality,
        most=most,
    )
    return Fixed(module, slot, name=name or type(module).__name__.lower(), run=rows)


@torch.no_grad()
def _probe(module: nn.Module, example: Tensor, rows: Callable[..., Sequence[Tensor]]) -> Any:
    """Rows of the example, and a proof that they are the same beside another item."""
    weight = next(module.parameters(), example)
    one = example[None].to(weight.device, weight.dtype)
    alone = rows(module, one)
    for other in (torch.zeros_like(one), -one):
        beside = rows(module, torch.cat((one, other)))
        for mine, true in zip(beside, alone, strict=True):
            gap = torch.linalg.vector_norm((mine[:1] - true).float())
            require(
                bool(gap <= 0.05 * torch.linalg.vector_norm(true.float()) + 1e-6),
                "an item's rows must not depend on the others in its batch, but here they do; "
                "a module that mixes items cannot share a replay between them",
            )
    return alone


def _rows(made: Any, batch: int) -> list[Tensor]:
    """Outputs as (N, R, W)."""
    tensors = [made] if isinstance(made, Tensor) else list(made)
    return [_of_item(tensor, batch) for tensor in tensors]


def _of_item(tensor: Tensor, batch: int) -> Tensor:
    shape = tuple(tensor.shape)
    require(
        len(shape) in (2, 3, 4) and shape[0] == batch,
        f"an output must be (N, W), (N, R, W) or (N, W, h, w) with N = {batch}, got {shape!r}",
    )
    if len(shape) == 2:
        return tensor[:, None]
    return tensor if len(shape) == 3 else tensor.flatten(2).transpose(1, 2)

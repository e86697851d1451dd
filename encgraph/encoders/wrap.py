"""Make an encoder of any module whose inputs have one shape, without an adapter."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from encgraph.encoders import apart
from encgraph.encoders import rows as weights
from encgraph.encoders.fixed import Fixed, Slot
from encgraph.errors import DTYPES, require
from encgraph.records import Modality
from encgraph.sizes import Grid, TokenRule
from encgraph.structure import require_eval, require_python

BatchCall = Callable[[Any, Tensor], Any]
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
    run: BatchCall = call,
    modality: Modality = Modality.IMAGE,
    most: int = 1,
) -> Fixed:
    """Make an encoder of a module; it is run eight times to learn its output, the first time watched.

    What is watched is said in `following`; a compiled module runs as eager the first time. Until it
    returns, compiled calls of other threads run eager too, or raise where they would compile anew.

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
        TypeError: If the module or the example is none.
        ValueError: If module or example are of no dtype that graphs take, an output is of another
            than the weights or not batch first, outputs differ in rows, the example's are not finite,
            a run reads values of its input, changes it, weights or buffers, or leaves what it makes of
            it on the module, or an item's rows depend on more than the item: on the others in its
            batch, on chance, on what the first run left.

    >>> import torch
    >>> encoder = fixed(nn.Linear(3, 5).eval(), torch.zeros(3))
    >>> encoder.spec.widths, encoder.slot.rows
    ((5,), 1)
    """
    for what, value, kind in (("module", module, nn.Module), ("example", example, Tensor)):
        if not isinstance(value, kind):
            raise TypeError(f"{what} must be a torch {kind.__name__}, got {value!r:.60}")
    _require_wrappable(module, example)

    def rows(held: Any, pixels: Tensor) -> Sequence[Tensor]:
        return _rows(run(held, pixels), len(pixels))

    made = apart.rows_alone(module, example, rows)
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
    written = getattr(module, "_orig_mod", module)  # what torch.compile was given
    return Fixed(module, slot, name=name or type(written).__name__.lower(), run=rows)


def _require_wrappable(module: nn.Module, example: Tensor) -> None:
    """Refuse what no run can be made of, before there is any."""
    require_eval(module)
    require_python(dict(module.named_modules()))
    weight = weights.weight_of(module)
    dtype = str(weight.dtype).removeprefix("torch.")
    require(
        dtype in DTYPES, f"the module's dtype must be one of {DTYPES}, got {dtype!r}; convert it"
    )
    require(not weight.is_meta, "the module must have values, got weights on 'meta'; load them")
    require(
        example.is_floating_point(),
        f"example must be of a float dtype, got {example.dtype}; scale and convert it, or give what "
        "comes after an embedding",
    )


def _rows(made: Any, batch: int) -> list[Tensor]:
    """Outputs as (N, R, W)."""
    tensors = list(made) if isinstance(made, tuple | list) else [made]
    kinds = [type(each).__name__ for each in tensors if not isinstance(each, Tensor)]
    require(
        bool(tensors) and not kinds,
        f"outputs must be tensors, got {', '.join(kinds) or 'none'}; choose them by `run`",
    )
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

"""Make an encoder of any module whose inputs have one shape, without an adapter."""

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from encgraph.encoders.fixed import Fixed, RunSlots, Slot
from encgraph.errors import require
from encgraph.records import Modality
from encgraph.sizes import Grid, TokenRule

BatchCall = Callable[[Any, Tensor], Any]
"""Runs a module on a batch and returns a tensor, or several, batch first."""


ONE_SHAPE = 1e-5
"""Relative distance that counts as the same rows in batches of one shape, where a dtype rounds finer;
else its rounding."""
ANOTHER_PLACE = 0.05
"""The same in another place of a batch of another shape, so by other kernels: a deep module in bfloat16
is some percent apart."""
SMALLEST = 1e-6
"""Distance that counts as none, for rows of zeros."""
READS = frozenset(
    {Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.__bool__, Tensor.__int__, Tensor.__float__}
    | {torch.equal, Tensor.equal, torch.allclose, Tensor.allclose, torch.is_nonzero}
)
"""What makes a Python value of a tensor's contents."""


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
    """Make an encoder of a module; it is run six times to learn its output.

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
        ValueError: If an output is not batch first, outputs differ in rows, the example's are not
            finite, or an item's depend on more than the item: on the others in its batch, on chance,
            on values read back from the device, on what an earlier run changed in place.

    >>> encoder = fixed(nn.Linear(3, 5).eval(), torch.zeros(3))
    >>> encoder.spec.widths, encoder.slot.rows
    ((5,), 1)
    """
    for what, value, kind in (("module", module, nn.Module), ("example", example, Tensor)):
        if not isinstance(value, kind):
            raise TypeError(f"{what} must be a torch {kind.__name__}, got {value!r:.60}")
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
def _probe(module: nn.Module, example: Tensor, rows: RunSlots) -> Sequence[Tensor]:
    """Rows of the example, and a proof that no item's rows depend on another's.

    Batches of one shape run the same kernels, so what rows differ by there is another item's doing,
    whatever their dtype; only beside none at all do they round otherwise.
    """
    weight = next(module.parameters(), example)
    one = example[None].to(weight.device, weight.dtype, copy=True)
    # Positive, since many modules take logarithms or roots.
    drawn = torch.rand(one.shape, generator=torch.Generator().manual_seed(0), device="cpu")
    noise = drawn.to(weight.device, weight.dtype)
    alone, copies = rows(module, one), torch.cat((one, one, noise))
    twice = rows(module, copies)
    calm = [made[::2] for made in twice]
    require(
        all(bool(made.isfinite().any()) for made in calm),
        "the rows of an example must be finite, but here they are not; give another example",
    )

    def demand(holds: bool, batch: Tensor, what: str) -> None:
        if not holds:
            raise ValueError(_other_reason(module, rows, copies, batch) or MIXES.format(what=what))

    for place in (0, 1):
        mine = [made[place : place + 1] for made in twice]
        demand(_alike(mine, alone, least=ANOTHER_PLACE), one, "copies of itself")
    for what, other in _neighbours(one, noise).items():
        batch = torch.cat((one, other, noise))  # it may leak either way
        ends = [made[::2] for made in rows(module, batch)]
        demand(_alike(ends, calm, least=ONE_SHAPE), batch, what)
    return alone


MIXES = (
    "an item's rows must not depend on the others in its batch, but beside {what} they do; a module "
    "that mixes items cannot share a replay between them"
)


class _ReadValues(TorchFunctionMode):
    """Keeps the Python values that are made of tensors, and where the last was."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[str] = []
        self.place = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in READS:
            self.values.append(repr(made))
            self.place = _place()
        return made


def _place() -> str:
    """The line outside of torch that runs, as `file.py:3`."""
    outside = (str(Path(torch.__file__).parent), __file__)
    frames = [f for f in traceback.extract_stack() if not f.filename.startswith(outside)]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"


def _other_reason(module: nn.Module, rows: RunSlots, first: Tensor, second: Tensor) -> str:
    """Why a module's rows differ between two batches, unless it is that it mixes their items."""
    kept = _states(module)
    runs, reads = [], []
    for batch in (first, first, second):
        given, read = batch.clone(), _ReadValues()
        with read:
            runs.append(rows(module, given))
        reads.append(read)
        if not _same(given, batch):
            return "the module must leave its input as it is, but changes it in place; let it copy"
        changed = [name for name, state in _states(module).items() if state != kept[name]]
        if changed:
            return (
                f"the module must leave its weights and buffers as they are, but every run changes "
                f"{changed[0]!r} in place; freeze it"
            )
    if not _alike(runs[1], runs[0], least=ONE_SHAPE):
        return (
            "two runs on the same batch must give the same rows, but here they differ: the module "
            "draws random numbers or counts its runs; switch that off"
        )
    if reads[0].values != reads[2].values:
        return (
            "the module must not read values that depend on its input (`.item()`, or a branch on a "
            f"tensor), but does at {reads[2].place}: a graph replays what those of another batch led "
            "to; choose by tensors, such as torch.where"
        )
    return ""


def _states(module: nn.Module) -> dict[str, str]:
    """What shows that a weight or buffer was written to, without a copy of it: how often, and its sum."""
    held = [*module.named_parameters(), *module.named_buffers()]
    counted = {n: 0 if tensor.is_inference() else tensor._version for n, tensor in held}
    return {n: f"{counted[n]} {tensor.double().sum().item()}" for n, tensor in held}


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether tensors are equal, NaN to NaN."""
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _neighbours(one: Tensor, noise: Tensor) -> dict[str, Tensor]:
    """Items that show a leak of any size: a scale of 1,000 what is small, NaN what is bounded.

    No arithmetic on an item's own values alone meets a neighbour's NaN.
    """
    return {
        "zeros": torch.zeros_like(one),
        "its negative": -one,
        "one 1,000 times as large": 1e3 * (one + noise),
        "NaN": torch.full_like(one, torch.nan),
    }


def _alike(mine: Sequence[Tensor], true: Sequence[Tensor], *, least: float) -> bool:
    """Whether rows are what they were; values that were not finite say nothing."""
    for rows, before in zip(mine, true, strict=True):
        rounding = torch.finfo(before.dtype).eps if before.is_floating_point() else 0.0
        known = before.isfinite()
        was, now = (made.double().where(known, 0.0) for made in (before, rows))
        gap = torch.linalg.vector_norm(now - was, dim=(1, 2))
        size = torch.linalg.vector_norm(was, dim=(1, 2))
        if not bool((gap <= max(least, rounding) * size + SMALLEST).all()):
            return False
    return True


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

"""Whether a module keeps the items of a batch apart, and if it does not, why.

Its first run is followed: what it reads of its input, writes to it or keeps of it. Then it is run
beside neighbours that would show a leak of any size. Where rows differ, what else than a neighbour may
have made them is looked for before the module is said to mix items.
"""

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from encgraph.encoders import following
from encgraph.encoders.fixed import RunSlots
from encgraph.errors import require

ONE_SHAPE = 1e-5
"""Relative distance that counts as the same rows in batches of one shape, where a dtype rounds finer;
else its rounding."""
ANOTHER_PLACE = 0.05
"""The same in another place of a batch of another shape, so by other kernels: a deep module in bfloat16
is some percent apart."""
CROWD = 17
"""Items of a larger batch: a limit on how many are treated alike shows from some number on."""
SMALLEST = 1e-6
"""Distance that counts as none, for rows of zeros."""


@torch.no_grad()
def rows_alone(module: nn.Module, example: Tensor, rows: RunSlots) -> Sequence[Tensor]:
    """Rows of the example, and a proof that no item's rows depend on another's.

    Batches of one shape run the same kernels, so what rows differ by there is another item's doing,
    whatever their dtype; only beside none at all do they round otherwise.

    Args:
        module: Run eight times, twice on `CROWD` items, and once a copy that shares its weights, where
            one can be made.
        example: One item.
        rows: Runs it on a batch.

    Raises:
        ValueError: If they do, outputs are of another dtype than the weights, every run changes those,
            or the module reads its input's values, writes to it or keeps what it makes of it; says why.
    """
    weight = next(module.parameters(), example)
    one = example[None].to(weight.device, weight.dtype, copy=True)
    # Positive, since many modules take logarithms or roots.
    drawn = torch.rand(one.shape, generator=torch.Generator().manual_seed(0), device="cpu")
    noise = drawn.to(weight.device, weight.dtype)
    unused = _copied(module)
    alone, copies = _first(module, one, rows), torch.cat((one, one, noise))
    _require_dtype(alone, weight.dtype)
    kept = _states(module)  # what the first run alone makes, such as a table, may stay
    twice = _unwritten(module, copies, rows)
    calm = [made[::2] for made in twice]
    require(
        all(bool(made.isfinite().any()) for made in calm),
        "the rows of an example must be finite, but here they are not; give another example",
    )

    def demand(holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(_other_reason(module, rows, copies) or MIXES.format(what=what))

    fresh = _rows_of(unused, copies, rows)
    if fresh is not None and not _alike(fresh, twice, least=ONE_SHAPE):
        raise ValueError(_other_reason(module, rows, copies) or USED)
    for place in (0, 1):
        mine = [made[place : place + 1] for made in twice]
        demand(_alike(mine, alone, least=ANOTHER_PLACE), "copies of itself")
    neighbours = _neighbours(one, noise)
    for what, other in neighbours.items():
        batch = torch.cat((one, other, noise))  # it may leak either way
        ends = [made[::2] for made in rows(module, batch)]
        demand(_alike(ends, calm, least=ONE_SHAPE), what)
    demand(_crowd_apart(module, one, alone, list(neighbours.values()), rows), f"{CROWD - 1} others")
    require(not (said := _changed(module, kept)), said)
    return alone


def _require_dtype(made: Sequence[Tensor], dtype: torch.dtype) -> None:
    others = [str(tensor.dtype) for tensor in made if tensor.dtype != dtype]
    require(
        not others,
        f"outputs must be of the weights' dtype {dtype}, got {', '.join(others)}; cast them in `run`, "
        "such as `lambda module, x: module(x).to(x.dtype)`",
    )


MIXES = (
    "an item's rows must not depend on the others in its batch, but beside {what} they do; a module "
    "that mixes items cannot share a replay between them"
)


USED = (
    "the module must answer as it would in its first run, but what that run left behind changes later "
    "rows; make what it keeps before it is wrapped, such as in __init__"
)
KEEPS = (
    "the module must not keep what it makes of its input, but a run leaves such a tensor on {name!r}, "
    "by which other inputs may be answered; make it in each run, and return it if it is an output"
)


def _copied(module: nn.Module) -> nn.Module | None:
    """A copy with the module's weights and buffers and attributes of its own; None if it has none."""
    shared = [*module.parameters(), *module.buffers()]
    try:
        return copy.deepcopy(module, {id(tensor): tensor for tensor in shared})
    except Exception:  # of any kind: an attribute, such as a lock, decides
        return None


def _rows_of(unused: nn.Module | None, batch: Tensor, rows: RunSlots) -> Sequence[Tensor] | None:
    """Rows of a copy; None where there is none, it does not run, or it would have to be compiled."""
    if unused is None:
        return None
    try:
        with torch.compiler.set_stance("fail_on_recompile"):
            return rows(unused, batch)
    except Exception:
        return None


def _first(module: nn.Module, one: Tensor, rows: RunSlots) -> Sequence[Tensor]:
    """Rows of the first run, which is followed."""
    given = one.clone()
    with following.followed(given) as seen:
        made = rows(module, given)
    require(not seen.fault, seen.fault)
    name = seen.kept(module)
    require(not name, KEEPS.format(name=name))
    return made


def _unwritten(module: nn.Module, batch: Tensor, rows: RunSlots) -> Sequence[Tensor]:
    """Rows of a batch, of which no kernel that torch does not know may change a value."""
    made = rows(module, given := batch.clone())
    require(
        _same(given, batch),
        "the module must leave its input as it is, but changes it in place; let it copy",
    )
    return made


def _other_reason(module: nn.Module, rows: RunSlots, batch: Tensor) -> str:
    """Why a module's rows may differ, unless it is that it mixes items."""
    kept, runs = _states(module), []
    for _ in range(2):
        runs.append(rows(module, batch))
        if changed := _changed(module, kept):
            return changed
    if not _alike(runs[1], runs[0], least=ONE_SHAPE):
        return (
            "two runs on the same batch must give the same rows, but here they differ: the module "
            "draws random numbers or counts its runs; switch that off"
        )
    return ""


def _states(module: nn.Module) -> dict[str, tuple[Tensor, str]]:
    """Weights and buffers, and what shows that one was written to, without a copy: how often, its sum."""
    held = [*module.named_parameters(), *module.named_buffers()]
    counted = {n: 0 if tensor.is_inference() else tensor._version for n, tensor in held}
    return {n: (tensor, f"{counted[n]} {tensor.double().sum().item()}") for n, tensor in held}


def _changed(module: nn.Module, kept: Mapping[str, tuple[Tensor, str]]) -> str:
    """What a run did to a weight or buffer; empty if nothing."""
    now = _states(module)
    for name in {**kept, **now}:
        (before, was), (after, said) = (each.get(name, (None, "")) for each in (kept, now))
        how = "in place; freeze it" if before is after else "for another tensor; keep one"
        if before is not after or was != said:
            return (
                "the module must leave its weights and buffers as they are, but every run changes "
                f"{name!r} {how}"
            )
    return ""


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


def _crowd_apart(
    module: nn.Module,
    one: Tensor,
    alone: Sequence[Tensor],
    others: Sequence[Tensor],
    rows: RunSlots,
) -> bool:
    """Whether `CROWD` copies give the rows of one, and the first and last also beside other items.

    True of a module that refuses so many, such as for want of memory: it answers none of them wrongly.
    """
    between = [others[index % len(others)] for index in range(CROWD - 2)]
    try:
        copies = rows(module, torch.cat([one] * CROWD))
        beside = rows(module, torch.cat((one, *between, one)))
    except Exception:
        return True
    ends = [[made[:: CROWD - 1] for made in each] for each in (copies, beside)]
    return _alike(
        copies, [made.expand(CROWD, -1, -1) for made in alone], least=ANOTHER_PLACE
    ) and _alike(ends[1], ends[0], least=ONE_SHAPE)


def _alike(mine: Sequence[Tensor], true: Sequence[Tensor], *, least: float) -> bool:
    """Whether rows are what they were; values that were not finite say nothing."""
    for rows, before in zip(mine, true, strict=True):
        if rows.shape != before.shape:
            return False
        rounding = torch.finfo(before.dtype).eps if before.is_floating_point() else 0.0
        known = before.isfinite()
        was, now = (made.double().where(known, 0.0) for made in (before, rows))
        gap = torch.linalg.vector_norm(now - was, dim=(1, 2))
        size = torch.linalg.vector_norm(was, dim=(1, 2))
        if not bool((gap <= max(least, rounding) * size + SMALLEST).all()):
            return False
    return True

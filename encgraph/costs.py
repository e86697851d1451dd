"""What a replay, an eager run and a set of graphs cost, in milliseconds and bytes.

The model, per step (milliseconds; patches P of the capacity, live segments of n patches):

    replay = dense(P) + block * segments * ceil(longest / 128)     what the capture bakes in
           + square * sum(n^2) + patch * sum(n) + item * items     what the live load adds
    eager  = E[max(floor, dense'(P live) + square' * sum(n^2))] + item' * items

`dense` is a piecewise linear curve through recorded capacities: matrix products and element-wise
passes run on every captured row, padding included. Attention follows the live segments (it reads
offsets), but its launch grid is baked, so empty blocks are paid by the capacity. Eager below a few
thousand patches is bound by launches: `floor`, which scatters, so that the expectation is over what
was recorded: a batch waits for the longer of host and card. A batch adds `request` once.

Bytes: slabs by arithmetic from the shapes; pool and driver by recorded coefficients.

A `Costs` is either recorded on a card or modelled by arithmetic, and says which.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, isfinite
from typing import Self

from encgraph.errors import require
from encgraph.records import Capacity, Load, Plan
from encgraph.results import Memory
from encgraph.sizes import EncoderSize

BLOCK_PATCHES = 128
"""Query rows of one attention block; the unit in which launches are paid."""
MODEL_WITHIN = 2.5
"""Modelled times are within this factor of what each of 19 encoders was measured to take on an H200."""
H200_BF16_TFLOPS = 790.0
"""Matrix-product rate on random bf16 data; what an H200 was measured to do."""


def _check(owner: str, numbers: Mapping[str, Sequence[float]]) -> None:
    """Refuse what is no cost: one comparison with NaN makes any plan look best."""
    for name, values in numbers.items():
        wrong = [value for value in values if not (isfinite(value) and value >= 0)]
        require(
            not wrong,
            f"{name} of {owner} must be finite and at least 0, got {wrong[:1]!r}; record or fit it anew",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Milliseconds against patches: linear between points, and beyond the last two."""

    patches: tuple[int, ...]
    """Strictly increasing."""
    ms: tuple[float, ...]
    """One for each number of patches, none below the one before."""

    def __post_init__(self) -> None:
        patches, ms = self.patches, self.ms
        require(
            0 < len(patches) == len(ms),
            f"a curve must have a time for each number of patches, got {len(patches)} and {len(ms)}",
        )
        _check("a curve", {"patches": patches, "ms": ms})
        require(
            all(low < high for low, high in pairwise(patches)),
            f"patches of a curve must be strictly increasing, got {patches!r}",
        )
        require(
            all(low <= high for low, high in pairwise(ms)),
            f"times of a curve must not fall as patches grow, got {ms!r}",
        )

    def at(self, patches: float) -> float:
        """Milliseconds at a number of patches; below the first point, the first point."""
        xs, ys = self.patches, self.ms
        if patches <= xs[0] or len(xs) == 1:
            return ys[0]
        i = min(bisect_left(xs, patches), len(xs) - 1)
        share = (patches - xs[i - 1]) / (xs[i] - xs[i - 1])
        return ys[i - 1] + share * (ys[i] - ys[i - 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """A cost model of one encoder on one card with one attention."""

    source: str
    """Where the numbers come from, for people: "recorded on ..." or "modelled ..."."""
    recorded: bool
    encoder: str | None = None
    """Whose costs they are; None where nobody said."""
    gpu: str | None = None
    """The card they were recorded on; None for modelled ones and for a CPU's."""
    dense: Curve
    square_ms: float
    """Per patch squared of a live segment."""
    block_ms: float
    """Per attention block captured, empty or not."""
    patch_ms: float = 0.0
    """Per live patch: the part of attention that is not quadratic."""
    item_ms: float
    step_ms: float = 0.0
    """Host and launch of one replay that the device does not hide."""
    request_ms: float = 0.0
    """Once a batch."""
    eager_dense: Curve
    eager_square_ms: float
    eager_item_ms: float
    eager_floor_ms: float
    """Mean of the runs that the host's launches bind."""
    eager_spread_ms: tuple[float, ...] = ()
    """Such runs as recorded, less their mean, each as likely; none means no scatter."""
    row_bytes: int
    """Slab bytes a patch: input, attention and a token's share of output."""
    pool_bytes_per_patch: float
    """Private pool a patch of the largest capacity."""
    pool_bytes_per_graph: float = 0.0
    """What each further capacity adds to it."""
    driver_bytes_per_graph: float
    private_slabs: bool = False
    """Whether each graph has static buffers of its own, as vLLM's have, instead of shared views."""

    def __post_init__(self) -> None:
        """Refuse numbers that would plan wrongly; scatter about a mean may be negative."""
        numbers = {
            "square_ms": self.square_ms,
            "block_ms": self.block_ms,
            "patch_ms": self.patch_ms,
            "item_ms": self.item_ms,
            "step_ms": self.step_ms,
            "request_ms": self.request_ms,
            "eager_square_ms": self.eager_square_ms,
            "eager_item_ms": self.eager_item_ms,
            "eager_floor_ms": self.eager_floor_ms,
            "row_bytes": self.row_bytes,
            "pool_bytes_per_patch": self.pool_bytes_per_patch,
            "pool_bytes_per_graph": self.pool_bytes_per_graph,
            "driver_bytes_per_graph": self.driver_bytes_per_graph,
        }
        _check("costs", {name: (value,) for name, value in numbers.items()})
        # a host-bound run is the mean and its scatter together: a time, hence not negative
        _check("costs", {"eager_floor_ms plus each of eager_spread_ms": self.host_bound_ms})

    @property
    def host_bound_ms(self) -> tuple[float, ...]:
        """Eager runs that the host's launches bind, as recorded, quickest first, each as likely."""
        return tuple(sorted(self.eager_floor_ms + off for off in self.eager_spread_ms or (0.0,)))

    def capacity_ms(self, capacity: Capacity) -> float:
        """What replaying a capacity costs whatever is in it."""
        blocks = capacity.segments * ceil(capacity.longest_segment / BLOCK_PATCHES)
        return self.step_ms + self.dense.at(capacity.patches) + self.block_ms * blocks

    def load_ms(self, load: Load) -> float:
        """What the live load adds to any replay."""
        live = self.square_ms * load.square + self.patch_ms * load.patches
        return live + self.item_ms * load.items

    def replay_ms(self, capacity: Capacity, load: Load) -> float:
        """One replay of a capacity with a live load."""
        return self.capacity_ms(capacity) + self.load_ms(load)

    def eager_ms(self, load: Load) -> float:
        """One batched eager run of a load; 0 for an empty one."""
        if not load.items:
            return 0.0
        device = self.eager_dense.at(load.patches) + self.eager_square_ms * load.square
        runs = self.host_bound_ms
        expected = sum(max(ms, device) for ms in runs) / len(runs)
        return expected + self.eager_item_ms * load.items

    def are_of(self, encoder: str, gpu: str | None) -> bool:
        """Whether they were recorded for that encoder on that card; never true off a card."""
        return self.recorded and self.encoder == encoder and gpu is not None and self.gpu == gpu

    def lent_to(self, encoder: str) -> Self:
        """The same for an encoder that is planned with them: nobody's, unless they are its own."""
        return self if self.encoder == encoder else replace(self, encoder=None)

    def with_private_slabs(self) -> Self:
        """The same for an engine whose graphs each have buffers of their own, as vLLM's have."""
        return replace(self, private_slabs=True)

    def on_quick_host(self) -> Self:
        """The same on a host as quick as in the quickest tenth of the eager runs recorded: what eager
        takes at least, where launches bind it."""
        runs = self.host_bound_ms
        return replace(self, eager_floor_ms=runs[len(runs) // 10], eager_spread_ms=())

    def refuse_other(self, encoder: str) -> None:
        """Raise a ValueError for another encoder's plan; costs of no encoder price any."""
        require(
            self.encoder in (None, encoder),
            f"costs must be of {encoder!r}, for which the plan is, got those of {self.encoder!r}; "
            "`cards.price` has them for a size, `Costs.lent_to` where one stands in for another",
        )

    def memory(self, plan: Plan) -> Memory:
        """Bytes a plan's graphs are predicted to cost; a ValueError if it is another encoder's."""
        self.refuse_other(plan.encoder)
        if not plan.graphs:
            return Memory(slabs_bytes=0, pool_bytes=0, driver_bytes=0)
        patches = plan.largest().patches
        rows = sum(graph.patches for graph in plan.graphs) if self.private_slabs else patches
        return Memory(
            slabs_bytes=self.row_bytes * rows,
            pool_bytes=round(
                self.pool_bytes_per_patch * patches
                + self.pool_bytes_per_graph * (len(plan.graphs) - 1)
            ),
            driver_bytes=round(self.driver_bytes_per_graph * len(plan.graphs)),
        )


def flops(size: EncoderSize, load: Load) -> float:
    """Floating-point operations of one forward: products, attention and mergers.

    Source:
        2mnk a matrix product; 4 n^2 h a segment of n patches for scores and values.
    """
    matrices = 3 if size.gated else 2
    block = 2 * (4 * size.hidden**2 + matrices * size.hidden * size.intermediate)
    embed = 2 * size.patch_width * size.hidden
    wide = size.hidden * size.rule.merge_area
    merger = 2 * (wide**2 + wide * size.out) * (1 + len(size.deepstack))
    if size.layout == "text":
        embed = merger = 0  # rows of a table, and a mean or a row
    return (
        load.patches * (size.depth * block + embed)
        + _attention_flops(size, load)
        + load.tokens * merger
    )


def _attention_flops(size: EncoderSize, load: Load) -> float:
    """Of all blocks; those that keep to windows pay for whole windows, which edges leave unfilled."""
    if not size.window:
        return 4 * size.hidden * size.depth * load.square
    whole, area = len(size.full_attention), (size.window // size.rule.patch) ** 2
    windowed = (size.depth - whole) * min(load.square, load.patches * area)
    return 4 * size.hidden * (whole * load.square + windowed)


def floor_ms(size: EncoderSize, load: Load, *, tflops: float = H200_BF16_TFLOPS) -> float:
    """Arithmetic floor: no forward of this load runs faster at this rate."""
    return flops(size, load) / tflops * 1e-9


def row_bytes(size: EncoderSize, *, element_bytes: int = 2) -> int:
    """Slab bytes a patch: pixels, attention output, and a token's outputs over its patches."""
    return round(element_bytes * (size.patch_width + size.hidden + _outputs(size)))


def _outputs(size: EncoderSize) -> float:
    """Elements of all outputs, a patch."""
    return size.out * (1 + len(size.deepstack)) / size.rule.merge_area


_POINTS = (64, 256, 1024, 4096, 16384, 65536)


def modelled(size: EncoderSize, *, tflops: float = H200_BF16_TFLOPS) -> Costs:
    """Arithmetic stand-in for a recorded curve; every use of it says "modelled".

    Matrix products at 0.45 and attention at 0.25 of the card's rate, 4 us a launch in a graph, and
    eager bound by 20 us for each of about 30 launches a block: round figures with which half of what 19
    encoders were measured to take on an H200 is above and half below, each within `MODEL_WITHIN`. They
    rank plans, and promise no milliseconds. The pool holds 13 rows of a block's width, two of its middle
    and the outputs, as was alive at once in four sizes of Qwen3-VL, and 15 % that segments waste.
    """
    products, attends = 0.45 * tflops * 1e9, 0.25 * tflops * 1e9
    launches = 14 * size.depth

    def dense(patches: int) -> float:
        load = Load(patches=patches, tokens=patches // size.rule.merge_area)
        return flops(size, load) / products + launches * 0.004

    curve = Curve(patches=_POINTS, ms=tuple(dense(p) for p in _POINTS))
    whole = len(size.full_attention) if size.window else size.depth
    square = 4 * size.hidden * whole / attends
    return Costs(
        source=f"modelled from arithmetic at {tflops:g} TFLOP/s; nothing was recorded",
        recorded=False,
        encoder=size.name,
        dense=curve,
        square_ms=square,
        block_ms=size.depth * size.heads * 2e-6,
        item_ms=0.005,
        step_ms=0.1,
        request_ms=0.05,
        eager_dense=curve,
        eager_square_ms=square,
        eager_item_ms=0.02,
        eager_floor_ms=30 * size.depth * 0.02,
        row_bytes=row_bytes(size),
        pool_bytes_per_patch=1.15 * 2 * (13 * size.hidden + 2 * size.intermediate + _outputs(size)),
        driver_bytes_per_graph=8 * 2**20,
    )

"""Record an encoder's cost curve on this machine: the raw points that `curves` fits.

Four kinds of points, all of one encoder, attention and body:

* capture: seconds and bytes of each capacity, captured alone, and once of many together, for what a
  further graph adds to pool and driver, which take memory in blocks that serve several;
* replay: device time of a capacity under several live loads (one long segment, a few, many, almost
  empty), since padding, attention and empty blocks cost differently;
* eager: wall time of the best eager forward on the same loads, launches included;
* execute: wall time of the whole runner beside its device time, for what the host adds.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from encgraph import graphs, meters, sizes
from encgraph.capturing import BudgetGraph
from encgraph.encoders.protocol import Encoder
from encgraph.graphs import GraphSet
from encgraph.points import Recording, load_of
from encgraph.records import Capacity, Plan, Route
from encgraph.results import Measurement
from encgraph.runner import EncoderRunner
from encgraph.sizes import EncoderSize
from encgraph.sources.reading import ProgressBar

TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
CAPS = (8, 64)
TOGETHER = 12
"""Graphs captured together, up to `TOGETHER_TOKENS`: about as many as plans have."""
TOGETHER_TOKENS = 1024
HOST_TOKENS = 64
"""Of an item of whole executes, where it is no slot."""


def record(
    encoder: Encoder,
    size: EncoderSize,
    *,
    tokens: Sequence[int] = TOKENS,
    backend: str = "cuda",
    samples: int = 9,
    progress: ProgressBar = lambda budgets: budgets,
) -> list[Measurement]:
    """Record the curve of one encoder as it is configured.

    Args:
        encoder: On the device to measure.
        size: Its published size.
        tokens: Budgets to capture, each with few and many items.
        backend: "cuda"; "reference" gives a curve of that backend on this machine.
        samples: Timed runs a point; the median counts.
        progress: Wraps the budgets, for a progress bar.

    Returns:
        Raw points; write them with `store.write`.
    """
    chosen = progress(budgets(size, tokens))
    parts = by_budget(encoder, size, tokens=chosen, backend=backend, samples=samples)
    return [point for part in parts for point in part]


def budgets(size: EncoderSize, tokens: Sequence[int] = TOKENS) -> list[int]:
    """Budgets to record: of slots the whole ones that they hold, at least one."""
    slot = size.rule.slot_tokens or 1
    return sorted({max(1, budget // slot) * slot for budget in tokens})


def by_budget(
    encoder: Encoder,
    size: EncoderSize,
    *,
    tokens: Iterable[int] = TOKENS,
    backend: str = "cuda",
    samples: int = 9,
) -> Iterator[list[Measurement]]:
    """The same points as they come: those of each budget, at the end of many graphs and whole executes."""
    environment = meters.environment(encoder.spec.dtype, encoder.spec.device)
    recording = Recording(encoder=encoder, size=size, environment=environment, samples=samples)
    seen = 0
    for budget in tokens:
        seen = max(seen, budget)
        points: list[Measurement] = []
        capacities = [sizes.capacity(budget, size.rule, items=min(n, budget)) for n in CAPS]
        for capacity in dict.fromkeys(capacities):
            points += _captured(recording, capacity, backend)
        most = max(capacity.items for capacity in capacities)
        points += [recording.eager(batch) for batch in recording.loads(budget, most)]
        yield points
    slots = TOGETHER * size.rule.slot_tokens
    together = _together(recording, min(seen, max(TOGETHER_TOKENS, slots)), backend)
    yield [*together, *_executes(recording, backend)]


def _captured(recording: Recording, capacity: Capacity, backend: str) -> list[Measurement]:
    plan = Plan(graphs=(capacity,), encoder=recording.size.name)
    with graphs.capture(recording.encoder, plan, backend=backend) as made:
        [graph] = made.graphs
        points = [
            recording.point(
                Route.CAPTURE,
                capacity=capacity,
                memory=made.memory,
                numbers={"capture_s": graph.seconds, **_attended(graph)},
            )
        ]
        points += [
            recording.replay(made, capacity, batch)
            for batch in recording.loads(capacity.tokens, capacity.items)
            if capacity.holds(load_of(batch))
        ]
    return points


def _together(recording: Recording, largest: int, backend: str) -> list[Measurement]:
    """Bytes of many graphs of one plan, the largest of so many tokens; no capacity, since it is of none."""
    rule, low = recording.size.rule, recording.size.rule.min_tokens
    steps = {low + (largest - low) * step // (TOGETHER - 1) for step in range(TOGETHER)}
    capacities = [sizes.capacity(t, rule, items=min(CAPS[0], t)) for t in sorted(steps)]
    plan = Plan(graphs=tuple(dict.fromkeys(capacities)), encoder=recording.size.name)
    with graphs.capture(recording.encoder, plan, backend=backend) as made:
        numbers = {
            "capture_s": sum(graph.seconds for graph in made.graphs),
            "graphs_count": float(sum(graph.is_captured for graph in made.graphs)),
            "patches_count": float(made.captured_plan.largest().patches),
        }
        return [recording.point(Route.CAPTURE, memory=made.memory, numbers=numbers)]


def _attended(graph: BudgetGraph) -> dict[str, float]:
    """What the attentions took that this graph's was chosen from, its launch shapes together."""
    names = dict.fromkeys(name for choice in graph.attention for name in choice.ms)
    return {
        f"attention_{name}_ms": sum(choice.ms.get(name, 0.0) for choice in graph.attention)
        for name in names
    }


def _executes(recording: Recording, backend: str) -> list[Measurement]:
    """Whole executes of 1 to 16 items in one replay: wall beside device time."""
    each = recording.size.rule.slot_tokens or HOST_TOKENS
    capacity = sizes.capacity(16 * each, recording.size.rule, items=16)
    plan = Plan(graphs=(capacity,), encoder=recording.size.name)
    points = []
    with EncoderRunner(encoder=recording.encoder, plan=plan, backend=backend) as runner:
        runner.capture()
        made = runner.graphs
        assert isinstance(made, GraphSet)
        for count in (1, 4, 8, 16):
            batch = recording.inputs(each, count)
            run = partial(runner.execute, batch)
            points.append(recording.execute(made, capacity, batch, run))
    return points

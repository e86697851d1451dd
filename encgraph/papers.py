"""Make every figure of a paper from the measurements of a card, with a manifest of hashes.

A figure is drawn from records alone, so the same data give the same figure JSON anywhere. HTML is
always written; SVG and PDF where kaleido and a browser are there, normalised so that the same tools
give the same bytes. The manifest says which data, figure, files and tools.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import plotly.graph_objects as go

from encgraph import (
    budgets,
    cards,
    curves,
    datadir,
    figures,
    handles,
    readings,
    sizes,
    store,
    tradeoffs,
    traffic,
)
from encgraph.costs import Costs
from encgraph.errors import require
from encgraph.packers.search import EXACT_ITEMS
from encgraph.results import Measurement
from encgraph.sizes import EncoderSize

BENCH = "bench-"
INSIDE = "inside-"
CHOICE = "Whiskers and ranges hold 95 % of draws over the choice of requests."
PLANNED = "builtin:servegen"
"""Traffic of the planning figures."""
SCATTERED = ("eager_varlen", "vllm", "encgraph_plain", "encgraph")
"""Strategies whose requests are drawn one by one; more would hide each other."""
SHOWN_GRAPHS = 8
"""Graphs of the plan that the planning figures show."""
FIRST_TOKENS = "What a first token waits for, by what is graphed and by requests at once."
CAPTURES = "Time of a new process until its graphs are captured, compile caches empty and warm."
GAINS = "Measured time of a burst on one card over that on several, and what was predicted."
HELD = "Device memory that vLLM's default graphs hold, rebuilt and by its own manager, by what holds it."
SPEEDUPS = "Eager time over replay time of each encoder, for few items and for many."
RECORDS: Mapping[str, tuple[str, str, Callable[[Sequence[Measurement]], go.Figure]]] = {
    handles.FIRST_TOKEN: ("stages", FIRST_TOKENS, figures.first_token_stages),
    "capture-": ("stages", CAPTURES, figures.capture_stages),
    "data_parallel": ("gain", GAINS, figures.gain_of_ranks),
    "encoders": ("speedup", SPEEDUPS, figures.speedup_by_encoder),
    "vllm-memory": ("parts", HELD, figures.memory_taken_apart),
}
"""The one figure of each further kind of experiment, by how its name begins: name, what it shows, how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """One figure of a paper."""

    name: str
    caption: str
    """What it shows and where its numbers come from, samples included."""
    data: tuple[str, ...]
    """Files it is drawn from, under the data folder."""
    draw: Callable[[], go.Figure]


def catalogue(gpu: str = "h200") -> tuple[Paper, ...]:
    """Every figure that a card's measurements allow, in the order of a paper.

    Raises:
        ValueError: If nothing was measured on the card.
    """
    names = store.experiments(gpu)
    require(
        bool(names),
        f"no measurements of card {gpu!r}; there are those of {list(store.gpus())!r}",
    )
    found = [p for name in names if name.startswith(BENCH) for p in _of_bench(gpu, name)]
    found += [p for name in names if name.startswith(INSIDE) for p in _of_kernels(gpu, name)]
    found += [p for name in names for p in _of_record(gpu, name)]
    found += [p for name in names if (size := _encoder(name)) for p in _of_curve(gpu, size)]
    return tuple(found)


def _encoder(experiment: str) -> EncoderSize | None:
    """The encoder whose curve an experiment is, if it is one."""
    start = curves.experiment("")
    name = experiment.removeprefix(start)
    return sizes.named(name) if experiment.startswith(start) and name in sizes.SIZES else None


def _of_bench(gpu: str, experiment: str) -> Iterator[Paper]:
    lines = store.load(gpu, experiment)
    ladder = partial(figures.ladder, lines, over=_scattered(lines)[0])
    drawn: dict[str, tuple[str, Callable[[], go.Figure]]] = {
        "ladder": (f"Mean time of a request by strategy. {CHOICE}", ladder),
        "ladder-p99": (
            f"99th percentile over requests by strategy. {CHOICE}",
            partial(ladder, quantile="p99"),
        ),
        "regimes": (
            f"Mean time of a request by strategy and size. {CHOICE}",
            partial(figures.regimes_compared, lines),
        ),
        "latency-against-tokens": (
            "Time of each request over its tokens, by strategy.",
            partial(figures.latency_against_tokens, lines, strategies=_scattered(lines)),
        ),
        "quantiles": (
            "Quantiles over requests by strategy.",
            partial(figures.strategies_compared, lines),
        ),
    }
    whole = readings.summaries(lines).values()
    if not any(m.latency and m.latency.tail_ms for m in whole):
        drawn.pop("ladder-p99")  # of so few requests it would be the slowest
    if any(m.memory for m in whole):
        drawn["memory"] = (
            "Device memory that graphs hold, by what holds it; the mark is the most that capture allocated.",
            partial(figures.memory_by_strategy, lines),
        )
    for of in ("time", "bytes"):
        if any(f"predicted_{'mean_ms' if of == 'time' else of}" in m.numbers for m in whole):
            drawn[f"predicted-{of}"] = (
                f"Predicted {of} of each strategy against measured.",
                partial(figures.predicted_against_measured, lines, of=of),
            )
    yield from _papers(gpu, experiment, lines, drawn)


def _papers(
    gpu: str,
    experiment: str,
    lines: Sequence[Measurement],
    drawn: Mapping[str, tuple[str, Callable[[], go.Figure]]],
) -> Iterator[Paper]:
    """Figures of one experiment by name, each with what it shows."""
    source = readings.source(lines)
    for name, (about, draw) in drawn.items():
        yield _paper(f"{experiment}.{name}", f"{about} {source}.", [(gpu, experiment)], draw)


def _of_record(gpu: str, experiment: str) -> Iterator[Paper]:
    """The one figure of an experiment that is neither a bench nor a curve nor of kernels."""
    for start, (name, about, draw) in RECORDS.items():
        if experiment.startswith(start):
            lines = store.load(gpu, experiment)
            yield from _papers(gpu, experiment, lines, {name: (about, partial(draw, lines))})


def _scattered(lines: Sequence[Measurement]) -> list[str]:
    known = readings.summaries(lines)
    return [name for name in SCATTERED if name in known] or list(known)


def _of_kernels(gpu: str, experiment: str) -> Iterator[Paper]:
    """Where one replay's time goes, body by body, at each size whose kernels were listed."""
    lines = store.load(gpu, experiment)
    drawn = {
        f"kernels-{tokens}": (
            f"Time of the kernels of one replay of {tokens:,} tokens by kind and body, each body "
            "with one idea more than the one above.",
            partial(figures.kernels_by_kind, lines, tokens),
        )
        for tokens in sorted({m.capacity.tokens for m in lines if m.capacity and m.numbers})
    }
    yield from _papers(gpu, experiment, lines, drawn)


def _of_curve(gpu: str, size: EncoderSize) -> Iterator[Paper]:
    costs = cards.price(size, on=gpu)
    if not costs.recorded:
        return
    points = readings.preferred(cards.recorded(size, gpu))
    experiment = curves.experiment(size.name)
    tokens = [2**n for n in range(6, 14)]
    drawn: dict[str, tuple[str, Callable[[], go.Figure]]] = {
        "replay-cost": (
            "Recorded time of replays over captured tokens, empty and full, and of eager runs.",
            partial(figures.replay_cost, points, costs),
        ),
        "spread": (
            "Scatter of repeated runs of one load.",
            partial(figures.spread, points),
        ),
        "bytes": (
            "Device memory of one graph over captured tokens, measured and predicted.",
            partial(figures.bytes_by_capacity, points, costs),
        ),
        "break-even": (
            "Predicted time of an eager run over that of a replay, loads of one item.",
            lambda: figures.break_even_map(tradeoffs.break_even(costs, size, tokens=tokens)),
        ),
    }
    yield from _papers(gpu, experiment, points, drawn)
    if size.name == _planned_encoder(gpu):
        yield from _of_plans(gpu, size, costs)


def _planned_encoder(gpu: str) -> str:
    """The encoder of the planning figures: that of the benches, else the first with a curve."""
    names = store.experiments(gpu)
    benches = [name for name in names if name.startswith(BENCH)]
    if benches:
        return store.load(gpu, benches[0])[0].encoder
    return next(size.name for name in names if (size := _encoder(name)))


def _of_plans(gpu: str, size: EncoderSize, costs: Costs) -> Iterator[Paper]:
    """Figures of plans for a built-in traffic: predicted from a recorded curve."""

    fit_on, held_out = traffic.read(PLANNED, size).split(0.5)

    @cache
    def judged() -> tuple[tradeoffs.Judged, ...]:
        target = budgets.Target(size=size)
        return tradeoffs.rules(fit_on.requests, held_out.requests, target=target, costs=costs)

    def plan() -> tradeoffs.Judged:
        fitted = [j for j in judged() if j.rule == "fitted" and j.graphs <= SHOWN_GRAPHS]
        return fitted[-1]

    drawn: dict[str, tuple[str, Callable[[], go.Figure]]] = {
        "padding-by-graphs": (
            "Padding on held-out requests over the number of graphs, by budget rule.",
            lambda: figures.padding_by_graphs(judged()),
        ),
        "latency-by-graphs": (
            "Predicted mean time on held-out requests over the number of graphs, by budget rule.",
            lambda: figures.latency_by_graphs(judged()),
        ),
        "budget-ruler": (
            "Tokens of held-out requests, replayed and eager, under a fitted plan of up to "
            f"{SHOWN_GRAPHS} graphs.",
            lambda: figures.budget_ruler(
                budgets.routed(held_out.requests, plan().plan, costs=costs)
            ),
        ),
        "optimality-gap": (
            "Predicted time of packing rules over the exact optimum, those requests of 2 to "
            f"{EXACT_ITEMS} items, under a fitted plan of up to {SHOWN_GRAPHS} graphs.",
            lambda: figures.optimality_gap(
                tradeoffs.gaps(held_out.requests, plan().plan, costs=costs)
            ),
        ),
        "memory-by-graphs": (
            "Predicted device memory of doubling budgets, slabs shared or each graph its own.",
            lambda: figures.memory_by_graphs(tradeoffs.ways_to_hold(judged(), costs)),
        ),
    }
    experiment = curves.experiment(size.name)
    data = [(gpu, experiment)]
    for name, (about, draw) in drawn.items():
        counts = f"{len(held_out.requests):,} held-out requests of {PLANNED}"
        counts += f", {len(fit_on.requests):,} others to fit on"
        caption = f"{about} {counts}; costs {costs.source}."
        yield _paper(f"plans.{name}", caption, data, draw, "traffic/servegen.json")


def _paper(
    name: str,
    caption: str,
    experiments: Sequence[tuple[str, str]],
    draw: Callable[[], go.Figure],
    *others: str,
) -> Paper:
    root = datadir.root()
    files = [store.path(*one).relative_to(root).as_posix() for one in experiments]
    return Paper(name=name, caption=caption, data=(*files, *others), draw=draw)


def figure(name: str, *, gpu: str = "h200") -> go.Figure:
    """One figure of the catalogue, with its caption below it.

    Raises:
        ValueError: If there is none of that name.
    """
    found: Mapping[str, Paper] = {paper.name: paper for paper in catalogue(gpu)}
    require(name in found, f"figure must be one of {list(found)}, got {name!r}")
    return figures.sourced(found[name].draw(), found[name].caption)

"""The facts of one run: what `report.json` holds and `report.html` shows.

A `Report` is filled by whoever runs an encoder over a traffic. A run that was interrupted fills what
it has; everything that may be missing is None or empty, and the report says so.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from encgraph.errors import require
from encgraph.records import SCHEMA, FallbackReason, Load, Plan, Route, Step
from encgraph.regimes import RequestTimes
from encgraph.results import Environment, Latency, Memory, Number, at_shares
from encgraph.tabular import Showing


def quantile(values: Iterable[Number], share: float) -> Number:
    """The smallest value with that share of values at or below it.

    >>> quantile([4, 1, 3, 2], 0.5)
    2
    """
    return at_shares(list(values), (share,))[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedFile:
    """A file of the source that could not be used, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficFacts:
    """What was sent through the encoder."""

    name: str
    source: str
    request_tokens: tuple[int, ...]
    """Tokens of each request."""
    item_tokens: tuple[int, ...]
    """Tokens of each item."""
    skipped: tuple[SkippedFile, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens in all."""
        return sum(self.request_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderFacts:
    """Which encoder ran, and how."""

    name: str
    parameters: int
    dtype: str
    attention: str
    """The packed attention in use, never "auto"."""
    backend: str
    """"cuda" or "reference"."""
    strategy: str
    fitted_on_run: bool = False
    """Whether its budgets were fitted on the very requests that were run."""
    costs: str | None = None
    """Where the costs come from that were packed by; None where none were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphState:
    """What became of one graph of the plan."""

    graph: int
    """Index into `Plan.graphs`."""
    captured: bool
    why: str | None = None
    """Why it is not captured; None when it is."""
    seconds: float | None = None
    """Time to capture; None if it never was."""
    num_bytes: int | None = None
    """Pool bytes the capture added; None if not measured."""
    attention: str | None = None
    """What was chosen for it, a name a launch shape; None where nothing was to be chosen."""

    def __post_init__(self) -> None:
        require(
            self.captured == (self.why is None),
            f"graph {self.graph!r} is {'' if self.captured else 'not '}captured, why: {self.why!r}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    """One step and how long it took."""

    step: Step
    ms: float
    request: int | None = None
    """Index into the traffic; None for a capture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingFacts:
    """How full the replays were, and how many items reached one."""

    padding_ratio: float
    """Padding tokens over budget tokens of all replays, 0 to 1."""
    fill_ratio: float
    """1 minus the padding ratio; 0 when nothing was replayed."""
    replay_rate: float
    """Items replayed over items, 0 to 1."""
    replayed_items: int
    eager_items: int
    """Items that ran eager: fallbacks, or all of them without graphs."""

    @classmethod
    def of(cls, steps: Iterable[Step]) -> Self:
        """Add up replays, fallbacks and eager runs; captures count for nothing."""
        items: Counter[Route] = Counter()
        real = budget = 0
        for step in steps:
            items[step.route] += step.items
            if step.route is Route.REPLAY:
                real += step.real_tokens
                budget += step.token_budget or 0
        replayed, eager = items[Route.REPLAY], items[Route.FALLBACK] + items[Route.EAGER]
        return cls(
            padding_ratio=1 - real / budget if budget else 0.0,
            fill_ratio=real / budget if budget else 0.0,
            replay_rate=replayed / (replayed + eager) if replayed + eager else 0.0,
            replayed_items=replayed,
            eager_items=eager,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackFacts:
    """Fallbacks that share a reason."""

    reason: FallbackReason
    items: int
    tokens: int
    largest_tokens: int
    """Tokens of the largest step that fell back for it; only those that did so for this reason."""

    @classmethod
    def by_reason(cls, steps: Iterable[Step]) -> tuple[Self, ...]:
        """Group fallbacks by reason, most items first."""
        groups: dict[FallbackReason, list[Load]] = {}
        for step in steps:
            if step.reason is not None:
                one = {step.reason: Load(items=step.items, tokens=step.real_tokens)}
                for reason, load in (step.reasons or one).items():
                    groups.setdefault(reason, []).append(load)
        found = [
            cls(
                reason=reason,
                items=sum(load.items for load in group),
                tokens=sum(load.tokens for load in group),
                largest_tokens=max(load.tokens for load in group),
            )
            for reason, group in groups.items()
        ]
        return tuple(sorted(found, key=lambda f: (-f.items, f.reason)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityFacts:
    """Whether the runner's outputs are as right as eager's."""

    items: int
    """Items compared."""
    worst_error_ratio: float
    """Largest distance from the oracle over eager's own distance, over the items."""
    worst_item: str
    """Which item that was, by name or index."""
    tolerance_ratio: float
    """Highest error ratio that passes."""
    tolerance_source: str
    """How the tolerance was derived, one sentence."""
    oracle_dtype: str
    """Dtype in which the oracle ran."""
    poison_passed: bool | None = None
    """Whether poisoned padding changed nothing; None if not tried."""

    @property
    def passed(self) -> bool:
        """Whether every item is within tolerance and poison, if tried, changed nothing."""
        return self.worst_error_ratio <= self.tolerance_ratio and self.poison_passed is not False


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """A whole traffic through the runner and through eager, a sample a request."""

    ours_wall: Latency
    eager_wall: Latency
    ours_device: Latency | None = None
    """None where there is no device clock."""
    eager_device: Latency | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Jitter:
    """Wall times in ms of one replay and one fallback: repeated alone, then alternating."""

    replay_alone_ms: tuple[float, ...]
    replay_alternating_ms: tuple[float, ...]
    fallback_alone_ms: tuple[float, ...]
    fallback_alternating_ms: tuple[float, ...]

    def __post_init__(self) -> None:
        require(
            all((self.replay_alone_ms, self.replay_alternating_ms)),
            "jitter needs replays, alone and alternating",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPrediction:
    """What this traffic is expected to take on a card; where that card ran it, said before it did."""

    card: str
    encoder: str
    """The encoder predicted for, which may be larger than the one that ran."""
    source: str
    """Where the cost model comes from, for people."""
    recorded: bool
    """Whether from a recorded curve; False means modelled by arithmetic."""
    ours: Latency
    doubling: Latency | None = None
    eager: Latency | None = None
    memory: Memory | None = None
    replay_rate: float | None = None
    """Items replayed over items in the packing predicted for, 0 to 1; None if nobody said."""
    times: tuple[RequestTimes, ...] = ()
    """Predicted request by request; empty if only the summaries are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Showing):
    """Everything a run found out; `report.json` is this record."""

    encgraph: str
    """Version that wrote it."""
    command: str
    """Command line that made it."""
    environment: Environment
    traffic: TrafficFacts
    encoder: EncoderFacts
    plan: Plan
    graphs: tuple[GraphState, ...] = ()
    steps: tuple[TimedStep, ...] = ()
    packing: PackingFacts | None = None
    """None if nothing was executed."""
    fallbacks: tuple[FallbackFacts, ...] = ()
    parity: ParityFacts | None = None
    latencies: Latencies | None = None
    times: tuple[RequestTimes, ...] = ()
    jitter: Jitter | None = None
    memory: Memory | None = None
    """None on a machine without a card."""
    prediction: CardPrediction | None = None
    recommendations: tuple[str, ...] = ()
    """What to change, most urgent first; empty means not yet worked out."""
    complete: bool = True
    interrupted: str | None = None
    """What stopped the run; None for a complete one."""
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        require(
            self.complete == (self.interrupted is None),
            f"a report is complete or says what stopped it, got {self.interrupted!r}",
        )
        require(
            self.schema <= SCHEMA,
            f"report schema {self.schema!r} is newer than this release reads ({SCHEMA}); "
            "upgrade encgraph",
        )

    @property
    def replayed_nothing(self) -> bool:
        """Whether items were executed and none of them by a replay."""
        return self.packing is not None and self.packing.replayed_items == 0

    @property
    def on_card(self) -> bool:
        """Whether its latencies are those of captured graphs on a card."""
        return self.environment.gpu is not None and self.encoder.backend == "cuda"

"""Facts that flow through the pipeline: frozen, without tensors, compared by value, JSON in and out.

A record refuses contradictions when it is built, so every later stage may trust it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce
from itertools import pairwise
from typing import Self

from encgraph.errors import MOST, check_named, require, settle
from encgraph.tabular import Showing

SCHEMA = 1


class Modality(StrEnum):
    """What an item is."""

    IMAGE = "image"
    VIDEO = "video"
    AUDIO = "audio"
    TEXT = "text"


class Route(StrEnum):
    """How a step reached the card."""

    CAPTURE = "capture"
    REPLAY = "replay"
    FALLBACK = "fallback"
    EAGER = "eager"


class FallbackReason(StrEnum):
    """Why items ran eager although graphs were asked for."""

    OVER_TOKENS = "tokens over every budget"
    OVER_PATCHES = "patches over every budget"
    OVER_ITEMS = "items over every budget"
    OVER_SEGMENTS = "segments over every budget"
    OVER_LONGEST_SEGMENT = "a segment longer than every budget allows"
    OVER_FRAMES = "frames over every budget"
    EAGER_IS_FASTER = "eager predicted faster than any replay"
    NO_GRAPHS = "the plan has no graphs"
    NOT_CAPTURED = "nothing captured yet"
    CAPTURE_FAILED = "the budget failed to capture"
    UNSUPPORTED_MODALITY = "the encoder has no graphs for this modality"
    FORWARD_HOOKS = "forward hooks on the encoder do not run in a replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One image, clip or audio segment to encode, by its sizes alone."""

    modality: Modality = Modality.IMAGE
    tokens: int
    """Encoder output tokens, at least 1; where they are pooled, those before: what work grows with."""
    patches: int
    """Encoder input patches, at least 1."""
    segments: int = 1
    """Attention segments; a clip has one a temporal step."""
    longest_segment: int = 0
    """Patches of the longest segment; 0 means patches / segments, rounded up."""
    frames: int = 1
    """Temporal steps; an image has 1."""
    width: int | None = None
    """Source width in pixels; None where the source gives only tokens."""
    height: int | None = None
    """Source height in pixels; None where the source gives only tokens."""
    request: int = 0
    """Index of the request it belongs to."""

    def __post_init__(self) -> None:
        # Planning builds many: comparisons call nothing, and only what fails them is settled by name.
        if not (
            type(self.tokens) is type(self.patches) is type(self.segments) is int
            and type(self.frames) is type(self.longest_segment) is type(self.request) is int
            and 0 < self.tokens <= MOST >= self.patches > 0
            and 0 < self.segments <= MOST >= self.frames > 0
            and 0 <= self.longest_segment <= MOST >= self.request >= 0
            and (self.width is None or (type(self.width) is int and 0 < self.width <= MOST))
            and (self.height is None or (type(self.height) is int and 0 < self.height <= MOST))
        ):
            sides = [name for name in ("width", "height") if getattr(self, name) is not None]
            settle(self, "an item", ("tokens", "patches", "segments", "frames", *sides))
            settle(self, "an item", ("longest_segment", "request"), least=0)
        if self.longest_segment == 0:
            object.__setattr__(self, "longest_segment", -(-self.patches // self.segments))

    @property
    def square(self) -> float:
        """Sum of squared segment lengths in patches squared; segments are taken as equal."""
        return self.patches * self.patches / self.segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a set of items asks of one replay: sums over items, maximum for the longest segment."""

    tokens: int = 0
    patches: int = 0
    items: int = 0
    segments: int = 0
    longest_segment: int = 0
    frames: int = 0
    square: float = 0.0
    """Sum of squared segment lengths, patches squared: what attention costs."""

    @classmethod
    def of(cls, items: Iterable[Item]) -> Self:
        """Add up items."""
        return reduce(cls.plus, items, cls())

    def plus(self, item: Item) -> Self:
        """This load with one more item."""
        return type(self)(
            tokens=self.tokens + item.tokens,
            patches=self.patches + item.patches,
            items=self.items + 1,
            segments=self.segments + item.segments,
            longest_segment=max(self.longest_segment, item.longest_segment),
            frames=self.frames + item.frames,
            square=self.square + item.square,
        )


DIMENSIONS: Mapping[str, FallbackReason] = {
    "tokens": FallbackReason.OVER_TOKENS,
    "patches": FallbackReason.OVER_PATCHES,
    "items": FallbackReason.OVER_ITEMS,
    "segments": FallbackReason.OVER_SEGMENTS,
    "longest_segment": FallbackReason.OVER_LONGEST_SEGMENT,
    "frames": FallbackReason.OVER_FRAMES,
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Capacity:
    """What one captured graph holds; every field is a limit that packing checks."""

    tokens: int
    """The token budget, padding included; where tokens are pooled, fewer rows come out."""
    patches: int
    items: int
    segments: int
    longest_segment: int
    """Patches; baked into the attention launch."""
    frames: int

    def __post_init__(self) -> None:
        settle(self, "a capacity", DIMENSIONS)
        if self.items > self.tokens:
            over = f"a budget of {self.tokens!r} tokens cannot hold {self.items!r} items"
            raise ValueError(f"{over}; lower items")

    def holds(self, load: Load) -> bool:
        """Whether a load fits in every dimension."""
        return (
            load.tokens <= self.tokens
            and load.patches <= self.patches
            and load.items <= self.items
            and load.segments <= self.segments
            and load.longest_segment <= self.longest_segment
            and load.frames <= self.frames
        )

    def exceeded(self, load: Load) -> FallbackReason | None:
        """The first dimension a load exceeds, or None when it fits."""
        for name, reason in DIMENSIONS.items():
            if getattr(load, name) > getattr(self, name):
                return reason
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Showing):
    """The capacities to capture for one encoder, smallest first, each with its reason."""

    graphs: tuple[Capacity, ...]
    """Strictly increasing by tokens, then items; empty means "leave graphs off"."""
    encoder: str
    dtype: str = "bfloat16"
    attention: str = "auto"
    compiled: bool = False
    reasons: tuple[str, ...] = ()
    """One sentence a graph, or one sentence in all for a plan without graphs."""
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        keys = [(c.tokens, c.items, c.longest_segment, c.patches) for c in self.graphs]
        rising, budgets = all(a < b for a, b in pairwise(keys)), [c.tokens for c in self.graphs]
        require(rising, f"token budgets must be strictly increasing, got {budgets!r}")
        graphs, reasons = len(self.graphs), len(self.reasons)
        alike = reasons in (0, graphs or reasons)
        require(alike, f"a plan needs one reason a graph, got {reasons} for {graphs}")
        newer = f"plan schema {self.schema!r} is newer than this release reads ({SCHEMA})"
        require(self.schema <= SCHEMA, f"{newer}; upgrade encgraph")
        check_named(dtype=self.dtype, attention=self.attention)

    @property
    def token_budgets(self) -> tuple[int, ...]:
        """Distinct token budgets, smallest first."""
        return tuple(sorted({c.tokens for c in self.graphs}))

    def largest(self) -> Capacity:
        """The elementwise maximum: what the slabs must hold."""
        require(bool(self.graphs), "a plan without graphs has no largest capacity")
        return Capacity(**{name: max(getattr(c, name) for c in self.graphs) for name in DIMENSIONS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Items that share one replay."""

    items: tuple[int, ...]
    """Indices into the batch."""
    graph: int
    """Index into `Plan.graphs`."""
    capacity: Capacity
    load: Load

    def __post_init__(self) -> None:
        require(bool(self.items), "a bin must hold at least one item")
        if over := self.capacity.exceeded(self.load):
            raise ValueError(f"a bin of {self.load!r} exceeds {self.capacity!r}: {over}")

    @property
    def token_budget(self) -> int:
        """Rows the replay computes."""
        return self.capacity.tokens

    @property
    def padding_tokens(self) -> int:
        """Rows computed for nobody."""
        return self.capacity.tokens - self.load.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """One item left for eager, and why."""

    item: int
    """Index into the batch."""
    reason: FallbackReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing(Showing):
    """All bins of a batch and the items left for eager; each index occurs once."""

    bins: tuple[Bin, ...]
    fallback: tuple[Fallback, ...] = ()

    @property
    def real_tokens(self) -> int:
        """Tokens in bins."""
        return sum(b.load.tokens for b in self.bins)

    @property
    def padding_ratio(self) -> float:
        """Padding tokens over budget tokens, 0 to 1; 0 when nothing is replayed."""
        budget = sum(b.token_budget for b in self.bins)
        return 1 - self.real_tokens / budget if budget else 0.0

    @property
    def replay_rate(self) -> float:
        """Items replayed over items, 0 to 1; 0 for an empty batch."""
        replayed = sum(len(b.items) for b in self.bins)
        return replayed / (replayed + len(self.fallback)) if replayed else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One capture, replay, fallback or eager run."""

    route: Route
    modality: Modality
    items: int
    real_tokens: int
    token_budget: int | None = None
    """Rows computed; None unless captured or replayed."""
    reason: FallbackReason | None = None
    """Why, of the largest item; only a fallback has one."""
    reasons: Mapping[FallbackReason, Load] = field(default_factory=dict)
    """What fell back for each reason; empty where there is but one, as in older records."""

    def __post_init__(self) -> None:
        budget, why, left = self.token_budget, self.reason, self.reasons
        graphed, fell = self.route in (Route.CAPTURE, Route.REPLAY), self.route is Route.FALLBACK
        if graphed != (budget is not None):
            raise ValueError(f"a {self.route} step has token_budget {budget!r}")
        if fell != (why is not None):
            raise ValueError(f"a {self.route} step has reason {why!r}")
        if left and (why not in left or sum(m.items for m in left.values()) != self.items):
            raise ValueError(f"a step of {self.items} items for {why!r} has reasons {left!r}")
        if budget is not None and budget < self.real_tokens:
            raise ValueError(f"budget {budget!r} is under {self.real_tokens!r} real tokens")

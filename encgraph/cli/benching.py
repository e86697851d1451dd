"""Check what was asked of `bench` before torch is loaded."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from encgraph import sizes, strategies
from encgraph import traffic as traffics
from encgraph.cli import options, output, planning, sources
from encgraph.cli.idle import Idle
from encgraph.cli.options import COMPARED, Backend
from encgraph.errors import require
from encgraph.model_runner import text_sizes
from encgraph.sizes import EncoderSize
from encgraph.strategies import Strategy
from encgraph.traffic import BUILTIN, Traffic

UNCOUNTED = (None, "doubling", "compile")
"""Kinds of plan whose number of graphs nobody chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedBench:
    """What was asked of `bench`."""

    source: str
    encoder: str
    strategies: str | None = None
    """None: those of `options.COMPARED`."""
    backend: Backend | None = None
    fit_on: str | None = None
    count: int | None = None
    largest: int | None = None
    max_graphs: int = 16
    repeats: int | None = None
    seed: int = 0
    calibrate: bool = False
    first_token: bool = False
    concurrency: str | None = None
    """Requests a batch of `first_token`, joined by commas; None: as many as suit the machine."""
    out: Path = Path()

    @property
    def compared(self) -> list[Strategy]:
        """The strategies to compare; graphs for the first token are planned as ours are."""
        if self.first_token:
            return [strategies.ENCGRAPH_PLAIN]
        return strategies.chosen(COMPARED if self.strategies is None else self.strategies)


BENCH_IDLE: tuple[Idle[WantedBench], ...] = (
    Idle(
        option="--strategies",
        when=lambda wanted: wanted.first_token,
        why="with --first-token, which compares graphs off, on, and cache warm, graphs as encgraph "
        "has them on a card, as encgraph_plain elsewhere",
    ),
    Idle(
        option="--calibrate",
        when=lambda wanted: wanted.first_token,
        why="with --first-token, whose packing goes by recorded times",
    ),
    Idle(
        option="--concurrency",
        when=lambda wanted: not wanted.first_token,
        why="without --first-token, whose batches it sizes",
        cure="add --first-token, or leave it out",
    ),
    Idle(
        option="--largest",
        when=lambda wanted: all(s.plan in strategies.UNPLANNED for s in wanted.compared),
        why="with these --strategies, none of which captures budgets",
    ),
    Idle(
        option="--max-graphs",
        when=lambda wanted: all(s.plan in UNCOUNTED for s in wanted.compared),
        why="with these --strategies, none of which chooses how many graphs to capture",
    ),
    Idle(
        option="--calibrate",
        when=lambda wanted: all(s.packing != "cheapest" for s in wanted.compared),
        why="with these --strategies, whose packing goes by no times",
    ),
)
"""What may be asked of `bench` to no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyBench:
    """What was asked of `bench` and found in order."""

    wanted: WantedBench
    size: EncoderSize
    strategies: Sequence[Strategy]
    traffic: Traffic
    """As read; what cannot be decoded is still there."""
    fit_on: Traffic | None
    """To fit budgets on instead of on part of the traffic."""


def checked(wanted: WantedBench) -> ReadyBench:
    """Look everything up and read the traffic.

    Raises:
        ValueError: If something asked for cannot be had.
    """
    require(
        wanted.max_graphs >= 1,
        f"--max-graphs must be at least 1 to compare graphs, got {wanted.max_graphs!r}; to measure "
        "without graphs name eager_varlen among --strategies",
    )
    size, chosen = sizes.named(wanted.encoder), wanted.compared
    planning.check_largest(wanted.largest, size)
    options.check_calibrate(wanted.calibrate, wanted.backend)
    if wanted.first_token:
        check_whole(wanted.encoder)
    if wanted.concurrency is not None:
        options.numbers(wanted.concurrency)
    output.folder(wanted.out)
    traffic = sources.read(wanted.source, size, count=wanted.count, seed=wanted.seed)
    other = None
    if wanted.fit_on is not None:
        other = traffics.read(wanted.fit_on, size, seed=wanted.seed + 1, progress=output.reading)
    elif not traffic.source.startswith(BUILTIN):
        sources.check_enough(traffic)
    return ReadyBench(wanted=wanted, size=size, strategies=chosen, traffic=traffic, fit_on=other)


def check_whole(encoder: str) -> None:
    """Refuse an encoder whose language model is not known.

    Raises:
        ValueError: If it is not.
    """
    known = sorted(text_sizes.TEXT_SIZES)
    require(
        encoder in known,
        f"the first token needs a whole model, known for encoders {known}, got {encoder!r}",
    )

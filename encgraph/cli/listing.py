"""List encoders, and sum up a traffic."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from rich.console import Console

from encgraph import cards, curves, sizes, store, tabular
from encgraph import traffic as traffics
from encgraph.cli import glossary, output
from encgraph.cli.idle import Idle
from encgraph.facts import SkippedFile
from encgraph.records import Modality
from encgraph.report.text import plural
from encgraph.results import LEAST_OF_P99
from encgraph.sizes import EncoderSize
from encgraph.sources.reading import Skipped
from encgraph.summaries import Quantiles, TrafficSummary
from encgraph.traffic import Traffic

SHOWN_SKIPPED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One encoder of the registry."""

    size: EncoderSize
    pixels_a_token_side: int
    min_tokens: int
    max_tokens: int
    """Tokens of the largest legal image."""
    recorded_on: tuple[str, ...]
    """Cards with a recorded curve; predictions for others are modelled."""


def listed() -> tuple[Listed, ...]:
    """Every encoder by name."""
    return tuple(
        Listed(
            size=size,
            pixels_a_token_side=size.rule.factor,
            min_tokens=size.rule.min_tokens,
            max_tokens=size.rule.max_tokens,
            recorded_on=tuple(
                c for c in cards.known() if curves.experiment(size.name) in store.experiments(c)
            ),
        )
        for size in sizes.SIZES.values()
    )


def encoders(*, as_json: bool) -> None:
    """Print the registry."""
    found = listed()
    if as_json:
        output.machine(found)
        return
    rows = [
        (
            one.size.name,
            one.size.family,
            one.size.layout,
            tabular.parameters(one.size.parameters),
            str(one.pixels_a_token_side) if one.size.rule.modality is Modality.IMAGE else "",
            f"{one.min_tokens}-{one.max_tokens}",
            ", ".join(one.recorded_on) or "none",
        )
        for one in found
    ]
    columns = ("encoder", "family", "layout", "parameters", "px", "tokens", "curve of")
    console = output.console()
    console.print(output.table(columns, rows))
    console.print(
        "px: side of an image's token in pixels; tokens: of the smallest and the largest item; curve of: "
        "cards whose times are recorded",
        style="dim",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTraffic:
    """What was asked of `traffic`."""

    source: str
    encoder: str
    count: int | None = None
    seed: int = 0


TRAFFIC_IDLE: tuple[Idle[WantedTraffic], ...] = (
    Idle(
        option="--seed",
        when=lambda wanted: wanted.count is None and not wanted.source.startswith(traffics.BUILTIN),
        why="without --count on a source that is read whole, from which nothing is drawn",
        cure="add --count, or leave it out",
    ),
)
"""What may be asked of `traffic` to no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summed:
    """A traffic summed up, for machines."""

    name: str
    source: str
    encoder: str
    summary: TrafficSummary
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]


def traffic(wanted: WantedTraffic, *, as_json: bool) -> None:
    """Read a traffic and print what it looks like."""
    size = sizes.named(wanted.encoder)
    found = traffics.read(
        wanted.source, size, count=wanted.count, seed=wanted.seed, progress=output.reading
    )
    if as_json:
        output.machine(
            Summed(
                name=found.name,
                source=found.source,
                encoder=found.encoder,
                summary=found.about(),
                skipped=found.skipped,
                notes=found.notes,
            )
        )
        return
    _show(output.console(), found)


def _show(console: Console, found: Traffic) -> None:
    summary = found.about()
    counts = f"{plural(summary.requests, 'request')}, {plural(summary.items, 'item')}"
    console.print(f"{found.name} for {found.encoder}: {counts}")
    names = [field.name for field in fields(Quantiles)]
    rows = [
        (label, *(_number(getattr(values, name)) for name in names))
        for label, values in (
            ("items a request", summary.items_per_request),
            ("tokens an item", summary.tokens_per_item),
            ("tokens a request", summary.tokens_per_request),
        )
    ]
    console.print(output.table(("", *names), rows))
    glossary.footnote(console, "p50, p90, p99")
    if summary.tokens_per_request.p99 is None:
        glossary.tail(console, f"no p99: of fewer than {LEAST_OF_P99} it is the largest")
    if summary.atoms:
        common = ", ".join(f"{a.tokens:,} ({a.share_ratio:.0%})" for a in summary.atoms)
        console.print(f"most frequent tokens an item: {common}")
    remarks(console, found)


def _number(value: float | None) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else tabular.whole(value)


def left_out(skipped: Sequence[Skipped | SkippedFile]) -> list[str]:
    """How much of a source was left out and why the first was, in one line; none if nothing was.

    >>> left_out([Skipped(path="a.png", reason="empty file"), Skipped(path="b.txt", reason="no image")])
    ["left out: 2, the first 'a.png' (empty file)"]
    """
    if not skipped:
        return []
    first = skipped[0]
    reason = first.reason.removeprefix(f"{first.path!r}").lstrip(": ")
    return [f"left out: {len(skipped):,}, the first {first.path!r} ({reason})"]


def remarks(console: Console, found: Traffic) -> None:
    """Print what was skipped and assumed."""
    if found.skipped:
        console.print(f"skipped: {len(found.skipped):,}")
    for skipped in found.skipped[:SHOWN_SKIPPED]:
        console.print(f"  {skipped.path}: {skipped.reason}")
    if len(found.skipped) > SHOWN_SKIPPED:
        console.print(f"  and {len(found.skipped) - SHOWN_SKIPPED:,} more; --json lists all")
    for sentence in found.notes:
        console.print(f"note: {sentence}")

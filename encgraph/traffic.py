"""Read traffic: requests of items, from images, tables, chats, request lists or built-in profiles.

A malformed cell or line is a mistake in what the user wrote and stops the reading with its place; an
image nobody can decode, or an item over the encoder's limits, is a fact of the traffic, kept in
`Traffic.skipped` with its reason.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from encgraph import sizes, summaries
from encgraph.errors import MOST_REQUESTS, MOST_SEED, require, whole
from encgraph.records import Item, Modality
from encgraph.sizes import EncoderSize
from encgraph.sources import profiles, reading
from encgraph.sources.reading import Found, ProgressBar, Skipped
from encgraph.summaries import TrafficSummary

BUILTIN = "builtin:"
DEFAULT_COUNT = 4_000
"""Requests drawn from a built-in profile unless a count is given."""
FIT_SHARE = 0.5
"""Of the requests, to fit on; the rest is held out."""

SHOWN_CHARS = 80
"""What is shown of a source with a name too long for a file."""
Requests = Sequence[Sequence[Item]]
SOURCES = f"a folder of images, a .csv, .jsonl or .json file, or {BUILTIN}NAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Requests of items for one encoder, and what is worth knowing about their source."""

    name: str
    source: str
    """As given to `read`."""
    encoder: str
    """Name of the size whose token rule was applied."""
    requests: tuple[tuple[Item, ...], ...]
    """`Item.request` is the index within the source, also after a split."""
    paths: tuple[tuple[str, ...], ...] = ()
    """Files, parallel to requests; empty unless every item has one."""
    arrivals_s: tuple[float, ...] = ()
    """Arrival of each request in seconds; empty where the source does not say."""
    fit_tokens: tuple[int, ...] = ()
    """Tokens of further requests to fit budgets on; only request lists have them."""
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    """Assumptions made while reading, a sentence each."""

    def __post_init__(self) -> None:
        require(all(self.requests), "every request must have at least one item")
        shape = [len(request) for request in self.requests]
        paths = [len(request) for request in self.paths]
        require(not paths or paths == shape, "paths must be parallel to requests")
        arrivals = len(self.arrivals_s)
        require(
            arrivals in (0, len(shape)),
            f"arrivals_s must have one value a request, got {arrivals} for {len(shape)}",
        )

    @property
    def items(self) -> tuple[Item, ...]:
        """All items, end to end."""
        return tuple(item for request in self.requests for item in request)

    @property
    def tokens_by_request(self) -> tuple[int, ...]:
        """Tokens of each request."""
        return tuple(sum(item.tokens for item in request) for request in self.requests)

    def about(self) -> TrafficSummary:
        """Quantiles of items and tokens, and the most frequent token counts."""
        return summaries.of(self.requests)

    def split(self, share: float, *, seed: int = 0) -> "tuple[Traffic, Traffic]":
        """Part the requests at random into those to fit on and those held out, each in order.

        Args:
            share: Share of requests to fit on, between 0 and 1; each side gets at least one.
            seed: Seed of the choice.

        Returns:
            Traffic to fit on and traffic held out; no request is in both, none is lost. What is
            said of the source as a whole (`skipped`, `notes`, `fit_tokens`) stays with both.

        Raises:
            ValueError: If the share is not between 0 and 1 or there are fewer than two requests.
        """
        total = len(self.requests)
        require(0 < share < 1, f"share must be between 0 and 1, got {share!r}")
        require(total >= 2, f"a split needs at least 2 requests, got {total!r}")
        count = min(max(round(share * total), 1), total - 1)
        order = np.random.default_rng(seed).permutation(total).tolist()
        return self.only(sorted(order[:count])), self.only(sorted(order[count:]))

    def sample(self, count: int, *, seed: int = 0) -> "Traffic":
        """Keep this many requests, chosen at random and in order; all if there are no more.

        Raises:
            ValueError: If count is no whole number of at least 1.
        """
        count = whole("count", count)
        total = len(self.requests)
        if count >= total:
            short = f"{count} requests were asked for, the source has {total}"
            return replace(self, notes=(*self.notes, short)) if count > total else self
        chosen = np.random.default_rng(seed).choice(total, size=count, replace=False)
        return self.only(sorted(chosen.tolist()))

    def only(self, indices: Sequence[int]) -> "Traffic":
        """Keep the requests at these indices, in the order given."""
        return replace(
            self,
            requests=tuple(self.requests[i] for i in indices),
            paths=tuple(self.paths[i] for i in indices) if self.paths else (),
            arrivals_s=tuple(self.arrivals_s[i] for i in indices) if self.arrivals_s else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A traffic in two: what budgets are fitted on and what they are judged on."""

    fit: Sequence[Sequence[Item]]
    held_out: Traffic
    how: str
    """How it was parted, one sentence."""


def parted(traffic: Traffic, *, seed: int = 0) -> Parts:
    """Part a traffic for fitting and judging.

    A request list brings requests to fit on; else half is held out; one request serves as both.
    """
    requests, single = traffic.requests, all(len(r) == 1 for r in traffic.requests)
    if traffic.fit_tokens and single:
        rule = sizes.named(traffic.encoder).rule
        fit = [[sizes.item_of(t, rule)] for t in traffic.fit_tokens]
        how = f"fitted on the list's {len(fit):,} requests for fitting, judged on its {len(requests):,}"
        return Parts(fit=fit, held_out=traffic, how=how)
    if len(requests) < 2:
        how = "fitted and judged on the same request, since there is only one"
        return Parts(fit=requests, held_out=traffic, how=how)
    kept, held_out = traffic.split(FIT_SHARE, seed=seed)
    how = (
        f"fitted on {len(kept.requests):,} request{'s' * (len(kept.requests) > 1)}, judged on the other "
        f"{len(held_out.requests):,} (seed {seed})"
    )
    return Parts(fit=kept.requests, held_out=held_out, how=how)


_READERS: Mapping[str, Callable[[Path, EncoderSize, ProgressBar], Found]] = {
    ".csv": reading.from_table,
    ".jsonl": reading.from_chats,
    ".json": reading.from_request_list,
}


def _silent(values: Iterable[Any]) -> Iterable[Any]:
    return values


def read(
    source: str | Path,
    size: EncoderSize,
    *,
    count: int | None = None,
    seed: int = 0,
    progress: ProgressBar = _silent,
) -> Traffic:
    """Read traffic for an encoder.

    Args:
        source: A folder of images, a `.csv`, `.jsonl` or `.json` file, or `builtin:NAME`.
        size: The encoder, whose token rule turns pixels into tokens.
        count: Requests to draw or to keep; all of a file unless given, 4,000 of a built-in profile.
        seed: Seed of whatever is drawn.
        progress: Wraps the files, rows or lines while they are read.

    Returns:
        At least one request; `skipped` has what could not be read, `notes` what was assumed.

    Raises:
        TypeError: If the source is no text or path.
        ValueError: If the source does not exist, is malformed or holds nothing that can be read.
    """
    size = sizes.given(size)
    seed = whole("seed", seed, least=0, most=MOST_SEED)
    count = None if count is None else whole("count", count, most=MOST_REQUESTS)
    if not isinstance(source, str | Path):
        raise TypeError(f"source must be {SOURCES}, got {source!r:.60}")
    text = str(source)
    require(bool(text), f"source must be {SOURCES}, got ''")  # a path would be the folder one is in
    if text.startswith(BUILTIN):
        _check_modality(text, size)
        return _drawn(text, size, count or DEFAULT_COUNT, seed)
    path = Path(source)
    try:
        reader = _reader(path, size)
        found = reader(path, size, progress)
    except OSError as error:
        shown = text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."
        raise ValueError(f"source {shown!r} cannot be read: {error.strerror}") from error
    traffic = _named(path, size, found)
    return traffic if count is None else traffic.sample(count, seed=seed)


def _check_modality(source: str, size: EncoderSize) -> None:
    """Only a table can hold other items than images, in a column that `reading` asks for."""
    is_table = source.lower().endswith(".csv")
    require(size.rule.modality is Modality.IMAGE or is_table, reading.no_images(source, size))


def _reader(path: Path, size: EncoderSize) -> Callable[[Path, EncoderSize, ProgressBar], Found]:
    """How a source is read; asking for one with too long a name is an `OSError`."""
    text, is_folder = str(path), path.is_dir()
    if not path.exists():
        near = f"; did you mean {BUILTIN + text!r}" if text in profiles.PROFILE_NAMES else ""
        raise ValueError(f"source {text!r} does not exist; give {SOURCES}{near}")
    suffix = path.suffix.lower()
    require(is_folder or suffix in _READERS, f"source must be {SOURCES}, got {text!r}")
    _check_modality(text, size)
    return reading.from_folder if is_folder else _READERS[suffix]


def _drawn(source: str, size: EncoderSize, count: int, seed: int) -> Traffic:
    name = source.removeprefix(BUILTIN)
    notes = profiles.notes(profiles.load(name))
    requests = profiles.draw(name, size.rule, count=count, seed=seed)
    return Traffic(name=name, source=source, encoder=size.name, requests=requests, notes=notes)


def _named(path: Path, size: EncoderSize, found: Found) -> Traffic:
    what = size.rule.modality
    require(bool(found.requests), f"{str(path)!r} holds no {what} that can be read{_first(found)}")
    return Traffic(
        name=(path.resolve().name or str(path)) if path.is_dir() else path.stem,
        source=str(path),
        encoder=size.name,
        requests=found.requests,
        paths=found.paths,
        arrivals_s=found.arrivals_s,
        fit_tokens=found.fit_tokens,
        skipped=found.skipped,
        notes=found.notes,
    )


def _first(found: Found) -> str:
    if not found.skipped:
        return "; " + "; ".join(found.notes or ("it is empty",))
    first = found.skipped[0]
    return f"; {len(found.skipped)} skipped, the first: {first.path}: {first.reason}"

"""Read the requests to run and those to fit budgets on; torch is loaded to decode pixels alone."""

from dataclasses import dataclass, replace

from encgraph import traffic as traffics
from encgraph.cli import output
from encgraph.errors import require
from encgraph.sizes import EncoderSize
from encgraph.sources import reading
from encgraph.sources.reading import Skipped
from encgraph.traffic import BUILTIN, Requests, Traffic

CPU_COUNT = 16
"""Requests of a built-in profile run on a CPU unless a count is given."""
CARD_COUNT = 300
FIT_COUNT = 2000
"""Requests of a built-in profile that budgets are fitted on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficToRun:
    """Requests to run, and requests to fit on."""

    traffic: Traffic
    fit_on: Requests


def read(source: str, size: EncoderSize, *, count: int | None, seed: int) -> Traffic:
    """Read requests to run; a built-in profile gives few, as for a CPU, unless told."""
    if count is None and source.startswith(BUILTIN):
        count = CPU_COUNT
    return traffics.read(source, size, count=count, seed=seed, progress=output.reading)


def ready(traffic: Traffic, size: EncoderSize, *, count: int | None, seed: int) -> Traffic:
    """What can be decoded of the requests read; of a built-in profile this many, if a count is given."""
    if count is not None and traffic.source.startswith(BUILTIN):
        traffic = traffics.read(traffic.source, size, count=count, seed=seed)
    return decodable(traffic, size)


def decodable(traffic: Traffic, size: EncoderSize) -> Traffic:
    """Leave out requests with a file whose header can be read but whose pixels cannot, said first.

    Raises:
        ValueError: If nothing is left.
    """
    if not traffic.paths:
        return traffic
    from encgraph.encoders import inputs

    broken: dict[str, str] = {}
    for path in output.bar(dict.fromkeys(p for paths in traffic.paths for p in paths), "decode"):
        try:
            inputs.from_files([path], size)
        except ValueError as error:
            broken[path] = str(error)
    if not broken:
        return traffic
    lacking = [sum(path in broken for path in paths) for paths in traffic.paths]
    kept = [index for index, count in enumerate(lacking) if not count]
    pairs = zip(traffic.paths, lacking, strict=True)
    lost = [len(paths) - count for paths, count in pairs if count]
    first = next(iter(broken.values()))
    require(
        bool(kept),
        f"{traffic.source!r} holds no request whose images can all be decoded; the first: {first}",
    )
    return replace(
        traffic.only(kept),
        skipped=(
            *(Skipped(path=path, reason=reason) for path, reason in broken.items()),
            *traffic.skipped,
        ),
        notes=(*traffic.notes, *reading.left_out(lost)),
    )


def to_run(traffic: Traffic, size: EncoderSize, *, seed: int) -> TrafficToRun:
    """All requests to run; a profile is fitted on a draw of its own, the rest on itself."""
    if traffic.source.startswith(BUILTIN):
        other = traffics.read(traffic.source, size, count=FIT_COUNT, seed=seed + 1)
        said = f"budgets fitted on {FIT_COUNT:,} other draws of the profile (seed {seed + 1})"
        fit_on: Requests = other.requests
    elif traffic.fit_tokens:
        parts = traffics.parted(traffic, seed=seed)
        fit_on, said = parts.fit, parts.how
    else:
        fit_on, said = traffic.requests, "budgets fitted on the very requests that were run"
    return TrafficToRun(traffic=replace(traffic, notes=(*traffic.notes, said)), fit_on=fit_on)


def check_enough(traffic: Traffic) -> None:
    """Refuse to fit on the only request there is to measure.

    Raises:
        ValueError: If it is the only one.
    """
    require(
        len(traffic.requests) > 1 or bool(traffic.fit_tokens),
        "bench needs at least 2 requests, one to fit on and one to measure, got 1; give --fit-on",
    )


def to_compare(
    traffic: Traffic, size: EncoderSize, *, fit_on: Traffic | None, seed: int
) -> TrafficToRun:
    """Requests to measure, disjoint from those to fit on."""
    if fit_on is not None:
        count = len(fit_on.requests)
        drawn = f" (seed {seed + 1})" if fit_on.source.startswith(BUILTIN) else ""
        said = f"budgets fitted on {fit_on.source}, {count:,} requests{drawn}"
        if fit_on.requests == traffic.requests:
            said += ": the very requests that are measured"
        noted = replace(traffic, notes=(*traffic.notes, said))
        return TrafficToRun(traffic=noted, fit_on=fit_on.requests)
    if traffic.source.startswith(BUILTIN):
        return to_run(traffic, size, seed=seed)
    check_enough(traffic)
    parts = traffics.parted(traffic, seed=seed)
    noted = replace(parts.held_out, notes=(*traffic.notes, parts.how))
    return TrafficToRun(traffic=noted, fit_on=parts.fit)

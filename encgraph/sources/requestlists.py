"""Read request lists: JSON files of patch grids, as measurements are made on."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encgraph.errors import require
from encgraph.sizes import Grid, TokenRule, image_grid

IN_PIXELS = "sides in pixels go into a CSV with columns width,height"
"""Where sizes belong that are no patch grids."""
PIXEL_LIKE = 4
"""Sides of at least so many times a patch, all of them multiples of it, are likely in pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestList:
    """Grids by request, and token counts of further requests to fit budgets on."""

    requests: tuple[tuple[Grid, ...], ...]
    fit_tokens: tuple[int, ...] = ()
    """Tokens a request; those requests are not among `requests`."""
    notes: tuple[str, ...] = ()
    """What the numbers are taken for, a sentence each."""


def read(path: Path, rule: TokenRule) -> RequestList:
    """Read `{"requests": [[[h, w], ...], ...], "fit_tokens": [...]}`; other keys are ignored.

    Args:
        path: JSON file.
        rule: Grids must be what its processor can give.

    Raises:
        ValueError: If it is no such list or a grid is impossible; says which and why.
    """
    try:
        values: Any = json.loads(path.read_text(encoding="utf-8-sig"))
        return _parsed(values, rule)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise ValueError(f"{path.name}: {place}: must be JSON: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} must be UTF-8 text: {error.reason}") from error
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error


def _parsed(values: Any, rule: TokenRule) -> RequestList:
    require(
        isinstance(values, dict) and isinstance(values.get("requests"), list),
        "must be an object with 'requests', a list of requests, each a list of [h, w] in patches; "
        f"{IN_PIXELS}",
    )
    require(
        not rule.is_cut,
        "must not be of an encoder whose images are cut into tiles, since [h, w] does not say into how "
        "many; give a CSV of sides",
    )
    fit = values.get("fit_tokens", [])
    require(isinstance(fit, list), f"fit_tokens must be a list, got {fit!r}")
    for index, tokens in enumerate(fit):
        require(
            _is_count(tokens), f"fit_tokens[{index}] must be a whole number over 0, got {tokens!r}"
        )
    requests = tuple(
        _request(grids, f"requests[{index}]", rule)
        for index, grids in enumerate(values["requests"])
    )
    return RequestList(requests=requests, fit_tokens=tuple(fit), notes=_notes(requests, rule))


def _notes(requests: Sequence[Sequence[Grid]], rule: TokenRule) -> tuple[str, ...]:
    """Say what the largest grid is in pixels, and that grids look like pixels where they do."""
    grids = {grid for request in requests for grid in request}
    if not grids:
        return ()
    _, high, wide = max(grids, key=lambda grid: (grid.h * grid.w, grid))
    tokens = rule.tokens(high * wide // rule.merge_area)
    said = (
        f"the list has patch grids [h, w], sides after the resize: the largest, {[high, wide]!r}, is an "
        f"image of {wide * rule.patch:,} x {high * rule.patch:,} pixels and {tokens:,} tokens"
    )
    sides = [side for grid in grids for side in (grid.h, grid.w)]
    is_likely = all(s % rule.patch == 0 and s >= PIXEL_LIKE * rule.patch for s in sides)
    doubt = f"all sides are multiples of {rule.patch}, as those in pixels often are; {IN_PIXELS}"
    return (said, doubt) if is_likely else (said,)


def _request(grids: Any, place: str, rule: TokenRule) -> tuple[Grid, ...]:
    require(
        isinstance(grids, list) and bool(grids),
        f"{place} must be a list of [h, w] in patches, got {grids!r:.60}; {IN_PIXELS}",
    )
    return tuple(_grid(sides, f"{place}[{index}]", rule) for index, sides in enumerate(grids))


def _grid(sides: Sequence[int], place: str, rule: TokenRule) -> Grid:
    require(
        isinstance(sides, list) and len(sides) == 2 and all(_is_count(side) for side in sides),
        f"{place} must be [h, w] in patches, got {sides!r:.60}",
    )
    high, wide = sides
    low, top = (pixels // rule.patch**2 for pixels in (rule.min_pixels, rule.max_pixels))
    require(
        low <= high * wide <= top,
        f"{place} must have {low} to {top} patches, got {sides!r} ({high * wide} patches)"
        + (f"; {IN_PIXELS}" if high * wide > top else ""),
    )
    divides = high % rule.merge == 0 and wide % rule.merge == 0
    require(divides, f"{place}: sides must be multiples of {rule.merge}, got {sides!r}")
    try:
        given = image_grid(wide * rule.patch, high * rule.patch, rule)
    except ValueError as error:
        raise ValueError(f"{place}: sides {sides!r}: {error}") from error
    require(
        given == (1, high, wide),
        f"{place}: the processor never gives {sides!r}; the nearest is {[given.h, given.w]!r}",
    )
    return given


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1

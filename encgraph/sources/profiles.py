"""Draw requests from the built-in traffic profiles: published distributions kept as small tables.

`data/traffic/README.md` has the sources, licences and known biases; every draw is seeded.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from encgraph import codec, datadir, sizes
from encgraph.errors import MOST_REQUESTS, require, whole
from encgraph.records import Item, Modality
from encgraph.sizes import Grid, TokenRule

PROFILE_NAMES = ("servegen", "coco", "receipts", "catalogue", "phone", "mix")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientWindow:
    """What one client sent in one window of the day."""

    client: int
    requests: int
    """Volume of the window, text-only requests included."""
    images: tuple[tuple[int, int], ...]
    """(images a request, share per million)."""
    tokens: tuple[tuple[int, int], ...]
    """(source tokens an image, share per million)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilePart:
    """One profile within a mix."""

    profile: str
    weight: int
    only_alone: bool = False
    """Drawn only for requests with one image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A published distribution and where it is from; exactly one of its three laws is there."""

    schema: int
    name: str
    source: str
    commit: str
    licence: str
    evidence: str
    derivation: str
    bias: str
    sizes: tuple[tuple[int, int, int], ...] = ()
    """(width, height, images); a request has one image."""
    windows: tuple[ClientWindow, ...] = ()
    """Client windows, drawn by volume."""
    pixels_a_token: int = 0
    """Pixels behind one source token of the windows; 0 for the other laws."""
    images: tuple[tuple[int, int], ...] = ()
    """(images a request, weight) of a mix."""
    parts: tuple[ProfilePart, ...] = ()
    """What a mix draws its images from."""

    def __post_init__(self) -> None:
        laws = [name for name in ("sizes", "windows", "parts") if getattr(self, name)]
        require(len(laws) == 1, f"profile {self.name!r} must have one law, got {laws!r}")


@dataclass(frozen=True, slots=True)
class _Shape:
    grid: Grid
    width: int = 0
    height: int = 0


@dataclass(frozen=True, slots=True)
class _Draw:
    """Images of `counts[i]` each for request i, as indices into shapes, end to end."""

    counts: Sequence[int]
    kinds: Sequence[int]
    shapes: Sequence[_Shape]


def load(name: str, *, root: Path | None = None) -> Profile:
    """Read a built-in profile.

    Args:
        name: One of `PROFILE_NAMES`.
        root: Folder that holds `traffic/`; the package's own data unless given.

    Raises:
        ValueError: If there is none of that name; suggests the nearest.
    """
    if name not in PROFILE_NAMES:
        near = get_close_matches(name.lower(), PROFILE_NAMES, n=1, cutoff=0.4)
        hint = f"; did you mean {'builtin:' + near[0]!r}" if near else ""
        known = ", ".join(f"builtin:{one}" for one in PROFILE_NAMES)
        raise ValueError(f"profile must be one of {known}, got {'builtin:' + name!r}{hint}")
    path = (datadir.root() if root is None else root) / "traffic" / f"{name}.json"
    require(path.is_file(), f"profile {name!r} needs {str(path)!r}, which is missing; reinstall")
    values: Any = json.loads(path.read_text(encoding="utf-8"))
    return codec.decode(Profile, values)


def draw(
    name: str, rule: TokenRule, *, count: int, seed: int = 0, root: Path | None = None
) -> tuple[tuple[Item, ...], ...]:
    """Draw requests from a built-in profile; the same seed gives the same requests.

    Args:
        name: One of `PROFILE_NAMES`.
        rule: The processor's token rule.
        count: Requests to draw.
        seed: Seed of the draw.
        root: Folder that holds `traffic/`; the package's own data unless given.

    Returns:
        Items by request; the index of a request is its place in the draw.

    Raises:
        ValueError: If there is no such profile, the rule is none of images, or the count is out of range.
    """
    count = whole("count", count, most=MOST_REQUESTS)
    require(
        rule.modality is Modality.IMAGE,
        f"{'builtin:' + name!r} holds images, and the encoder takes {rule.modality}",
    )
    profile = load(name, root=root)
    rng = np.random.default_rng(seed)
    if profile.windows:
        drawn = _from_windows(profile, rule, count, rng)
    elif profile.parts:
        drawn = _from_parts(profile, rule, count, rng, lambda part: load(part, root=root))
    else:
        drawn = _from_sizes(profile, rule, count, rng)
    return _requests(drawn, rule)


def notes(profile: Profile) -> tuple[str, ...]:
    """Say where a profile is from, under which licence, and how it is biased."""
    origin = f"{profile.name}: {profile.source} @ {profile.commit}, {profile.licence}"
    if profile.parts:
        licences = profile.licence.removeprefix("as theirs: ")
        origin = f"{profile.name}: {profile.source}, under their licences: {licences}"
    about = [origin, f"evidence: {profile.evidence}", f"known bias: {profile.bias}"]
    if profile.windows:
        about.append("sides are not published: each image has a near-square legal grid")
    return tuple(about)


def converted_grid(tokens: int, pixels_a_token: int, rule: TokenRule) -> Grid:
    """Grid that another encoder's processor gives a near-square picture of so many source tokens.

    Height and width are rounded to nearest, not up as in `sizes.near_square_grid`: the count is
    an estimate already, so its mean should not drift.

    >>> converted_grid(1196, 28 * 28, sizes.QWEN3_VL_RULE)
    Grid(t=1, h=60, w=62)
    """
    return sizes.image_grid(*_picture(tokens, pixels_a_token, rule), rule)


def _picture(tokens: int, pixels_a_token: int, rule: TokenRule) -> tuple[int, int]:
    """Sides of a near-square picture of so many source tokens."""
    tokens = max(rule.min_tokens, round(tokens * pixels_a_token / rule.factor**2))
    high = round(math.sqrt(tokens))
    return round(tokens / high) * rule.factor, high * rule.factor


def _converted(tokens: int, pixels_a_token: int, rule: TokenRule) -> _Shape:
    """Grid of such a picture, with its sides where the grid does not give them."""
    grid = converted_grid(tokens, pixels_a_token, rule)
    return _Shape(grid, *_picture(tokens, pixels_a_token, rule)) if rule.is_cut else _Shape(grid)


def _requests(drawn: _Draw, rule: TokenRule) -> tuple[tuple[Item, ...], ...]:
    made = []
    kinds = iter(drawn.kinds)
    for request, images in enumerate(drawn.counts):
        shapes = [drawn.shapes[next(kinds)] for _ in range(images)]
        made.append(
            tuple(
                sizes.item(s.grid, rule, request=request, width=s.width, height=s.height)
                for s in shapes
            )
        )
    return tuple(made)


def _choose(weights: Sequence[int], count: int, rng: Generator) -> "np.ndarray[Any, Any]":
    """Indices drawn by weight."""
    shares = np.asarray(weights, dtype=float)
    return rng.choice(len(shares), size=count, p=shares / shares.sum())


def _shapes(profile: Profile, rule: TokenRule) -> list[_Shape]:
    return [_Shape(sizes.image_grid(w, h, rule), w, h) for w, h, _ in profile.sizes]


def _from_sizes(profile: Profile, rule: TokenRule, count: int, rng: Generator) -> _Draw:
    kinds = _choose([images for *_, images in profile.sizes], count, rng)
    return _Draw([1] * count, kinds.tolist(), _shapes(profile, rule))


def _from_windows(profile: Profile, rule: TokenRule, count: int, rng: Generator) -> _Draw:
    """A window by volume, images a request from its counts, tokens of each image independently."""
    distinct = sorted({tokens for window in profile.windows for tokens, _ in window.tokens})
    place = {tokens: index for index, tokens in enumerate(distinct)}
    chosen = _choose([window.requests for window in profile.windows], count, rng)
    counts = np.zeros(count, dtype=int)
    kinds: list[list[int]] = [[]] * count
    for index in np.unique(chosen):
        window, mine = profile.windows[index], np.flatnonzero(chosen == index)
        numbers, shares = zip(*window.images, strict=True)
        counts[mine] = np.asarray(numbers)[_choose(shares, len(mine), rng)]
        tokens, shares = zip(*window.tokens, strict=True)
        picks = np.asarray([place[t] for t in tokens])[_choose(shares, counts[mine].sum(), rng)]
        for request, part in zip(mine, np.split(picks, np.cumsum(counts[mine])[:-1]), strict=True):
            kinds[request] = part.tolist()
    shapes = [_converted(t, profile.pixels_a_token, rule) for t in distinct]
    return _Draw(counts.tolist(), [kind for part in kinds for kind in part], shapes)


def _from_parts(
    profile: Profile,
    rule: TokenRule,
    count: int,
    rng: Generator,
    part_of: Callable[[str], Profile],
) -> _Draw:
    """Images a request by weight, then a part for each image, then one of the part's sizes."""
    numbers, weights = zip(*profile.images, strict=True)
    counts = np.asarray(numbers)[_choose(weights, count, rng)]
    alone = np.repeat(counts == 1, counts)
    parts = np.empty(len(alone), dtype=int)
    for mask, hidden in ((alone, False), (~alone, True)):
        shares = [0 if hidden and part.only_alone else part.weight for part in profile.parts]
        parts[mask] = _choose(shares, int(mask.sum()), rng)
    kinds = np.empty(len(alone), dtype=int)
    shapes: list[_Shape] = []
    for index, part in enumerate(profile.parts):
        table, mask = part_of(part.profile), parts == index
        drawn = _choose([images for *_, images in table.sizes], int(mask.sum()), rng)
        kinds[mask] = drawn + len(shapes)
        shapes += _shapes(table, rule)
    return _Draw(counts.tolist(), kinds.tolist(), shapes)

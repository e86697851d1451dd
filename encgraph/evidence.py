"""What notebooks draw from: a card's recorded measurements, or this machine's own, measured again.

`again=True` is the notebooks' `REMEASURE`: it needs a card, takes minutes, and is never the default, so
that a figure shows the same wherever it is drawn. It begins nothing new once its time is over and gives
what was measured until then. Nothing is written; `encgraph bench` and `encgraph record` keep what they
measure, and measure all of it.
"""

import warnings
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from encgraph import bars, cards, curves, handles, readings, regimes, sizes, store, traffic
from encgraph.curves import Kernels
from encgraph.errors import require
from encgraph.results import Measurement
from encgraph.traffic import Traffic

FIT_REQUESTS = 2000
REQUESTS = 300
"""Requests that a bench measures again, if its time allows."""
LARGEST = 8192
"""Tokens of the largest budget of a bench."""
SECONDS = 150.0
"""A bench measured again begins no request later than this after its start, captures included."""
CURVE_SECONDS = 30.0
"""Likewise a curve, whose budgets come smallest first."""
LEAST = len(regimes.SIZE_EDGES) + 1
"""Requests and budgets that are measured however long they take: a request of each size regime."""


def bench(
    name: str, *, on: str = "h200", encoder: str = "qwen3-vl-8b", again: bool = False
) -> tuple[Measurement, ...]:
    """Lines of a bench of a built-in traffic.

    Args:
        name: The traffic, such as "servegen".
        on: Card whose record is read.
        encoder: What is measured again.
        again: Measure on this machine's card, every strategy on record, instead of reading; as many
            requests as `SECONDS` allow, each the median of three runs.

    Raises:
        ValueError: If there is no such record, or no card to measure on.
    """
    recorded = store.load(on, f"bench-{name}")
    return _bench(name, encoder, on, readings.summaries(recorded)) if again else recorded


def curve(encoder: str, *, on: str = "h200", again: bool = False) -> tuple[Measurement, ...]:
    """Points of an encoder's curve, of the attention that its prices come from.

    Args:
        encoder: A name of `sizes.SIZES`.
        on: Card whose record is read.
        again: Record on this machine's card instead of reading, as many budgets as
            `CURVE_SECONDS` allow.

    Raises:
        ValueError: If nothing is on record, or there is no card to measure on.
    """
    size = sizes.named(encoder)
    if again:
        return _curve(encoder)
    points = readings.preferred(cards.recorded(size, on))
    require(bool(points), f"no curve of {encoder!r} is on record for {on!r}; `encgraph record`")
    return points


def first_tokens(encoder: str, *, on: str = "h200") -> tuple[Measurement, ...]:
    """Times to first token of a model with that encoder; none where none are on record."""
    name = f"{handles.FIRST_TOKEN}{encoder}"
    return store.load(on, name) if name in store.experiments(on) else ()


def claims(statements: Mapping[str, bool], *, again: bool = False) -> None:
    """Hold statements about measurements against them.

    They are made of what is on record. Another card, or this one at work for others, may differ, and says so.

    Args:
        statements: For people, and whether the measurements bear each out.
        again: Whether they are this machine's own; then a statement that fails is a warning.

    Raises:
        AssertionError: If one does not hold of the record.
    """
    failed = [text for text, holds in statements.items() if not holds]
    if failed and not again:
        raise AssertionError(f"the record does not bear out that {'; that '.join(failed)}")
    for text in failed:
        warnings.warn(f"not so in what was measured here: {text}", stacklevel=2)


def kernels(points: Sequence[Measurement]) -> Kernels:
    """The one attention and body that points of `curve` are of.

    Raises:
        ValueError: If they have no replays.
    """
    found = curves.recorded(points)
    require(bool(found), "these points have no replays")
    return found[0]


def _card() -> tuple[str, str]:
    """Device and backend to measure on."""
    import torch

    require(
        torch.cuda.is_available(),
        "measuring again needs a CUDA card and there is none; set REMEASURE = False",
    )
    return "cuda", "cuda"


def _each_size_first(drawn: Traffic) -> Traffic:
    """The same requests, the first of each size regime before the others: few then show them all."""
    sized = [bisect_left(regimes.SIZE_EDGES, tokens) for tokens in drawn.tokens_by_request]
    first = sorted({sized.index(regime) for regime in sized})
    return drawn.only([*first, *(i for i in range(len(sized)) if i not in first)])


def _bench(name: str, encoder: str, on: str, wanted: Iterable[str]) -> tuple[Measurement, ...]:
    device, backend = _card()
    progress = bars.until(SECONDS, least=LEAST)
    import torch

    from encgraph import bench as benches
    from encgraph import strategies, systems

    size = sizes.named(encoder)
    source = f"{traffic.BUILTIN}{name}"
    priced = systems.prices(size, on=on)
    setting = systems.Setting(
        size=size,
        device=torch.device(device),
        dtype=torch.bfloat16,
        backend=backend,
        costs=priced(strategies.ENCGRAPH_PLAIN),
        priced=priced,
        fit_on=traffic.read(source, size, count=FIT_REQUESTS, seed=1).requests,
        largest=LARGEST,
    )
    chosen = [strategies.named(n) for n in wanted if n in strategies.STRATEGIES]
    drawn = _each_size_first(traffic.read(source, size, count=REQUESTS))
    return tuple(benches.run(drawn, chosen, setting, repeats=3, progress=progress))


def _curve(encoder: str) -> tuple[Measurement, ...]:
    device, backend = _card()
    progress = bars.until(CURVE_SECONDS, least=LEAST)
    import torch

    from encgraph import recording
    from encgraph.encoders import registry

    size = sizes.named(encoder)
    built = registry.named(encoder, device=device, dtype=torch.bfloat16)
    return tuple(recording.record(built, size, backend=backend, progress=progress))

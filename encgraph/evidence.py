"""What notebooks draw from: a card's recorded measurements, or this machine's own, measured again.

`again=True` is the notebooks' `REMEASURE`: it needs a card, takes minutes, and is never the default, so
that a figure shows the same wherever it is drawn. Nothing is written; `encgraph bench` and `encgraph
record` keep what they measure.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from encgraph import cards, curves, handles, readings, sizes, store, traffic
from encgraph.curves import Kernels
from encgraph.errors import require
from encgraph.results import Measurement

FIT_REQUESTS = 2000
LARGEST = 8192
"""Tokens of the largest budget of a bench."""


def bench(
    name: str, *, on: str = "h200", encoder: str = "qwen3-vl-8b", again: bool = False
) -> tuple[Measurement, ...]:
    """Lines of a bench of a built-in traffic.

    Args:
        name: The traffic, such as "servegen".
        on: Card whose record is read.
        encoder: What is measured again.
        again: Measure on this machine's card, every strategy on record, instead of reading.

    Raises:
        ValueError: If there is no such record, or no card to measure on.
    """
    recorded = store.load(on, f"bench-{name}")
    return _bench(name, encoder, readings.summaries(recorded)) if again else recorded


def curve(encoder: str, *, on: str = "h200", again: bool = False) -> tuple[Measurement, ...]:
    """Points of an encoder's curve, of the attention that its prices come from.

    Args:
        encoder: A name of `sizes.SIZES`.
        on: Card whose record is read.
        again: Record on this machine's card instead of reading.

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


def kernels(points: Sequence[Measurement]) -> Kernels:
    """The one attention and body that points of `curve` are of.

    Raises:
        ValueError: If they have no replays.
    """
    found = curves.recorded(points)
    require(bool(found), "these points have no replays")
    return found[0]


def _card() -> str:
    import torch

    require(
        torch.cuda.is_available(),
        "measuring again needs a CUDA card and there is none; set REMEASURE = False",
    )
    return "cuda"


def _bar(values: Iterable[Any], about: str = "record") -> Iterable[Any]:
    """Progress: a bar of the notebook in JupyterLab or of a terminal, nothing in a log."""
    from tqdm.auto import tqdm

    shown: Iterable[Any] = tqdm(values, desc=about, leave=False, disable=None)
    return shown


def _bench(name: str, encoder: str, wanted: Iterable[str]) -> tuple[Measurement, ...]:
    device = _card()
    import torch

    from encgraph import bench as benches
    from encgraph import strategies
    from encgraph.systems import Setting

    size = sizes.named(encoder)
    source = f"{traffic.BUILTIN}{name}"
    setting = Setting(
        size=size,
        device=torch.device(device),
        dtype=torch.bfloat16,
        backend="cuda",
        costs=cards.price(size),
        fit_on=traffic.read(source, size, count=FIT_REQUESTS, seed=1).requests,
        largest=LARGEST,
    )
    chosen = [strategies.named(n) for n in wanted if n in strategies.STRATEGIES]
    drawn = traffic.read(source, size, count=300)
    return tuple(benches.run(drawn, chosen, setting, progress=_bar))


def _curve(encoder: str) -> tuple[Measurement, ...]:
    device = _card()
    import torch

    from encgraph import recording
    from encgraph.encoders import registry

    size = sizes.named(encoder)
    built = registry.named(encoder, device=device, dtype=torch.bfloat16)
    return tuple(recording.record(built, size, progress=_bar))

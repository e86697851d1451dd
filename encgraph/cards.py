"""The cost model of an encoder on a card: from its recorded curve, or modelled and saying so."""

from dataclasses import replace

from encgraph import costs, curves, sizes, store
from encgraph.costs import Costs
from encgraph.curves import Kernels
from encgraph.errors import require
from encgraph.results import Measurement
from encgraph.sizes import EncoderSize

PREFERRED = ("measured", "fa3", "flash", "cudnn")
"""Attentions by the speed seen on an H200, for when none is asked for; "measured" is at least the best."""


def known() -> tuple[str, ...]:
    """Cards with recorded curves."""
    return tuple(
        gpu
        for gpu in store.gpus()
        if any(name.startswith(curves.experiment("")) for name in store.experiments(gpu))
    )


def price(
    size: EncoderSize,
    *,
    on: str = "h200",
    attention: str = "auto",
    compiled: bool = False,
    fused: bool = False,
) -> Costs:
    """Cost model of an encoder on a card.

    Args:
        size: The encoder.
        on: A card of `known()`, in letters of either case.
        attention: Kernels by name; "auto" takes the fastest on record.
        compiled: Whether the repeated block is compiled.
        fused: Whether its passes are joined by hand as well; priced as compiled where not recorded.

    Returns:
        The recorded curve's fit; without one, arithmetic whose source says "modelled".

    Raises:
        ValueError: If the card is unknown, that attention was not recorded on it, or the size is none.
    """
    size, cards = sizes.given(size), known()
    on = on.lower() if isinstance(on, str) else on
    require(
        isinstance(on, str) and (on in cards or not cards),
        f"card must be {' or '.join(cards)}, got {on!r}; `encgraph record` makes a curve",
    )
    chosen = bodies(size, on, compiled=compiled, fused=fused)
    if not chosen:
        return replace(costs.modelled(size), source=_modelled(size, on, compiled))
    return curves.fit(recorded(size, on), size, _choose(chosen, attention))


def recorded(size: EncoderSize, on: str) -> tuple[Measurement, ...]:
    """The points on record for an encoder on a card; none if it was never recorded."""
    name = curves.experiment(sizes.given(size).name)
    if on not in store.gpus() or name not in store.experiments(on):
        return ()
    return store.load(on, name)


def kernels(size: EncoderSize, on: str) -> list[Kernels]:
    """Attention and bodies on record for an encoder on a card."""
    return curves.recorded(recorded(size, on))


def bodies(size: EncoderSize, on: str, *, compiled: bool, fused: bool = False) -> list[Kernels]:
    """The kernels on record of one body; those merely compiled where the fused was not recorded."""
    alike = [k for k in kernels(size, on) if k.compiled == compiled]
    return [k for k in alike if k.fused == fused] or [k for k in alike if not k.fused]


def _choose(kernels: list[Kernels], attention: str) -> Kernels:
    names = [k.attention for k in kernels]
    if attention == "auto":
        attention = next((name for name in PREFERRED if name in names), names[0])
    require(attention in names, f"attention must be one on record, {names}, got {attention!r}")
    return kernels[names.index(attention)]


def _modelled(size: EncoderSize, on: str, compiled: bool) -> str:
    body = " with a compiled block" if compiled else ""
    return f"modelled from arithmetic: no curve of {size.name}{body} is on record for {on}"

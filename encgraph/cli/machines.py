"""Choose where an encoder runs: backend, device, dtype, and whose costs its packing goes by."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from encgraph import cards, costs, meters, sizes, store, systems
from encgraph.cli.options import Backend, Body
from encgraph.costs import Costs
from encgraph.encoders import registry
from encgraph.encoders.protocol import Encoder
from encgraph.errors import require
from encgraph.sizes import EncoderSize
from encgraph.strategies import Strategy

DEFAULT_CARD = "h200"
STAND_IN = {"qwen3-vl-tiny": "qwen3-vl-8b"}
"""Encoders made for a CPU, and whose costs they are planned and predicted with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where an encoder runs."""

    backend: Backend
    device: torch.device
    dtype: torch.dtype

    @property
    def repeats(self) -> int:
        """Timed runs a request unless told otherwise; few on a CPU, which proves no latency."""
        return 5 if self.backend == "cuda" else 1

    @property
    def said(self) -> str:
        """In words."""
        dtype = str(self.dtype).removeprefix("torch.")
        if self.backend == "cuda":
            return f"backend cuda on {torch.cuda.get_device_name()}, {dtype}"
        return f"backend reference on the CPU, {dtype}: right results, no statement about a card"


def chosen(backend: Backend | None) -> Machine:
    """The backend asked for, else cuda where there is a card.

    Raises:
        ValueError: If cuda is asked for and there is no card.
    """
    has_card = torch.cuda.is_available()
    backend = backend or ("cuda" if has_card else "reference")
    require(
        backend == "reference" or has_card,
        "backend 'cuda' needs an NVIDIA GPU, torch sees none; use --backend reference, "
        "or see what is missing with `encgraph doctor`",
    )
    if backend == "cuda":
        return Machine(backend=backend, device=torch.device("cuda"), dtype=torch.bfloat16)
    return Machine(backend=backend, device=torch.device("cpu"), dtype=torch.float32)


def built(
    size: EncoderSize, machine: Machine, *, body: Body, attention: str = "auto", seed: int = 0
) -> Encoder:
    """A published size with random weights, its repeated block as asked for.

    Raises:
        ValueError: If it has no such body, or the attention cannot be had here.
    """
    return registry.named(
        size.name,
        device=machine.device,
        dtype=machine.dtype,
        seed=seed,
        attention=attention,
        compiled=body != "plain",
        fused=body == "fused",
    )


def costed(size: EncoderSize) -> EncoderSize:
    """The size whose costs an encoder is planned with: its own, or the one it stands in for."""
    return sizes.named(STAND_IN.get(size.name, size.name))


def costs_of(size: EncoderSize, strategy: Strategy, machine: Machine) -> Costs:
    """What replays and eager runs are taken to cost: this card's curve, else an H200's."""
    priced = prices(size, machine)
    found = priced(strategy) if priced else costs.modelled(costed(size))
    return found.lent_to(size.name)


def prices(size: EncoderSize, machine: Machine) -> Callable[[Strategy], Costs] | None:
    """The same for every strategy; None where no card is on record."""
    known = cards.known()
    if not known:
        return None
    here = store.slug(meters.environment(machine.dtype, machine.device).gpu)
    on = next(name for name in (here, DEFAULT_CARD, *known) if name in known)
    return systems.prices(costed(size), on=on)

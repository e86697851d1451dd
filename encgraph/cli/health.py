"""Say what a machine has for graphs: versions, card, attention, curves, optional packages."""

from dataclasses import dataclass
from importlib.util import find_spec

import torch

from encgraph import cards, codec, curves, meters, store
from encgraph.attention import choose
from encgraph.cli import output
from encgraph.results import Environment

OPTIONAL = {
    "pandas": "store.to_frame; pip install 'encgraph[lab]'",
    "jupyterlab": "the notebooks; pip install 'encgraph[lab]'",
    "kaleido": "figures as PNG and PDF; pip install 'encgraph[figures]'",
    "skimage": "the photographs of `make demo`; pip install 'encgraph[demo]'",
}
"""What each optional package is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attended:
    """One packed attention on this machine."""

    name: str
    status: str
    """"ok", or what it lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What a machine has."""

    environment: Environment
    backend: str
    """What `run` takes unless told otherwise."""
    attention: tuple[Attended, ...]
    used: str
    """What attention "auto" is here."""
    curves: dict[str, tuple[str, ...]]
    """Encoders with a recorded curve, by card."""
    missing: tuple[str, ...]
    """What is not there and what that costs, a sentence each."""


def look() -> Health:
    """Look at this machine."""
    has_card = torch.cuda.is_available()
    device = torch.device("cuda" if has_card else "cpu")
    dtype = torch.bfloat16 if has_card else torch.float32
    found = choose.available(device, dtype)
    return Health(
        environment=meters.environment(dtype, device),
        backend="cuda" if has_card else "reference",
        attention=tuple(Attended(name=name, status=status) for name, status in found),
        used=choose.named("auto", device=device, dtype=dtype).name,
        curves=_curves(),
        missing=tuple(_missing(has_card)),
    )


def _curves() -> dict[str, tuple[str, ...]]:
    lead = curves.experiment("")
    return {
        card: tuple(n.removeprefix(lead) for n in store.experiments(card) if n.startswith(lead))
        for card in cards.known()
    }


def _missing(has_card: bool) -> list[str]:
    found = []
    if not has_card:
        found.append(
            "no NVIDIA GPU that torch sees: nothing is captured; `run` uses the reference "
            "backend, `plan` predicts from recorded curves"
        )
    if not cards.known():
        found.append("no recorded curve of any card: every prediction is modelled, not recorded")
    for package, use in OPTIONAL.items():
        if find_spec(package) is None:
            found.append(f"no {package}: needed for {use}")
    return found


def show(*, as_json: bool) -> None:
    """Print it."""
    health = look()
    if as_json:
        output.machine(health)
        return
    console = output.console()
    said = codec.encode(health.environment)
    rows = [(name, "none" if value is None else str(value)) for name, value in said.items()]
    rows.append(("backend of `run`", health.backend))
    console.print(output.table(("this machine", ""), rows))
    rows = [
        (a.name, a.status + (", used" if a.name == health.used else "")) for a in health.attention
    ]
    console.print(output.table(("attention", ""), rows))
    for card, encoders in health.curves.items():
        console.print(f"recorded curves on {card}: {', '.join(encoders)}")
    for sentence in health.missing:
        console.print(f"missing: {sentence}")

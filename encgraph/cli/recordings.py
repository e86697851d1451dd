"""Record the cost curve of an encoder on this machine."""

from functools import partial
from pathlib import Path

from encgraph import curves, meters, recording, sizes, store
from encgraph.cli import benching, machines, output
from encgraph.cli.options import Backend, Body
from encgraph.encoders import registry


def show(  # noqa: PLR0913 - a parameter an option
    encoder: str,
    backend: Backend | None,
    *,
    attention: str,
    body: Body,
    largest: int | None,
    samples: int,
    out: Path,
    as_json: bool,
) -> None:
    """Record, write the raw points, and say where they are."""
    size = sizes.named(encoder)
    machine = machines.chosen(backend)
    folder = output.folder(out)
    output.note(machine.said)
    built = registry.named(
        size.name,
        device=machine.device,
        dtype=machine.dtype,
        attention=attention,
        compiled=body != "plain",
        fused=body == "fused",
    )
    points = recording.record(
        built,
        size,
        tokens=[t for t in recording.TOKENS if largest is None or t <= largest],
        backend=machine.backend,
        samples=samples,
        progress=partial(output.bar, about="record"),
    )
    gpu = meters.environment(machine.dtype).gpu if machine.backend == "cuda" else None
    file = store.path(gpu, curves.experiment(size.name), root=folder)
    benching.keep(file, points)
    if as_json:
        output.machine({"file": str(file), "points": len(points)})
        return
    console = output.console()
    told = f"{built.spec.attention} attention, {body} block"
    console.print(f"{len(points)} points of {size.name}, {told}")
    console.print(f"written: {file}")

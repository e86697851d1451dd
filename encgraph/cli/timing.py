"""Commands that measure: `bench`, `record`."""

from pathlib import Path
from typing import Annotated

import typer

from encgraph.cli.options import (
    MOST_REPEATS,
    AsJson,
    BackendName,
    BodyName,
    Calibrate,
    Concurrency,
    Count,
    EncoderName,
    FirstToken,
    FitOn,
    Largest,
    MaxGraphs,
    Out,
    Repeats,
    Seed,
    Source,
    StrategyNames,
)


def bench(  # noqa: PLR0913 - a parameter an option
    ctx: typer.Context,
    source: Source,
    encoder: EncoderName,
    strategies: StrategyNames = None,
    backend: BackendName = None,
    fit_on: FitOn = None,
    count: Count = None,
    largest: Largest = None,
    max_graphs: MaxGraphs = 16,
    repeats: Repeats = None,
    seed: Seed = 0,
    calibrate: Calibrate = False,
    first_token: FirstToken = False,
    concurrency: Concurrency = None,
    out: Out = Path(),
    as_json: AsJson = False,
) -> None:
    """Compare strategies request by request, interleaved; write the measurements.

    A file keeps one run of an encoder, since times of two runs are no comparison: it is replaced by a
    run that measures all its strategies again, and by no other.
    """
    from encgraph.cli import benching, idle

    wanted = benching.WantedBench(
        source=source,
        encoder=encoder,
        strategies=strategies,
        backend=backend,
        fit_on=fit_on,
        count=count,
        largest=largest,
        max_graphs=max_graphs,
        repeats=repeats,
        seed=seed,
        calibrate=calibrate,
        first_token=first_token,
        concurrency=concurrency,
        out=out,
    )
    idle.refuse(ctx, wanted, benching.BENCH_IDLE)
    ready = benching.checked(wanted)
    from encgraph.cli import answering, comparing  # load torch

    measure = answering.show if first_token else comparing.show
    measure(ready, as_json=as_json)


def record(  # noqa: PLR0913 - a parameter an option
    encoder: EncoderName,
    backend: BackendName = None,
    attention: Annotated[
        str, typer.Option("--attention", help="A name that `encgraph doctor` lists.")
    ] = "auto",
    body: BodyName = "plain",
    largest: Largest = None,
    samples: Annotated[
        int, typer.Option("--samples", min=1, max=MOST_REPEATS, help="Timed runs a point.")
    ] = 9,
    out: Out = Path(),
    as_json: AsJson = False,
) -> None:
    """Record an encoder's cost curve here; with `--out data` in a checkout, `plan` predicts from it."""
    from encgraph import sizes
    from encgraph.cli import output

    size, folder = sizes.named(encoder), output.folder(out)
    from encgraph.cli import recordings

    recordings.show(
        size,
        backend,
        attention=attention,
        body=body,
        largest=largest,
        samples=samples,
        folder=folder,
        as_json=as_json,
    )

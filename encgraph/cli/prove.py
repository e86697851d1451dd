"""Commands that prove: `run`, `check`."""

from pathlib import Path
from typing import Annotated

import typer

from encgraph.cli.options import (
    AsJson,
    BackendName,
    BodyName,
    Calibrate,
    Count,
    EncoderName,
    Largest,
    Out,
    Repeats,
    Seed,
    Source,
    StrategyName,
    encoder_names,
)
from encgraph.errors import require


def run(  # noqa: PLR0913 - a parameter an option
    ctx: typer.Context,
    source: Source,
    encoder: EncoderName,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="A plan to use instead of one made here."),
    ] = None,
    backend: BackendName = None,
    strategy: StrategyName = "encgraph_plain",
    count: Count = None,
    largest: Largest = None,
    repeats: Repeats = None,
    seed: Seed = 0,
    calibrate: Calibrate = False,
    out: Out = Path(),
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="FILE", help="Also write the steps as a trace that Perfetto opens."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Capture, run a traffic, verify every item against eager, measure, and write the report."""
    from encgraph.cli import idle, running

    wanted = running.WantedRun(
        command=ctx.obj,
        source=source,
        encoder=encoder,
        plan_file=plan,
        backend=backend,
        strategy=strategy,
        count=count,
        largest=largest,
        repeats=repeats,
        seed=seed,
        calibrate=calibrate,
        out=out,
        trace=trace,
    )
    idle.refuse(ctx, wanted, running.RUN_IDLE)
    ready = running.checked(wanted)
    from encgraph.cli import executing  # loads torch

    executing.show(ready, as_json=as_json)


def check(
    encoder: Annotated[
        str,
        typer.Option(
            "--encoder",
            help="A name that `encgraph encoders` lists, or module:function for one of your own.",
            autocompletion=encoder_names,
            show_default=False,
        ),
    ],
    backend: BackendName = None,
    body: BodyName = "plain",
    plan: Annotated[
        Path | None,
        typer.Option(
            "--plan",
            metavar="FILE",
            help="A plan whose budgets are filled in one replay each as well, with as many items as "
            "they hold; without one, no more than 8 small items share a replay.",
        ),
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Check an encoder: can graphs hold it, which line stops them, is every answer right."""
    from encgraph import sizes
    from encgraph.cli import running

    if ":" not in encoder:
        size = sizes.named(encoder)  # a misspelt name is said before torch is loaded
        if plan is not None:
            running.load_plan(plan, size)
    else:
        require(
            body == "plain",
            f"--body is for a published size, got {body!r} for {encoder!r}; let its function choose",
        )
    from encgraph.cli import checking

    checking.show(encoder, backend, body=body, plan_file=plan, seed=seed, as_json=as_json)

"""The command `plan`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from encgraph.cli.options import (
    AsJson,
    BodyName,
    Card,
    Count,
    EncoderName,
    Engine,
    ExportForm,
    Largest,
    MaxGraphs,
    MemoryLimit,
    Method,
    Seed,
    Source,
)


def plan(  # noqa: PLR0913 - a parameter an option
    ctx: typer.Context,
    source: Source,
    encoder: EncoderName,
    engine: Annotated[
        Engine, typer.Option("--for", help="Whose packing rules and limits to plan under.")
    ] = "encgraph",
    body: BodyName = "plain",
    method: Annotated[Method, typer.Option("--method", help="How budgets are chosen.")] = "fitted",
    max_graphs: MaxGraphs = 16,
    memory: MemoryLimit = None,
    largest: Largest = None,
    card: Card = "h200",
    count: Count = None,
    seed: Seed = 0,
    plan_file: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the plan here."),
    ] = None,
    export: ExportForm = None,
    engine_version: Annotated[
        str, typer.Option("--engine-version", help="Release of vLLM the flags are for.")
    ] = "0.33",
    as_json: AsJson = False,
) -> None:
    """Choose token budgets for a traffic, each with its reason, and predict what they give."""
    from encgraph.cli import idle, planning, plans

    wanted = planning.WantedPlan(
        source=source,
        encoder=encoder,
        engine=engine,
        body=body,
        method=method,
        max_graphs=max_graphs,
        max_bytes=memory,
        largest=largest,
        card=card,
        count=count,
        seed=seed,
        plan_file=plan_file,
        export=export,
        engine_version=engine_version,
        as_json=as_json,
    )
    idle.refuse(ctx, wanted, plans.PLAN_IDLE)
    wanted = replace(wanted, engine="vllm" if export == "vllm" else engine)
    plans.show(wanted)

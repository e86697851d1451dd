"""Commands that only look: `doctor`, `encoders`, `traffic`."""

import typer

from encgraph.cli.options import AsJson, Count, EncoderName, Seed, Source


def doctor(as_json: AsJson = False) -> None:
    """Say what this machine has, what is used, what is missing and what that costs."""
    from encgraph.cli import health

    health.show(as_json=as_json)


def encoders(as_json: AsJson = False) -> None:
    """List the encoders: name, family, parameters, token rule, layout, recorded cards."""
    from encgraph.cli import listing

    listing.encoders(as_json=as_json)


def traffic(
    ctx: typer.Context,
    source: Source,
    encoder: EncoderName,
    count: Count = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Sum up a traffic: items, tokens and items a request as quantiles, and the atoms."""
    from encgraph.cli import idle, listing

    wanted = listing.WantedTraffic(source=source, encoder=encoder, count=count, seed=seed)
    idle.refuse(ctx, wanted, listing.TRAFFIC_IDLE)
    listing.traffic(wanted, as_json=as_json)

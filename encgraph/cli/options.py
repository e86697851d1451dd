"""Arguments and options that commands share, and how their text is read."""

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

Backend = Literal["cuda", "reference"]
Engine = Literal["encgraph", "vllm"]
Export = Literal["vllm", "json"]
Method = Literal["fitted", "doubling", "quantile"]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]iB|[KMGT]B|B)?", re.IGNORECASE)
_POWERS = "BKMGT"


def num_bytes(text: str) -> int:
    """Read a number of bytes: plain, decimal (kB, MB) or binary (KiB, MiB).

    Raises:
        typer.BadParameter: If it is no such number.

    >>> num_bytes("512MiB"), num_bytes("1.5GB"), num_bytes("4096")
    (536870912, 1500000000, 4096)
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"must be bytes such as 512MiB, 1GiB or 4096, got {text!r}")
    unit = (found[2] or "B").upper()
    step = 1024 if "I" in unit else 1000
    return int(float(found[1]) * step ** _POWERS.index(unit[0]))


def encoder_names(incomplete: str) -> list[str]:
    """Complete the name of a published size."""
    from encgraph import sizes

    return [name for name in sizes.SIZES if name.startswith(incomplete)]


def _strategy_names(incomplete: str) -> list[str]:
    from encgraph import strategies

    *before, last = incomplete.split(",")
    lead = "".join(f"{name}," for name in before)
    return [lead + name for name in strategies.STRATEGIES if name.startswith(last)]


Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A folder of images, a .csv, .jsonl or .json file, or builtin:NAME.",
        show_default=False,
    ),
]
EncoderName = Annotated[
    str,
    typer.Option(
        "--encoder",
        help="A name that `encgraph encoders` lists.",
        autocompletion=encoder_names,
        show_default=False,
    ),
]
StrategyName = Annotated[
    str, typer.Option("--strategy", help="Which system to run.", autocompletion=_strategy_names)
]
StrategyNames = Annotated[
    str,
    typer.Option(
        "--strategies",
        help="Systems to compare, joined by commas.",
        autocompletion=_strategy_names,
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Write JSON on stdout, and nothing else there.")
]
BackendName = Annotated[
    Backend | None,
    typer.Option(
        "--backend",
        help="Captured graphs, or the same without a card; cuda where there is one.",
        show_default=False,
    ),
]
Count = Annotated[
    int | None,
    typer.Option(
        "--count",
        min=1,
        help="Requests to draw or keep; all of a file or folder unless given.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of whatever is drawn.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write into.")]
Repeats = Annotated[
    int | None,
    typer.Option(
        "--repeats",
        min=1,
        help="Timed runs a request; 5 on a card and 1 on a CPU unless given.",
        show_default=False,
    ),
]
MaxGraphs = Annotated[
    int, typer.Option("--max-graphs", min=0, max=128, help="Most graphs to capture.")
]
Card = Annotated[str, typer.Option("--on", metavar="CARD", help="Card to predict for.")]
MemoryLimit = Annotated[
    int | None,
    typer.Option(
        "--memory",
        parser=num_bytes,
        metavar="SIZE",
        help="Most bytes that graphs may take on the card, such as 1GiB.",
        show_default=False,
    ),
]
Largest = Annotated[
    int | None,
    typer.Option(
        "--largest", min=1, help="Largest token budget.", metavar="TOKENS", show_default=False
    ),
]

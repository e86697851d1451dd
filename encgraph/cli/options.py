"""Arguments and options that commands share, and how their text is read."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

Backend = Literal["cuda", "reference"]
Engine = Literal["encgraph", "vllm"]
Export = Literal["vllm", "json"]
NAME_CHARS = 80
"""What is shown of a name too long for a file."""
Body = Literal["plain", "compiled", "fused"]
Method = Literal["fitted", "doubling", "quantile"]

_LONG_NAME = re.compile(r"[^\s/'\"]{256,}")
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


def failed(error: Exception) -> str:
    """What an error says, in one line: the system's own without its number, impossible names cut.

    >>> failed(FileNotFoundError(2, "No such file or directory", "a.csv"))
    "'a.csv': No such file or directory"
    """
    said = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror and isinstance(error.filename, str | Path):
        said = f"{str(error.filename)!r}: {error.strerror}"
    said = _LONG_NAME.sub(lambda found: f"{found[0][:NAME_CHARS]}...", said)
    return said or type(error).__name__


OTHER_NAMES = {"max_bytes": "memory", "strategy": "strategies"}
"""What the library calls some parameters of commands."""
GRAPHS_OFF = "leave graphs off"


RUN_HELP = "`encgraph run --help`"
"""Where the library sends whoever asks for a strategy that is not there."""


def spoken(said: str, options: Mapping[str, str], *, command: str = "run") -> str:
    """A message of the library in the words of a command: its option for the library's parameter.

    Args:
        said: A message that begins with a parameter's name and "must".
        options: The command's own, by the names of their parameters.
        command: The command's name.

    >>> spoken("max_bytes must be at least 9, got 1", {"memory": "--memory"})
    '--memory must be at least 9, got 1'
    """
    name, must, rest = said.partition(" must ")
    option = options.get(name) or options.get(OTHER_NAMES.get(name, ""))
    said = f"{option}{must}{rest}" if must and option else said
    said = said.replace(RUN_HELP, f"`encgraph {command} --help`")
    if "max_graphs" in options and f"{GRAPHS_OFF} with" not in said:
        said = said.replace(GRAPHS_OFF, f"{GRAPHS_OFF} with --max-graphs 0")
    return said


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
    str,
    typer.Option(
        "--strategy", help="Which system to run; named below.", autocompletion=_strategy_names
    ),
]
COMPARED = "eager_varlen,vllm,encgraph_plain"
StrategyNames = Annotated[
    str | None,
    typer.Option(
        "--strategies",
        help="Systems to compare, joined by commas; named below. Not with --first-token.",
        autocompletion=_strategy_names,
        show_default=COMPARED,
    ),
]
ExportForm = Annotated[
    Export | None,
    typer.Option(
        "--export",
        help="Write flags or the plan alone on stdout, the rest on stderr. Flags are fitted on all "
        "requests once a plan fitted on some was judged on the others; where vLLM's default budgets, "
        "or no graphs, are predicted to take no longer there, the flags are for that.",
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
FirstToken = Annotated[
    bool,
    typer.Option(
        "--first-token",
        help="Time a whole model to its first token instead: graphs off, on, and cache warm; budgets as "
        "encgraph_plain fits them.",
    ),
]
FitOn = Annotated[
    str | None,
    typer.Option(
        "--fit-on",
        metavar="SOURCE",
        help="Fit budgets on this instead of on half of the traffic.",
        show_default=False,
    ),
]
Calibrate = Annotated[
    bool,
    typer.Option(
        "--calibrate",
        help="Pack by times measured on the captured graphs, not by a recorded curve. Needs a card.",
    ),
]
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
    int,
    typer.Option(
        "--max-graphs", min=0, max=128, help="Most graphs to capture; `plan` takes 0 for none."
    ),
]
BodyName = Annotated[
    Body,
    typer.Option("--body", help="The repeated block as it is, compiled, or also fused by hand."),
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

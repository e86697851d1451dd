"""Arguments and options that commands share, and how their text is read."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from encgraph.errors import MOST_BYTES, MOST_GRAPHS, MOST_REQUESTS, MOST_SEED, MOST_TOKENS, require

Backend = Literal["cuda", "reference"]
Engine = Literal["encgraph", "vllm"]
Export = Literal["vllm", "json"]
NAME_CHARS = 80
"""What is shown of a name too long for a file."""
MOST_CONCURRENT = 1_000
"""Most requests at once to ask for."""
MOST_REPEATS = 10_000
"""Most timed runs to ask for; a thousand already tell all there is."""
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
        raise typer.BadParameter(
            f"must be bytes such as 512MiB, 1GiB or 4096, with a unit of B, KiB, MiB, GiB, TiB, kB, MB, "
            f"GB or TB, got {text!r:.40}"
        )
    unit = (found[2] or "B").upper()
    step = 1024 if "I" in unit else 1000
    number = float(found[1]) * step ** _POWERS.index(unit[0])
    if number > MOST_BYTES:
        raise typer.BadParameter(f"must be at most 1000TB, got {text!r:.40}")
    return int(number)


def numbers(text: str) -> tuple[int, ...]:
    """Read how many requests a batch has, each number once.

    Raises:
        ValueError: If the text is no such list.

    >>> numbers("1,4,16")
    (1, 4, 16)
    """
    words = [word.strip() for word in text.split(",")]
    require(
        all(word.isdecimal() and 1 <= int(word[:9]) <= MOST_CONCURRENT for word in words),
        f"concurrency must be whole numbers from 1 to {MOST_CONCURRENT:,} joined by commas, such as "
        f"1,4,16, got {text!r:.60}",
    )
    return tuple(dict.fromkeys(int(word) for word in words))


def check_calibrate(calibrate: bool, backend: Backend | None) -> None:
    """Refuse to pack by a CPU's times.

    Args:
        calibrate: Whether calibration is asked for.
        backend: What replays; None while nobody knows.

    Raises:
        ValueError: If calibration is asked for off a card.
    """
    require(
        not calibrate or backend != "reference",
        "--calibrate needs --backend cuda: off a card it would pack by a CPU's times, which say "
        "nothing of graphs, beside a prediction for a card; leave it out",
    )


def failed(error: Exception) -> str:
    """What an error says, in one line: the system's own without its number, impossible names cut.

    >>> failed(FileNotFoundError(2, "No such file or directory", "a.csv"))
    "'a.csv': No such file or directory"
    """
    said = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        of = f"{str(error.filename)!r}: " if isinstance(error.filename, str | Path) else ""
        said = f"{of}{error.strerror}"
    said = _LONG_NAME.sub(lambda found: f"{found[0][:NAME_CHARS]}...", said)
    return said or type(error).__name__


OTHER_NAMES = {"max_bytes": "memory", "strategy": "strategies"}
"""What the library calls some parameters of commands."""
_GRAPHS_OFF = "leave graphs off"
SMALLER = "plan smaller or fewer budgets"


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
    if "largest" in options:
        said = said.replace(SMALLER, f"{SMALLER} with --largest")
    if "max_graphs" in options and f"{_GRAPHS_OFF} with" not in said:
        said = said.replace(_GRAPHS_OFF, f"{_GRAPHS_OFF} with --max-graphs 0")
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
        help="A folder of images, a .csv, .jsonl or .json file, or builtin:NAME (see `traffic --help`).",
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
        help="Systems to compare, joined by commas; named below. All that the file in --out has of "
        "this encoder must be among them, or it is left as it is. Not with --first-token.",
        autocompletion=_strategy_names,
        show_default=COMPARED.replace(",", ", "),
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
        max=MOST_REQUESTS,
        help="Requests to draw or keep; all of a file or folder unless given.",
        show_default=False,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        min=0,
        max=MOST_SEED,
        help="Seed of whatever is drawn: requests, which of them budgets are fitted on, weights.",
    ),
]
FirstToken = Annotated[
    bool,
    typer.Option(
        "--first-token",
        help="Time a whole model to its first token instead: graphs off, on, and cache warm; graphs as "
        "encgraph has them on a card, as encgraph_plain elsewhere.",
    ),
]
Concurrency = Annotated[
    str | None,
    typer.Option(
        "--concurrency",
        metavar="N,...",
        help="Requests a batch, with --first-token; of 1,4,16 on a card and 1,4 on a CPU those that "
        "there are requests for unless given.",
        show_default=False,
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
        max=MOST_REPEATS,
        help="Timed runs a request; 5 on a card and 1 on a CPU unless given.",
        show_default=False,
    ),
]
MaxGraphs = Annotated[
    int,
    typer.Option(
        "--max-graphs",
        min=0,
        max=MOST_GRAPHS,
        help="Most graphs to capture; `plan` takes 0 for none.",
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
        "--largest",
        min=1,
        max=MOST_TOKENS,
        help="Largest token budget.",
        metavar="TOKENS",
        show_default=False,
    ),
]

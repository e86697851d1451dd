"""Keep measurements as JSON lines, one file an experiment and card, so that a re-measurement is a readable diff."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from encgraph import codec, datadir
from encgraph.errors import require
from encgraph.results import Measurement

if TYPE_CHECKING:
    import pandas as pd

FOLDER = "measurements"
"""Where measurements lie under `root()` and under a user's own root."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")


def root() -> Path:
    """Folder of the data that travels with the package, else the checkout's `data/`."""
    return datadir.root()


def slug(gpu: str | None) -> str:
    """Name of a card as its folder has it; a slug stays itself, and no card is "cpu".

    >>> slug("NVIDIA H200"), slug("NVIDIA A100-SXM4-80GB"), slug("h200"), slug(None)
    ('h200', 'a100-sxm4-80gb', 'h200', 'cpu')
    """
    words = re.findall(r"[a-z0-9]+", (gpu or "cpu").lower())
    require(bool(words), f"gpu must be a card name such as 'NVIDIA H200', got {gpu!r}")
    return "-".join(w for w in words if w != "nvidia") or "nvidia"


def path(gpu: str | None, experiment: str, *, root: Path | None = None) -> Path:
    """File of an experiment on a card, whether it exists or not.

    Args:
        gpu: Card name or slug.
        experiment: Name such as "replay_curve": lower case letters, digits, `_`, `.` and `-`.
        root: Folder that holds `measurements/`; the package's own data if None.

    Raises:
        ValueError: If the experiment is not such a name.
    """
    require(
        _NAME.fullmatch(experiment) is not None,
        f"experiment must be lower case letters, digits, '_', '.' or '-', got {experiment!r}",
    )
    return _folder(root) / slug(gpu) / f"{experiment}.jsonl"


def gpus(*, root: Path | None = None) -> tuple[str, ...]:
    """Slugs of the cards that have measurements, sorted."""
    return tuple(sorted({file.parent.name for file in _folder(root).glob("*/*.jsonl")}))


def experiments(gpu: str | None, *, root: Path | None = None) -> tuple[str, ...]:
    """Names of the experiments measured on a card, sorted."""
    return tuple(sorted(file.stem for file in (_folder(root) / slug(gpu)).glob("*.jsonl")))


def load(gpu: str | None, experiment: str, *, root: Path | None = None) -> tuple[Measurement, ...]:
    """Read what an experiment measured on a card.

    Args:
        gpu: Card name or slug.
        experiment: One of `experiments(gpu)`.
        root: Folder that holds `measurements/`; the package's own data if None.

    Raises:
        ValueError: If there is no such file (says which there are) or a line is not a measurement
            (says which line).
    """
    file = path(gpu, experiment, root=root)
    if not file.is_file():
        there = ", ".join(
            f"{card}/{e}" for card in gpus(root=root) for e in experiments(card, root=root)
        )
        raise ValueError(
            f"no measurements of {experiment!r} on {slug(gpu)!r}; "
            f"measured so far: {there or 'nothing'}; measure it with `encgraph bench`"
        )
    return read(file)


def read(file: Path) -> tuple[Measurement, ...]:
    """Read a file of measurements; blank lines are skipped.

    Raises:
        TypeError: If the file is no path.
        ValueError: If a line is not a measurement; names file and line.
    """
    _check_path(file)
    found = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(codec.loads(Measurement, line))
        except ValueError as error:
            raise ValueError(f"{file}:{number}: {error}") from error
    return tuple(found)


def write(file: Path, measurements: Iterable[Measurement]) -> None:
    """Replace a file, one measurement a line in an order that does not depend on how they came.

    The old file stays whole until the new one is.

    Raises:
        TypeError: If the file is no path.
    """
    _check_path(file)
    lines = [codec.dumps(m) for m in sorted(measurements, key=_order)]
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    partial.replace(file)


def append(file: Path, measurements: Iterable[Measurement]) -> None:
    """Add measurements to the end of a file, which need not exist; `write` sorts it later.

    A last line that an interrupted run left unfinished is not glued to the next: `read` names it.

    Raises:
        TypeError: If the file is no path.
    """
    _check_path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.exists() and file.read_bytes()[-1:] not in (b"", b"\n")
    with file.open("a", encoding="utf-8") as stream:
        stream.write("\n" * unfinished)
        stream.writelines(f"{codec.dumps(m)}\n" for m in measurements)


def to_frame(measurements: Sequence[Measurement]) -> "pd.DataFrame":
    """One row a measurement, one column a field: nested fields as "latency.p50_ms".

    `numbers` become columns of their own names. A field that no measurement has is no column.

    Raises:
        ImportError: If pandas is missing; says how to install it.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("to_frame needs pandas: pip install 'encgraph[lab]'") from error
    return pd.DataFrame([dict(_flat(codec.encode(m))) for m in measurements])


def _check_path(file: object) -> None:
    if not isinstance(file, Path):
        raise TypeError(f"file must be a pathlib.Path, got {file!r}; give it as Path(...)")


def _folder(base: Path | None) -> Path:
    return (datadir.root() if base is None else base) / FOLDER


def _order(measurement: Measurement) -> tuple[Any, ...]:
    """What was measured first, numbers as numbers; the whole line breaks a tie."""
    m = measurement
    return (
        (m.experiment, m.encoder, m.strategy, m.attention, m.compiled, m.fused, m.traffic or ""),
        -1 if m.request is None else m.request,
        m.route or "",
        astuple(m.capacity) if m.capacity else (),
        astuple(m.load) if m.load else (),
        codec.dumps(m),
    )


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, "" if name == "numbers" else f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value

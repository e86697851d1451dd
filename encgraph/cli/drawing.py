"""The `figures` command: every paper figure from the measurements, with a manifest of hashes."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from encgraph.cli.idle import Idle
from encgraph.cli.options import AsJson, Out
from encgraph.errors import require

if TYPE_CHECKING:
    from encgraph.papers import Paper

On = Annotated[str, typer.Option("--on", metavar="CARD", help="Card whose measurements to draw.")]
HtmlOnly = Annotated[bool, typer.Option("--html-only", help="Leave SVG and PDF out.")]
Against = Annotated[
    Path | None,
    typer.Option("--check", metavar="FILE", help="Compare with a manifest instead of writing."),
]


_IDLE: tuple[Idle[Path | None], ...] = tuple(
    Idle(
        option=option,
        when=lambda check: check is not None,
        why="with --check, which writes nothing",
    )
    for option in ("--out", "--html-only")
)
"""What may be asked of `figures` to no effect."""


def figures(
    ctx: typer.Context,
    out: Out = Path("figures"),
    on: On = "h200",
    html_only: HtmlOnly = False,
    check: Against = None,
    as_json: AsJson = False,
) -> None:
    """Make every paper figure from the measurements: HTML, SVG, PDF and a manifest of hashes."""
    from encgraph import exporting, papers, store
    from encgraph.cli import idle, output

    idle.refuse(ctx, check, _IDLE)
    made = papers.catalogue(on)
    require(
        bool(made),
        f"no figure can be drawn of card {on!r}, of which there is only "
        f"{', '.join(store.experiments(on))}; figures need what `encgraph record` or `encgraph bench` "
        "measured there",
    )
    if check is not None:
        _compare(check, made, as_json=as_json)
        return
    folder = output.folder(out)
    written = exporting.write(
        made, folder, pictures=() if html_only else exporting.PICTURES, progress=output.bar
    )
    if as_json:
        names = [str(path) for path in written.files]
        output.machine(
            {"manifest": str(written.manifest), "files": names, "skipped": written.skipped}
        )
        return
    output.line(f"{len(made)} figures, {len(written.files)} files; {written.manifest}")
    if written.skipped:
        output.note(written.skipped)


def _is_manifest(file: Path) -> bool:
    """Whether a file holds JSON with the figures of a manifest."""
    try:
        found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    except ValueError:
        return False
    return isinstance(found, dict) and isinstance(found.get("figures"), dict)


def _compare(manifest: Path, made: "tuple[Paper, ...]", *, as_json: bool) -> None:
    from encgraph import exporting
    from encgraph.cli import output

    require(
        _is_manifest(manifest),
        f"--check must name a manifest that `encgraph figures` wrote, got {str(manifest)!r}, "
        f"which is {'another' if manifest.is_file() else 'no'} file",
    )
    found = exporting.differences(manifest, made)
    if found:
        raise ValueError("; ".join(found))
    if as_json:
        output.machine({"manifest": str(manifest), "figures": len(made)})
        return
    output.line(f"{len(made)} figures are those of {manifest}")

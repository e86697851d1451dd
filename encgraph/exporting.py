"""Write figures as HTML, SVG and PDF in the widths of a paper, with a manifest that can be compared.

Hashes of data and figures hold everywhere; hashes of files hold where the tools are the manifest's.
The manifest of the figures in `data/measurements` is kept in `data/figures/manifest.json`; `REFRESH`
makes it again.
"""

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

import encgraph
from encgraph import datadir
from encgraph.figures import template
from encgraph.papers import Paper

WIDTHS: Mapping[str, int] = {"single": 340, "double": 700}
"""Pixels at 96 an inch: columns of 90 mm and 185 mm."""
PICTURES = ("svg", "pdf")
KEPT = "figures/manifest.json"
"""The manifest under the data folder."""
REFRESH = f"encgraph figures --out out/figures && cp out/figures/manifest.json data/{KEPT}"
"""What to run in a checkout after measurements or figures changed."""
_DEFS = re.compile(r'<defs id="defs-([0-9a-f]{6})"')
_TRACE = re.compile(r'(?<= trace)[0-9a-f]{6}(?=")')
_MARK = re.compile(r'(?:class="|<pattern id="[^"]*)(cb|-)([0-9a-f]{6})(?: colorbar)?"')
_PDF_DATE = re.compile(rb"(/(?:Creation|Mod)Date \(D:)\d{14}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What an export wrote."""

    manifest: Path
    files: tuple[Path, ...]
    skipped: str | None
    """Why there are no pictures; None if they were written."""


def write(
    papers: Sequence[Paper],
    folder: Path,
    *,
    pictures: Sequence[str] = PICTURES,
    progress: Callable[[Iterable[Any], str], Iterable[Any]] = lambda values, about: values,
) -> Written:
    """Write every figure and `manifest.json`; the same data and tools write the same bytes.

    Args:
        papers: See `papers.catalogue`.
        folder: Made if missing; files of other names stay.
        pictures: Formats besides HTML, of "svg" and "pdf".
        progress: Wraps the figures.
    """
    folder.mkdir(parents=True, exist_ok=True)
    skipped = None if not pictures else missing()
    made: dict[str, Any] = {}
    with browser(bool(pictures) and skipped is None) as formats:
        for paper in progress(papers, "figures"):
            figure = _portable(paper.draw())
            kept = [f for f in pictures if formats]
            made[paper.name] = {
                "caption": paper.caption,
                "data": {name: _hash((datadir.root() / name).read_bytes()) for name in paper.data},
                "figure": figure_hash(figure),
                "files": dict(_files(paper, figure, folder, kept)),
            }
    names = sorted(name for one in made.values() for name in one["files"])
    content = {"figures": made, "tools": tools(with_pictures=bool(pictures) and skipped is None)}
    manifest = folder / "manifest.json"
    _write(manifest, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())
    return Written(manifest=manifest, files=tuple(folder / name for name in names), skipped=skipped)


def figure_hash(figure: go.Figure) -> str:
    """Hash of what is drawn: the figure's JSON with sorted keys, without template and uids."""
    drawn = json.loads(figure.to_json())
    drawn["layout"].pop("template", None)
    for trace in drawn["data"]:
        trace.pop("uid", None)
    return _hash(json.dumps(_rounded(drawn), sort_keys=True).encode())


def _portable(figure: go.Figure) -> go.Figure:
    """The figure as another processor would draw it: its bytes are those of the files."""
    return go.Figure(_rounded(json.loads(figure.to_json())))


def _rounded(value: Any) -> Any:
    """Numbers to 6 digits: another processor may differ in the last bit, and says nothing by it."""
    if isinstance(value, dict):
        return {key: _rounded(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _files(
    paper: Paper, figure: go.Figure, folder: Path, pictures: Sequence[str]
) -> Iterator[tuple[str, str]]:
    page = figure.to_html(include_plotlyjs="directory", div_id="figure", full_html=True)
    caption = f"<p>{_escaped(paper.caption)}</p></body>"
    html = page.replace("</body>", caption).replace("<head>", f"<head>{_title(paper)}")
    yield _kept(folder / f"{paper.name}.html", html.encode())
    _write(folder / "plotly.min.js", _plotly_js().encode())
    for column, width in WIDTHS.items():
        sized = _sized(figure, width)
        for kind in pictures:
            data = _picture(sized, kind, width)
            yield _kept(folder / f"{paper.name}.{column}.{kind}", data)


def _title(paper: Paper) -> str:
    return f"<title>{_escaped(paper.name)}</title>"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plotly_js() -> str:
    from plotly.offline import get_plotlyjs

    source: str = get_plotlyjs()
    return source


def _sized(figure: go.Figure, width: int) -> go.Figure:
    """A copy on white in black ink, its type small enough for one column."""
    copy = go.Figure(figure)
    small = width < 500
    copy.update_layout(
        width=width,
        paper_bgcolor="white",
        font={"color": "#222222", "size": 9 if small else 11},
        legend={"font": {"size": 8 if small else 10}},
    )
    if small and copy.layout.height is None:
        copy.update_layout(height=260)
    size = 9 if small else 11
    copy.update_xaxes(title_font_size=size).update_yaxes(title_font_size=size)
    return copy


def _picture(figure: go.Figure, kind: str, width: int) -> bytes:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*kopts argument.*")
        data: bytes = pio.to_image(figure, format=kind, width=width)
    return normalised_svg(data.decode()).encode() if kind == "svg" else normalised_pdf(data)


def normalised_svg(svg: str) -> str:
    """The SVG without plotly's random ids."""
    found = _DEFS.search(svg)
    if found:  # clip paths, legend and gradient ids; never a colour, which follows '#'
        svg = re.sub(rf"(?<=[a-zA-Z-]){found[1]}", "figure", svg)
    for number, (kind, mark) in enumerate(dict.fromkeys(_MARK.findall(svg))):
        svg = svg.replace(kind + mark, f"{kind}{number:06d}")
    seen: dict[str, str] = {}
    return _TRACE.sub(lambda m: seen.setdefault(m[0], f"{len(seen):06d}"), svg)


def normalised_pdf(pdf: bytes) -> bytes:
    """The PDF as if written on the first day of the epoch."""
    return _PDF_DATE.sub(rb"\g<1>19700101000000", pdf)


def missing() -> str | None:
    """What pictures lack on this machine; None if nothing."""
    if find_spec("kaleido") is None:
        return "SVG and PDF need kaleido: pip install 'encgraph[figures]'"
    if _chromium() is None:
        return "SVG and PDF need a Chrome or Chromium; install one, or name it in BROWSER_PATH"
    return None


def _chromium() -> str | None:
    from choreographer.browsers.chromium import Chromium

    found: str | None = Chromium.find_browser(skip_local=False)
    return found


@contextmanager
def browser(wanted: bool) -> Iterator[bool]:
    """One browser for all pictures of a block; gives whether there is one."""
    if not wanted:
        yield False
        return
    import kaleido

    kaleido.start_sync_server(n=1, mathjax=False, silence_warnings=True)
    try:
        yield True
    finally:
        kaleido.stop_sync_server(silence_warnings=True)


def tools(*, with_pictures: bool) -> dict[str, str]:
    """Versions that bytes depend on."""
    found = {"encgraph": encgraph.__version__, "plotly": metadata.version("plotly")}
    if with_pictures:
        found["kaleido"] = metadata.version("kaleido")
        found["browser"] = _said(str(_chromium()), "--version")
        found["font"] = _font()
    return found


def _said(*command: str) -> str:
    """What a program writes on stdout; "unknown" where there is none."""
    import subprocess

    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return "unknown"
    return ran.stdout.strip() or "unknown"


def _font() -> str:
    """The font that text is set in, by name and hash: pictures embed it."""
    name, _, file = _said("fc-match", "-f", "%{family}|%{file}", template.FONT).partition("|")
    return f"{name} {_hash(Path(file).read_bytes())[:16]}" if file else name


def _kept(path: Path, data: bytes) -> tuple[str, str]:
    _write(path, data)
    return path.name, _hash(data)


def _write(path: Path, data: bytes) -> None:
    if not path.is_file() or path.read_bytes() != data:
        path.write_bytes(data)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def differences(manifest: Path, papers: Sequence[Paper]) -> list[str]:
    """Figures whose data or drawing is not what a manifest says, a sentence each.

    Compares what holds everywhere, without a browser: data and figure hashes.
    """
    known = json.loads(manifest.read_text(encoding="utf-8"))["figures"]
    found = [f"{name} is in the manifest and no longer made" for name in known]
    for paper in papers:
        was = known.get(paper.name)
        if was is None:
            found.append(f"{paper.name} is not in the manifest")
            continue
        found.remove(f"{paper.name} is in the manifest and no longer made")
        data = {name: _hash((datadir.root() / name).read_bytes()) for name in paper.data}
        if was["data"] != data:
            found.append(f"{paper.name}: its data changed")
        elif was["figure"] != figure_hash(paper.draw()):
            found.append(f"{paper.name}: the same data draw another figure")
    return found

"""Write a report as one self-contained HTML file: no network, the same bytes for the same facts."""

from pathlib import Path

from plotly.offline import get_plotlyjs

from encgraph.facts import Report
from encgraph.report import drawings, findings, sections, timetables
from encgraph.report.style import CSS
from encgraph.report.text import Html, element, esc, join, prose


def write(report: Report, path: Path) -> None:
    """Write the page, replacing the file.

    Raises:
        OSError: If the file cannot be written.
    """
    path.write_text(render(report), encoding="utf-8", newline="\n")


def render(report: Report) -> str:
    """The whole page: notices, verdicts, what to change, then the evidence.

    Args:
        report: Complete or partial; what it lacks is left out or said to be missing.

    Returns:
        HTML with style, plotly and data inline; equal for equal reports.
    """
    body = element(
        "main",
        sections.notices(report),
        sections.header(report),
        sections.verdicts(report),
        sections.change(report),
        sections.plan(report),
        _figures(report),
        timetables.measured(report),
        sections.fallbacks(report),
        sections.parity(report),
        sections.traffic(report),
        sections.environment(report),
    )
    title = element("title", esc(f"{report.encoder.name} over {report.traffic.name}: encgraph"))
    head = (
        '<meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"{title}<style>{CSS}</style>"
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _figures(report: Report) -> Html:
    """The figures, after the one copy of plotly that they share."""
    title, why = findings.charted(report)
    groups = (
        ("Traffic, packing and memory", "", drawings.evidence(report)),
        (title, why, drawings.latency(report)),
    )
    if not any(drawn for _, _, drawn in groups):
        return Html("")
    library = Html(f"<script>{get_plotlyjs()}</script>")
    return join([library, *(_group(*group) for group in groups)])


def _group(title: str, why: str, drawn: tuple[drawings.Drawing, ...]) -> Html:
    """A section of figures, with a line before them; nothing if it has neither."""
    if not drawn and not why:
        return Html("")
    line = element("p", prose(why), css="soft") if why else Html("")
    return element("section", element("h2", esc(title)), line, drawings.html(drawn))

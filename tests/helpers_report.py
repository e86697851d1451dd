"""What tests of the report share: the page as a reader sees it."""

import html
import re

from plotly.offline import get_plotlyjs

from encgraph.facts import Report
from encgraph.report import page

LIBRARY: str = get_plotlyjs()


def words(report: Report) -> str:
    """The page without plotly, scripts, style and tags, as a reader sees it."""
    text = page.render(report).replace(LIBRARY, "")
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.S)
    text = html.unescape(re.sub(r"<[^>]+>", " ", text))
    return re.sub(r"\s+", " ", text)

"""Format numbers for people and build escaped HTML.

`Html` marks what is safe to put on a page; only `esc` and the builders make it.
"""

import html
import re
from collections.abc import Iterable, Sequence
from typing import NewType

from encgraph import tabular

Html = NewType("Html", str)

_NUMBER = re.compile(rf"[\d.,]+(%|{tabular.TIMES}| ms| MiB)?|as above|unused")

_UNIT = re.compile(r"(\d) (ms|s|MiB)\b")


def esc(value: object) -> Html:
    """Any value as text on a page."""
    return Html(html.escape(str(value)))


def prose(text: str) -> Html:
    """A sentence of ours as text on a page, no number parted from its unit."""
    return Html(_UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", esc(text)))


def join(parts: Iterable[Html], separator: str = "") -> Html:
    """Safe pieces in a row, with a safe separator."""
    return Html(separator.join(parts))


def element(tag: str, *children: Html, css: str = "", **attributes: str) -> Html:
    """One element with safe children; attribute values are escaped."""
    pairs = {**({"class": css} if css else {}), **attributes}
    inside = "".join(f' {name.replace("_", "-")}="{esc(value)}"' for name, value in pairs.items())
    return Html(f"<{tag}{inside}>{''.join(children)}</{tag}>")


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, css: str = "") -> Html:
    """A table; on a phone each row becomes a block whose cells carry their header.

    Args:
        headers: One a column.
        rows: Cells; a number-like cell is set right, anything else left.
        css: Class of the table.
    """
    body = [
        element("tr", *(_cell(name, value) for name, value in zip(headers, row, strict=True)))
        for row in rows
    ]
    numeric = [bool(body) and f'class="num" data-label="{esc(h)}"' in body[0] for h in headers]
    head = element(
        "tr",
        *(
            element("th", esc(h), css="num" if n else "", scope="col")
            for h, n in zip(headers, numeric, strict=True)
        ),
    )
    return element("table", element("thead", head), element("tbody", *body), css=css)


def _cell(header: str, value: object) -> Html:
    text = str(value)
    css = "num" if _NUMBER.fullmatch(text) else ""
    return element("td", prose(text), css=css, data_label=header)


def definitions(pairs: Iterable[tuple[str, object]]) -> Html:
    """Names and values, two columns."""
    return element("dl", *(join([element("dt", esc(k)), element("dd", esc(v))]) for k, v in pairs))


def bare_ms(value: float | None) -> str:
    """Milliseconds with three significant digits, the unit left to a table's header; a dash for none."""
    if value is None:
        return "-"
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f}"


def ms(value: float) -> str:
    """Milliseconds with three significant digits.

    >>> ms(7.956), ms(43.31), ms(1234.5)
    ('7.96 ms', '43.3 ms', '1,234 ms')
    """
    return f"{bare_ms(value)} ms"


def seconds(value: float) -> str:
    """Seconds, or milliseconds below one.

    >>> seconds(1.0439), seconds(0.25)
    ('1.04 s', '250 ms')
    """
    return f"{value:,.2f} s" if value >= 1 else ms(value * 1000)


def mib(num_bytes: int) -> str:
    """Bytes in MiB.

    >>> mib(3 * 2**19), mib(2**31)
    ('1.5 MiB', '2,048 MiB')
    """
    value = num_bytes / tabular.MIB
    return f"{value:,.{1 if value < 10 else 0}f} MiB"


def percent(ratio: float) -> str:
    """A ratio of 0 to 1 in percent; never 100% or 0% unless it is.

    >>> percent(0.973), percent(0.9999), percent(1)
    ('97%', '99.9%', '100%')
    """
    if 0 < ratio < 0.01 or 0.99 < ratio < 1:
        return f"{min(max(ratio * 100, 0.1), 99.9):.1f}%"
    return f"{ratio * 100:.0f}%"


def factor(value: float) -> str:
    """A ratio of two times, such as a speedup."""
    return f"{value:.2f}{tabular.TIMES}"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """A count with its noun.

    >>> plural(1, "item"), plural(2000, "item")
    ('1 item', '2,000 items')
    """
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def paragraph(text: str, css: str = "") -> Html:
    """A paragraph, numbers kept with their units."""
    return element("p", prose(text), css=css)


def section(title: str, *content: Html) -> Html:
    """A section under its heading."""
    return element("section", element("h2", esc(title)), *content)

"""Compare plotly figures by what they draw: nbval would compare the exact bits of every float.

Another processor may differ in the last bit, and says nothing by it. Numbers are rounded to 6 digits,
arrays decoded, `uid` and `template` left out.
"""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

DIGITS = 6


def plain(value: Any) -> Any:
    """A plotly value with arrays decoded and numbers rounded."""
    if isinstance(value, Mapping):
        if value.keys() >= {"dtype", "bdata"}:
            array = np.frombuffer(base64.b64decode(value["bdata"]), value["dtype"])
            shape = [int(n) for n in str(value.get("shape", array.size)).split(",")]
            return plain(array.reshape(shape).tolist())
        return {k: plain(v) for k, v in value.items() if k not in ("uid", "template")}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return 0.0 if abs(value) < 1e-12 else float(f"{value:.{DIGITS}g}")
    return value


def teach(cell: Any) -> None:
    """Make nbval's cells compare figures as above."""
    as_before = cell.sanitize

    def sanitize(self: Any, shown: Any) -> Any:
        if isinstance(shown, Mapping) and {"data", "layout"} <= shown.keys():
            return plain(shown)
        return as_before(self, shown)

    cell.sanitize = sanitize


try:
    from nbval.plugin import IPyNbCell
except ImportError:  # ruff and editors read this file where nbval is not installed
    pass
else:
    teach(IPyNbCell)

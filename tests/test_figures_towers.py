"""Where the time of a replay goes, as bars."""

import pytest
from helpers_report import replayed

from encgraph import figures


def test_kernels_are_stacked_by_kind_the_slowest_body_on_top():
    fast = replayed("fused", attention_ms=2.0, norms_ms=0.25, gelu_ms=0.5, norms_count=9.0)
    slow = replayed("plain", attention_ms=2.0, norms_ms=1.0, gelu_ms=1.0, copies_ms=3.0)
    drawn = figures.kernels_by_kind([fast, slow], 64)
    bars = {bar.name: (bar.y, bar.x) for bar in drawn.data}
    assert bars["norms and GELU"] == (("plain", "fused"), (2.0, 0.75))
    assert bars["copies"][1] == (3.0, 0.0)
    with pytest.raises(ValueError, match="no kernels of a graph of 128 tokens"):
        figures.kernels_by_kind([fast, slow], 128)

"""Where the time of a replay goes, as bars."""

import pytest
from helpers_report import replayed

from encgraph import figures, store
from encgraph.figures import towers


def test_kernels_are_stacked_by_kind_the_bodies_in_the_order_of_the_ideas():
    joined = replayed("norms_joined", attention_ms=2.0, norms_ms=0.5, gelu_ms=1.0)
    compiled = replayed("compiled", attention_ms=2.0, norms_ms=0.25, gelu_ms=0.5, norms_count=9.0)
    plain = replayed("plain", attention_ms=2.0, norms_ms=1.0, gelu_ms=1.0, copies_ms=3.0)
    drawn = figures.kernels_by_kind([compiled, joined, plain], 64)
    bars = {bar.uid: bar for bar in drawn.data}
    names = [name.split("</b>")[0] for name in bars["norms-and-GELU"].y]
    assert names == ["<b>plain", "<b>compiled", "<b>norms_joined"], "slower than the one above it"
    assert bars["norms-and-GELU"].x == (2.0, 0.75, 1.5)
    assert bars["copies"].x == (3.0, 0.0, 0.0)
    assert list(bars["told"].text) == [" 7.00 ms", " 2.75 ms<br> -4.25", " 3.50 ms<br> +0.75"]
    assert "+ block compiled" in bars["copies"].y[1]
    with pytest.raises(ValueError, match="no kernels of a graph of 128 tokens"):
        figures.kernels_by_kind([compiled, plain], 128)


def test_a_body_nobody_has_named_stands_last_by_its_name():
    drawn = figures.kernels_by_kind(
        [replayed("<new>", attention_ms=1.0), replayed("tuned", attention_ms=2.0)], 64
    )
    assert drawn.data[0].y[1] == "<b>&lt;new&gt;</b>"


def test_every_body_on_record_is_named():
    lines = store.load("h200", "inside-qwen3-vl-8b")
    assert {m.strategy for m in lines} <= set(towers.BODIES)

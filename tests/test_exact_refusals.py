"""What a set of exact layouts refuses to capture."""

import pytest
from helpers import batch, tiny

from encgraph import exact
from encgraph.errors import CaptureError
from encgraph.layouts import Keep


def test_a_hook_added_before_the_first_layout_refuses_its_capture_alone():
    encoder = tiny("reference")
    items = [encoder.item_spec(value) for value in batch([(8, 8)], encoder)]
    with exact.open_set(encoder, Keep(min_hits=1), backend="reference") as made:
        hook = encoder.module.blocks[1].register_forward_hook(lambda *_: None)
        with pytest.raises(CaptureError, match=r"'blocks\.1' has forward hooks"):
            made.pack(items)
        assert not made.graphs and not made.failures
        hook.remove()
        assert made.pack(items).bins

"""What eager returns is checked before it is handed out."""

from dataclasses import replace

import pytest
from helpers import batch, plan, tiny

from encgraph.runner import EncoderRunner


class Widens:
    """An adapter whose eager gives another dtype than the encoder's."""

    def __init__(self, encoder):
        self.encoder = encoder

    def __getattr__(self, name):
        return getattr(self.encoder, name)

    def eager(self, inputs):
        made = self.encoder.eager(inputs)
        return [replace(output, main=output.main.double()) for output in made]


def test_eager_in_another_dtype_is_refused():
    encoder = Widens(tiny())
    runner = EncoderRunner(encoder=encoder, plan=plan(16), backend="reference")
    said = r"item 1: outputs must be torch\.float32, got torch\.float32, torch\.float64"
    with runner:
        runner.capture()
        with pytest.raises(RuntimeError, match=said):
            runner.execute(batch([(8, 8), (16, 16)], encoder))

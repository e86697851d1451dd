"""What eager returns is checked before it is handed out; a copy to the host is waited for."""

from dataclasses import replace

import pytest
import torch
from helpers import batch, plan, tiny
from torch.overrides import TorchFunctionMode

from encgraph.encoders import rows
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


class Waitless(TorchFunctionMode):
    """Notes every copy that does not wait."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if (kwargs or {}).get("non_blocking"):
            self.seen.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_copy_to_the_host_waits_since_it_is_read_at_once(dtype):
    to, source = torch.zeros(4, 2), torch.ones(2, 2, dtype=dtype)
    with Waitless() as waitless:
        rows.copy_ends(to, [source, source.double()])
        rows.copy(to, source.repeat(2, 1))
    assert not waitless.seen and to.sum() == 8

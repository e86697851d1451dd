"""Sizes are those that an encoder reads from tensors."""

from dataclasses import replace

import pytest
import torch
from helpers import close

from encgraph.encoders import registry
from encgraph.records import Plan
from encgraph.runner import EncoderRunner


@pytest.mark.parametrize("planned", [True, False])
def test_rows_are_those_of_the_tensors_not_of_the_callers_sizes(planned):
    encoder = registry.named("bert-tiny", device=torch.device("cpu"), dtype=torch.float32)
    first, second = encoder.input(torch.arange(5, 10)), encoder.input(torch.arange(20, 26))
    two = replace(first, item=replace(first.item, segments=2))
    graphed = (encoder.capacity(64, items=8),) if planned else ()
    runner = EncoderRunner(
        encoder=encoder,
        plan=Plan(graphs=graphed, encoder=encoder.spec.name),
        backend="reference",
    )
    with runner:
        runner.capture()
        right = runner.execute([first, second])
        said = "item 0 must have the 1 segments of its tensors, got 2"
        with pytest.raises(ValueError, match=said):
            runner.execute([two, second])
        refused, other = runner.execute_each([two, second])
        assert said in str(refused)
        assert close(other, right[1], encoder)

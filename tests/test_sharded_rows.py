"""Output rows of a sharded batch are those it was planned with, item by item."""

from dataclasses import replace

import pytest
import torch

from encgraph import balance
from encgraph.encoders import registry
from encgraph.parallel import ranks
from encgraph.parallel.sharded import Lazy, ShardedRunner
from encgraph.records import Plan
from encgraph.runner import EncoderRunner


def alone(encoder):
    plan = Plan(graphs=(), encoder=encoder.spec.name, dtype="float32")
    runner = EncoderRunner(encoder=encoder, plan=plan, backend="reference")
    assign = balance.rule("tokens")
    return ShardedRunner(runner=runner, ranks=ranks.connect("cpu"), assign=assign)


def texts():
    encoder = registry.named("bert-tiny", device="cpu", dtype=torch.float32)
    return encoder, [encoder.input(torch.arange(5, 5 + length)) for length in (4, 5)]


def test_a_pooled_item_planned_with_more_rows_than_it_gives_is_named():
    encoder, (text, other) = texts()
    lying = Lazy(item=replace(other.item, segments=3), load=lambda: other)
    said = "item 1 must have the 5 tokens it was planned with, to give 3 rows, got .* that give 1"
    with alone(encoder) as one, pytest.raises(ValueError, match=said):
        one.execute([text, lying])

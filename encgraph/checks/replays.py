"""Replays of which a check decides what shares them, so that it knows what it has shown."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from encgraph import rows
from encgraph.checks import parity
from encgraph.checks.subject import Subject
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.graphs import GraphSet
from encgraph.records import Capacity

APART = 2.0
"""How many tolerances two items' rows must be apart, for one in the other's place to be seen."""


def one(graph_set: GraphSet, capacity: Capacity, batch: Sequence[Input]) -> list[EncoderOutput]:
    """A batch in one replay of a graph: owned outputs, in order."""
    spec = graph_set.spec
    packed = graph_set.replay(capacity, batch)
    counts = [spec.rows(graph_set.encoder.item_spec(value)) for value in batch]
    return rows.one_copy(packed, counts, spec.widths)


def filling(subject: Subject, capacity: Capacity) -> Iterator[list[Input]]:
    """Batches that leave no room in a capacity for one more of the smallest items.

    As many items as it holds, of the smallest and of such as take up all tokens; then few large
    ones: two, and as large ones as checks try with what is left. Of these, those that fill it.
    """
    tokens, largest = capacity.tokens, subject.reach.largest
    most = max(1, min(capacity.items, tokens // subject.low))
    whole, rest = divmod(tokens, largest)
    shared = [_shares(tokens, most), _shares(tokens, min(most, 2))]
    wanted = [
        (subject.low,) * most,
        *(each for each in shared if max(each) <= largest),
        (largest,) * whole + (rest,) * (rest >= subject.low),
    ]
    smallest = subject.encoder.item_spec(subject.batch(subject.low)[0])
    seen = set()
    for each in dict.fromkeys(wanted):
        batch = _held(subject, capacity, subject.batch(*each))
        load = subject.load(batch)
        sizes = tuple(value.item.tokens for value in batch)
        if batch and sizes not in seen and not capacity.holds(load.plus(smallest)):
            seen.add(sizes)
            yield batch


def _shares(tokens: int, items: int) -> tuple[int, ...]:
    """Tokens in so many nearly equal parts."""
    return (*[tokens // items] * (items - 1), tokens - tokens // items * (items - 1))


def _held(subject: Subject, capacity: Capacity, batch: list[Input]) -> list[Input]:
    """As many of a batch as a capacity holds, where items came out larger than was asked for."""
    while batch and not capacity.holds(subject.load(batch)):
        batch = batch[:-1]
    return batch


def alike(outputs: Sequence[EncoderOutput], tolerance: float) -> bool:
    """Whether two of some items' rows are so near that one in the other's place would pass."""
    return any(
        parity.distance(mine, other) <= APART * tolerance
        for mine, other in combinations(outputs, 2)
    )

"""Read the inputs of a batch: what they are, and the sizes that an encoder finds in their tensors."""

from collections.abc import Sequence, Sized
from typing import NamedTuple

from encgraph.encoders.protocol import Encoder, Input
from encgraph.records import Item

Refusal = ValueError | TypeError
"""What is wrong with one item."""


class Incoming(NamedTuple):
    """An input of a batch."""

    place: int
    """Its index in the batch."""
    value: Input
    item: Item
    """As the encoder sized it, which may know more than the caller's own `value.item`."""


def sized(batch: Sequence[Input]) -> Sequence[Input]:
    """The batch.

    Raises:
        TypeError: If it is none.
    """
    if not isinstance(batch, Sized):
        raise TypeError(f"batch must be a sequence of inputs, got {type(batch).__name__}")
    return batch


def read(batch: Sequence[Input], encoder: Encoder) -> list[Incoming]:
    """Every input of a batch.

    Raises:
        TypeError: If something in it is no input; names the item.
        ValueError: If an input contradicts its own sizes, or the encoder does not take it; names it.
    """
    return [_read(value, index, encoder) for index, value in enumerate(batch)]


def refusal(value: Input, index: int, encoder: Encoder) -> Refusal | None:
    """What `read` would raise for one input at a place of a batch, or None."""
    try:
        _read(value, index, encoder)
    except (ValueError, TypeError) as error:
        return error
    return None


def placed(said: str, index: int) -> str:
    """What an encoder says of an item that it was given alone, of the item's place in the batch."""
    alone = said.removeprefix("item 0 ")
    return f"item {index}: {said}" if alone == said else f"item {index} {alone}"


def _read(value: Input, index: int, encoder: Encoder) -> Incoming:
    if not isinstance(value, Input):
        raise TypeError(f"item {index} must be an Input, got {type(value).__name__}")
    try:
        item = encoder.item_spec(value)
    except ValueError as error:
        raise ValueError(placed(str(error), index)) from error
    if item.tokens != value.item.tokens:
        raise ValueError(
            f"item {index} must have the {item.tokens!r} tokens of its tensors, "
            f"got {value.item.tokens!r}; make its sizes from its grid"
        )
    if item.segments != value.item.segments and encoder.spec.pooled:  # then rows are segments
        raise ValueError(
            f"item {index} must have the {item.segments!r} segments of its tensors, "
            f"got {value.item.segments!r}; make its sizes from its tensors"
        )
    return Incoming(index, value, item)

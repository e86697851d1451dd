"""Cut packed rows of a replay into outputs, borrowed or owned, and check what an eager run returned.

Shape legend: T real tokens, W widths of all outputs side by side.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from encgraph.encoders.protocol import EncoderOutput, EncoderSpec
from encgraph.records import Item

Own = Callable[[Tensor, Sequence[int], Sequence[int]], list[EncoderOutput]]
"""(packed rows, rows an item, widths) -> an output an item."""


def split(packed_TW: Tensor, counts: Sequence[int], widths: Sequence[int]) -> list[EncoderOutput]:
    """Views of each item's rows, outputs apart."""
    columns = torch.split(packed_TW, list(widths), dim=1)
    items = zip(*(torch.split(column, list(counts)) for column in columns), strict=True)
    return [EncoderOutput(main=main, extra=tuple(extra)) for main, *extra in items]


def one_copy(
    packed_TW: Tensor, counts: Sequence[int], widths: Sequence[int]
) -> list[EncoderOutput]:
    """One clone of all rows; items are views of it, so one kept item keeps its replay's rows."""
    return split(packed_TW.clone(), counts, widths)


def clone_each(
    packed_TW: Tensor, counts: Sequence[int], widths: Sequence[int]
) -> list[EncoderOutput]:
    """One clone an item, as vLLM does."""
    items = torch.split(packed_TW, list(counts))
    return [split(item.clone(), [item.shape[0]], widths)[0] for item in items]


def check(
    outputs: Sequence[EncoderOutput],
    indices: Sequence[int],
    items: Sequence[Item],
    spec: EncoderSpec,
) -> None:
    """Refuse what an encoder returned for items, by type, count, rows, widths or dtype.

    Args:
        outputs: Of the eager run.
        indices: Of the items in their batch, for the message.
        items: As the encoder sized them.
        spec: The encoder's.

    Raises:
        RuntimeError: If something does not fit; names the item.
    """
    if len(outputs) != len(items):
        raise RuntimeError(f"eager must return {len(items)} outputs, got {len(outputs)!r}")
    for index, output, item in zip(indices, outputs, items, strict=True):
        if not isinstance(output, EncoderOutput):
            raise RuntimeError(f"item {index}: eager must return EncoderOutput, got {output!r}")
        expected = [(spec.rows(item), width) for width in spec.widths]
        shapes = [tuple(tensor.shape) for tensor in output.tensors]
        if shapes != expected:
            raise RuntimeError(f"item {index}: outputs must have shapes {expected}, got {shapes}")
        dtypes = {tensor.dtype for tensor in output.tensors}
        if dtypes != {spec.dtype}:
            found = ", ".join(sorted(map(str, dtypes)))
            raise RuntimeError(f"item {index}: outputs must be {spec.dtype}, got {found}")

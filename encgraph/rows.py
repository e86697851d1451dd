"""Cut packed rows of a replay into outputs, borrowed or owned, and check what an eager run returned.

Shape legend: T real tokens, W widths of all outputs side by side.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from encgraph.encoders.protocol import EncoderOutput, EncoderSpec, Input

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
    inputs: Sequence[Input],
    spec: EncoderSpec,
) -> None:
    """Type, count, rows and widths of what an encoder returned."""
    if len(outputs) != len(inputs):
        raise RuntimeError(f"eager must return {len(inputs)} outputs, got {len(outputs)!r}")
    for index, output, value in zip(indices, outputs, inputs, strict=True):
        if not isinstance(output, EncoderOutput):
            raise RuntimeError(f"item {index}: eager must return EncoderOutput, got {output!r}")
        expected = [(spec.rows(value.item), width) for width in spec.widths]
        shapes = [tuple(tensor.shape) for tensor in output.tensors]
        if shapes != expected:
            raise RuntimeError(f"item {index}: outputs must have shapes {expected}, got {shapes}")

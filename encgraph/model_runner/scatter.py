"""Check what the encoder returned, and lay it into the prompts at the placeholders.

Shape legend: b prompts, L longest prompt, V placeholders of all prompts, H hidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from encgraph.encoders.metadata import to_device
from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.model_runner.prompts import Run


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Embedded:
    """Prompts as the text model takes them."""

    embeds_bLH: Tensor
    visual_bL: Tensor | None
    """True at placeholders; None without items."""
    deepstack_VH: tuple[Tensor, ...]
    """One for each of the first layers; rows in the order of the placeholders."""


def check(outputs: Sequence[EncoderOutput], items: Sequence[Input], widths: Sequence[int]) -> None:
    """Refuse outputs that do not fit their items: type, count, rows, widths.

    Raises:
        RuntimeError: If they do not; names the item.
    """
    if len(outputs) != len(items):
        raise RuntimeError(f"the encoder must return {len(items)} outputs, got {len(outputs)}")
    for index, (output, value) in enumerate(zip(outputs, items, strict=True)):
        if not isinstance(output, EncoderOutput):
            raise RuntimeError(
                f"item {index}: the encoder must return EncoderOutput, got {output!r}"
            )
        expected = [(value.item.tokens, width) for width in widths]
        shapes = [tuple(tensor.shape) for tensor in output.tensors]
        if shapes != expected:
            raise RuntimeError(
                f"item {index}: outputs must have shapes {expected}, one row a placeholder, "
                f"got {shapes}"
            )


@torch.no_grad()
def embed(
    ids_bL: Tensor,
    table: nn.Module,
    *,
    runs: Sequence[Sequence[Run]],
    outputs: Sequence[EncoderOutput],
) -> Embedded:
    """Embed token ids and put each item's rows in its runs; never waits for the device.

    Args:
        ids_bL: int64 token ids, anything past a prompt's end.
        table: The text model's embedding.
        runs: Of each prompt.
        outputs: Of all items, prompt after prompt; a clip's rows go through its runs in order.
    """
    embeds_bLH: Tensor = table(ids_bL)
    if not outputs:
        return Embedded(embeds_bLH=embeds_bLH, visual_bL=None, deepstack_VH=())
    rows, length = ids_bL.shape
    starts = [(row * length + run.start, run) for row, m in enumerate(runs) for run in m]
    index_V = torch.cat([torch.arange(at, at + run.length, device="cpu") for at, run in starts])
    index_V = to_device(index_V, ids_bL.device)
    first, *rest = (
        torch.cat([output.tensors[layer] for output in outputs]).to(embeds_bLH.dtype)
        for layer in range(len(outputs[0].tensors))
    )
    embeds_bLH = embeds_bLH.clone()
    embeds_bLH.view(rows * length, -1).index_copy_(0, index_V, first)
    visual_bL = torch.zeros(rows * length, dtype=torch.bool, device=ids_bL.device)
    visual_bL.index_fill_(0, index_V, True)
    return Embedded(
        embeds_bLH=embeds_bLH, visual_bL=visual_bL.view(rows, length), deepstack_VH=tuple(rest)
    )

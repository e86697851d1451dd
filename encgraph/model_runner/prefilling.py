"""Run the prompts of a batch through the text model: those of like length together, since padding is computed.

A prompt beside one four times as long is computed four times over; a run for itself costs its launches. So
the batch is cut by length into the groups that cost least, launches counted as tokens.

Shape legend: b rows, g rows of a group, L longest prompt, H hidden, V placeholders of all prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from encgraph.encoders.metadata import to_device
from encgraph.model_runner.keyvalues import KeyValueSlabs, argument
from encgraph.model_runner.scatter import Embedded

LAUNCH_TOKENS = 2048
"""Tokens that are computed in about the time of a run's launches. On an H200 one short prompt took 30 ms with
`qwen3-vl-2b` and 41 with `-8b`, a further padded token 0.0085 and 0.03: 3,500 and 1,400 tokens. From the
batches of `time_to_first_token-*` as recorded at commit d0ee6b4."""


def groups(lengths: Sequence[int], *, launch_tokens: int = LAUNCH_TOKENS) -> list[list[int]]:
    """Rows to run together, the least padded tokens and launches over all ways to cut them by length.

    Args:
        lengths: Tokens of each prompt.
        launch_tokens: What a run costs besides its tokens.

    >>> groups([100, 9000, 120, 8000])
    [[0, 2], [3, 1]]
    """
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    least, cuts = [0], [0]
    for end in range(1, len(order) + 1):
        longest = lengths[order[end - 1]]
        costs = [least[at] + (end - at) * longest + launch_tokens for at in range(end)]
        cuts.append(min(range(end), key=costs.__getitem__))
        least.append(costs[cuts[-1]])
    found, end = [], len(order)
    while end:
        found.append(order[cuts[end] : end])
        end = cuts[end]
    return found[::-1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Embedded prompts, padded on the right, and what the host knows of them."""

    embedded: Embedded
    positions_3bL: Tensor
    """Rotary positions; anything past a prompt's end."""
    lengths: Sequence[int]
    visuals: Sequence[int]
    """Placeholders of each prompt."""

    def arguments(self, rows: Sequence[int], row_g: Tensor) -> dict[str, Any]:
        """What the text model takes of some rows, padded to the longest of them."""
        longest, whole = max(self.lengths[row] for row in rows), self.embedded
        taken = partial(torch.index_select, index=row_g)
        deep = visual_gL = None
        if whole.visual_bL is not None:
            ends = list(accumulate(self.visuals))
            parts = [slice(ends[row] - self.visuals[row], ends[row]) for row in rows]
            visual_gL = taken(whole.visual_bL, 0)[:, :longest]
            deep = [
                torch.cat([layer_VH[part] for part in parts]) for layer_VH in whole.deepstack_VH
            ]
        return {
            "inputs_embeds": taken(whole.embeds_bLH, 0)[:, :longest],
            "position_ids": taken(self.positions_3bL, 1)[:, :, :longest],
            "visual_pos_masks": visual_gL,
            "deepstack_visual_embeds": deep or None,
        }


@torch.no_grad()
def last_hidden(text: Any, batch: Batch, slabs: KeyValueSlabs) -> Tensor:
    """Fill keys and values of all rows and return the state (b, H) of each prompt's last token."""
    whole_bLH = batch.embedded.embeds_bLH
    device = whole_bLH.device
    last_bH = whole_bLH.new_empty(len(batch.lengths), whole_bLH.shape[-1])
    for rows in groups(batch.lengths, launch_tokens=LAUNCH_TOKENS):
        row_g = to_device(torch.tensor(rows, device="cpu"), device)
        ends = [batch.lengths[row] - 1 for row in rows]
        ends_g = to_device(torch.tensor(ends, device="cpu"), device)
        made = text(**batch.arguments(rows, row_g), **argument(slabs.prefill(row_g)))
        states_gLH = made.last_hidden_state
        within_g = torch.arange(len(rows), device=device)
        last_bH.index_copy_(0, row_g, states_gLH[within_g, ends_g])
    return last_bH

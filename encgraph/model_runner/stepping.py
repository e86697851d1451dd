"""One decode step as pure tensor work on static buffers: what a graph records.

Shape legend: b rows, C cache length, V vocabulary, H hidden.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from encgraph.encoders.protocol import Buffers, EncoderOutput
from encgraph.model_runner.keyvalues import KeyValueSlabs, argument
from encgraph.records import Capacity


@dataclass(frozen=True, slots=True)
class Where:
    """Where a step runs: of an encoder's spec, what `capturing` reads."""

    device: torch.device


@dataclass(frozen=True, slots=True, eq=False)
class DecodeStep:
    """One token for each row: what a graph records, in the two members that `capturing` asks for."""

    text: Any
    head: Any
    slabs: KeyValueSlabs
    spec: Where

    @torch.no_grad()
    def forward(self, buffers: Buffers, capacity: Capacity) -> EncoderOutput:
        """Logits (b, V) of the next token, which it leaves in the buffers with the new positions."""
        token_b, position_b, offset_b = (buffers[n] for n in ("token", "position", "offset"))
        embeds_b1H = self.text.embed_tokens(token_b[:, None])
        slot_C = torch.arange(self.slabs.length, device=token_b.device)
        unseen_bC = slot_C > position_b[:, None]
        mask_bC = torch.zeros_like(unseen_bC, dtype=embeds_b1H.dtype)
        mask_bC.masked_fill_(unseen_bC, torch.finfo(mask_bC.dtype).min)
        made = self.text(
            inputs_embeds=embeds_b1H,
            position_ids=(position_b + offset_b)[None, :, None].expand(3, -1, -1),
            attention_mask=mask_bC[:, None, None],
            **argument(self.slabs.decode(position_b)),
        )
        logits_bV: Tensor = self.head(made.last_hidden_state[:, -1])
        token_b.copy_(logits_bV.argmax(-1))
        position_b.add_(1)
        return EncoderOutput(main=logits_bV)

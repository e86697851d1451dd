"""Register packed attention for text encoders with transformers, sliding layers included."""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from encgraph.attention import windowed
from encgraph.attention.choose import Attention
from encgraph.attention.windowed import Segments


def register(attention: Attention) -> str:
    """Register an attention and return the name to set on a config, after the module is built.

    Layers that say they slide attend by `windowed`, all others by the attention given. The name is
    unknown to transformers' masks, so it makes none, whatever it is called with.
    """
    name = f"encgraph_text_{attention.name}"

    def interface(
        module: torch.nn.Module,
        q_1HPD: Tensor,
        k_1HPD: Tensor,
        v_1HPD: Tensor,
        attention_mask: None = None,
        **given: Any,
    ) -> tuple[Tensor, None]:
        q, k, v = (x[0].transpose(0, 1) for x in (q_1HPD, k_1HPD, v_1HPD))
        slab, longest = given["attention_output"], given["max_length_q"]
        offsets, scale, out = given["cu_seq_lens_q"], given["scaling"], slab.view(q.shape)
        sliding = given.get("sliding_window")
        if sliding is None:
            return attention.attend(q, k, v, offsets, longest, scale=scale, out=out)[None], None
        segments = Segments(offsets, longest)
        # transformers counts the row itself: 1 more than what is seen on each side.
        made = windowed.attend(q, k, v, segments, scale=scale, reach=sliding - 1, out=out)
        return made[None], None

    AttentionInterface.register(name, interface)
    return name

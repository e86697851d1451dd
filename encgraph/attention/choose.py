"""Choose packed attention by name, say what is available, and register it with transformers."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from encgraph.attention import measured, operators, plain
from encgraph.attention.plain import Attend

ATTENTION_NAMES = ("measured", *plain.KERNEL_NAMES)
FUNCTIONS: dict[str, Attend] = {"measured": measured.attend, **plain.FUNCTIONS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """A packed attention and its name."""

    name: str
    attend: Attend


def missing(name: str, *, device: torch.device, dtype: torch.dtype) -> str | None:
    """What stops an attention on a device with a dtype, or None."""
    if name == "measured":
        return measured.missing(device, dtype)
    return plain.missing(name, device=device, dtype=dtype)


def named(name: str, *, device: torch.device, dtype: torch.dtype) -> Attention:
    """Look a packed attention up by name.

    "auto" is measured on a card with several to choose from, else the first that runs of fa3, flash,
    loop (on a CPU) and sdpa. A name asked for is never replaced by another.

    Raises:
        ValueError: If there is none of that name, or it cannot run here; says what is missing.

    >>> named("auto", device=torch.device("cpu"), dtype=torch.float32).name
    'loop'
    """
    if name == "auto":
        worth = device.type == "cuda" and measured.missing(device, dtype) is None
        name = "measured" if worth else plain.first(device, dtype)
    if name not in ATTENTION_NAMES:
        near = get_close_matches(name.lower(), ATTENTION_NAMES, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}" if near else ""
        raise ValueError(
            f"attention must be 'auto' or one of {ATTENTION_NAMES}, got {name!r}{hint}"
        )
    reason = missing(name, device=device, dtype=dtype)
    if reason is not None:
        raise ValueError(f"attention {name!r} cannot run here: {reason}")
    return Attention(name=name, attend=FUNCTIONS[name])


def available(
    device: torch.device, dtype: torch.dtype = torch.bfloat16
) -> tuple[tuple[str, str], ...]:
    """Every attention with "ok" or what it lacks here, fastest known first."""
    return tuple((n, missing(n, device=device, dtype=dtype) or "ok") for n in ATTENTION_NAMES)


def register(attention: Attention) -> str:
    """Register an attention with transformers and return the name to set on a config.

    Set it as `config._attn_implementation` after the module is built: constructing with it makes
    transformers look for a kernel of that name. It contains "flash" because packed towers hand whole
    sequences with their offsets only to such names, and split by a host loop for any other.

    A forward may be given `attention_output`, (P, H x D), for the attention to write into.
    """
    name = f"encgraph_flash_{attention.name}"
    AttentionInterface.register(name, _interface(attention))
    return name


@cache
def _operator(name: str) -> operators.Operator:
    return operators.define(name, FUNCTIONS[name])


def _interface(attention: Attention) -> Callable[..., tuple[Tensor, None]]:
    """Wrap packed attention in the signature transformers calls."""
    operator = _operator(attention.name)

    def interface(
        module: torch.nn.Module,
        q_1HPD: Tensor,
        k_1HPD: Tensor,
        v_1HPD: Tensor,
        attention_mask: None = None,
        **given: Any,
    ) -> tuple[Tensor, None]:
        q, k, v = (x[0].transpose(0, 1) for x in (q_1HPD, k_1HPD, v_1HPD))
        slab = given.get("attention_output")
        out = None if slab is None else slab.view(q.shape)
        offsets, longest, scale = given["cu_seq_lens_q"], given["max_length_q"], given["scaling"]
        if torch.compiler.is_compiling():
            out = q.new_zeros(q.shape) if out is None else out
            operator(q, k, v, offsets, longest, scale, out)
        else:
            out = attention.attend(q, k, v, offsets, longest, scale=scale, out=out)
        return out.unsqueeze(0), None

    return interface

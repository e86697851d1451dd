"""Packed attention by FlashAttention-3, from the stable-ABI library inside an installed vLLM.

vLLM is found, not imported; `ENCGRAPH_FA3` may name the library instead. Shape legend: P patches,
H heads, D head width, S segments.
"""

import importlib.util
import os
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

VARIABLE = "ENCGRAPH_FA3"
INSIDE_VLLM = Path("vllm_flash_attn") / "_vllm_fa3_C.abi3.so"
ARGUMENTS = 37
"""Arguments of the operator this module was written for."""


def library() -> Path | None:
    """Path of the library, or None; an `ENCGRAPH_FA3` that names no file is None as well."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named) if Path(named).is_file() else None
    found = importlib.util.find_spec("vllm")
    places = (found.submodule_search_locations or ()) if found else ()
    paths = (Path(place) / INSIDE_VLLM for place in places)
    return next((path for path in paths if path.is_file()), None)


def missing(device: torch.device, dtype: torch.dtype) -> str | None:
    """What stops this attention here, or None."""
    if library() is None:
        named = os.environ.get(VARIABLE)
        if named:
            return f"{VARIABLE} must name the library's file, got {named!r}"
        return f"fa3 needs vLLM installed, or {VARIABLE}=/path/to/{INSIDE_VLLM.name}"
    if device.type != "cuda":
        return f"fa3 needs a CUDA card, got device {str(device)!r}"
    if dtype not in (torch.float16, torch.bfloat16):
        return f"fa3 needs float16 or bfloat16, got {dtype}"
    if torch.cuda.get_device_capability(device)[0] != 9:
        return "fa3 needs a Hopper card (compute capability 9)"
    return _unloadable()


def attend(  # noqa: PLR0913 - the one signature of packed attention
    q_PHD: Tensor,
    k_PHD: Tensor,
    v_PHD: Tensor,
    offsets_S1: Tensor,
    longest: int,
    *,
    scale: float,
    out: Tensor | None = None,
) -> Tensor:
    """Attend within segments on the current stream; see `sdpa.attend` for the arguments.

    The kernel loads whole tiles of values past a segment's end and multiplies them by zero, so
    every row of v must be finite. Query rows past `longest` in a segment are not computed.
    """
    if out is None:
        out = torch.zeros_like(q_PHD, memory_format=torch.contiguous_format)
    _operator()(
        q_PHD,
        k_PHD,
        v_PHD,
        *(None, None, None),  # new keys and values, q_v
        out,
        *(offsets_S1, offsets_S1, None),  # offsets of q, k and new keys
        *(None, None),  # rows used of q and k
        *(longest, longest),
        *(None, None, None),  # page table, batch index, left padding
        *(None, None, None),  # rotary
        *(None, None, None),  # scales of 8-bit inputs
        scale,
        *(False, -1, -1, 0.0),  # causal, window, soft cap
        True,  # rotary interleaved: without effect, no rotary is given
        *(None, 1, None, 0),  # schedule, splits, packed grouped heads, spared multiprocessors
        None,  # sinks
        *(1, 0, None),  # context parallel: world size, rank, rows used
    )
    return out


@cache
def _operator() -> torch._ops.OpOverload:
    """Load the library once and return its forward.

    Raises:
        RuntimeError: If the operator takes other arguments than those known here.
    """
    path = library()
    assert path is not None, "missing() is asked before attend()"
    torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
    forward: torch._ops.OpOverload = torch.ops._vllm_fa3_C.fwd.default
    given = len(forward._schema.arguments)
    if given != ARGUMENTS:
        raise RuntimeError(
            f"the FlashAttention-3 of {str(path)!r} must take {ARGUMENTS} arguments, got {given}; "
            f"set {VARIABLE} to the library of vLLM 0.33"
        )
    return forward


@cache
def _unloadable() -> str | None:
    """Why the library does not load, or None; tried once."""
    try:
        _operator()
    except (OSError, RuntimeError, AttributeError) as error:
        return f"fa3's library does not load: {str(error).splitlines()[0]}"
    return None

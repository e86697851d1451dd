"""Named presets of the pieces: which plan, packing, metadata, slabs, fill and ownership make a system.

A strategy chooses among pieces that exist; it holds no code. The names are those of `bench`.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A named preset of the pieces; see `strategies`."""

    name: str
    about: str
    plan: str | None
    """"doubling", "fitted", "exact", "exact_items", "compile", or None for no graphs."""
    packing: str = "ascending"
    metadata: Literal["graph", "host"] = "graph"
    """"graph" (computed inside the captured region) or "host" (computed before each replay)."""
    slabs: Literal["shared", "private"] = "shared"
    """"shared" (prefix views of one slab) or "private" (buffers of its own for each graph)."""
    fill: Literal["prefix", "zero_and_copy"] = "prefix"
    """"prefix" (write what changed) or "zero_and_copy" (zero a whole buffer, then copy)."""
    ownership: Literal["one_copy", "clone_each"] = "one_copy"
    """"one_copy" (one clone a replay, sliced) or "clone_each" (one clone an item)."""
    eager: Literal["varlen", "stock"] = "varlen"
    """Eager forward for fallbacks: "varlen" (packed attention) or "stock" (untouched)."""
    attention: str = "auto"
    compiled: bool = False


EAGER = Strategy(
    name="eager",
    about="the untouched forward of transformers, one SDPA call an item",
    plan=None,
    eager="stock",
)
EAGER_VARLEN = Strategy(
    name="eager_varlen",
    about="best eager: packed attention, linear patch embedding, metadata on the host",
    plan=None,
)
VLLM = Strategy(
    name="vllm",
    about="vLLM's encoder graphs as shipped: doubling budgets, ascending with defer, host metadata",
    plan="doubling",
    metadata="host",
    slabs="private",
    fill="zero_and_copy",
    ownership="clone_each",
)
VLLM_TUNED = Strategy(
    name="vllm_tuned",
    about="vLLM's encoder graphs with fitted budgets and few items a graph",
    plan="fitted",
    metadata="host",
    slabs="private",
    fill="zero_and_copy",
    ownership="clone_each",
)
ENCGRAPH_PLAIN = Strategy(
    name="encgraph_plain",
    about="ours on the very kernels of `vllm`: plan, packing, slabs and in-graph metadata only",
    plan="fitted",
    packing="cheapest",
)
ENCGRAPH = Strategy(
    name="encgraph",
    about="ours with the fastest attention found and the repeated block compiled",
    plan="fitted",
    packing="cheapest",
    compiled=True,
)

STRATEGIES = {s.name: s for s in (EAGER, EAGER_VARLEN, VLLM, VLLM_TUNED, ENCGRAPH_PLAIN, ENCGRAPH)}


def named(name: str) -> Strategy:
    """Look a strategy up by name.

    Raises:
        ValueError: If there is none of that name.
    """
    if name not in STRATEGIES:
        raise ValueError(f"strategy must be one of {sorted(STRATEGIES)}, got {name!r}")
    return STRATEGIES[name]

"""Named presets of the pieces: which plan, packing, metadata, slabs, fill and ownership make a system.

A strategy chooses among pieces that exist; it holds no code. The names are those of `bench`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from encgraph.errors import nearest, require

UNPLANNED = (None, "exact", "compile")
"""Kinds of plan that name no budgets."""
PIECES: Mapping[str, tuple[str | None, ...]] = {
    "plan": ("doubling", "fitted", "exact_items", *UNPLANNED),
    "metadata": ("graph", "host"),
    "slabs": ("shared", "private"),
    "fill": ("prefix", "zero_and_copy"),
    "ownership": ("one_copy", "clone_each"),
    "eager": ("varlen", "stock"),
    "item_caps": ("one", "each"),
}
"""What a strategy chooses among."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A named preset of the pieces; see `strategies`."""

    name: str
    about: str
    plan: str | None
    """"doubling", "fitted", "exact" (a graph a layout), "exact_items" (a graph an item count),
    "compile" (what torch.compile records itself), or None for no graphs."""
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
    """On a card; elsewhere whatever runs there."""
    compiled: bool = False
    fused: bool = False
    """Whether a compiled block has its passes joined by hand, where the family's can be."""
    item_caps: Literal["one", "each"] = "each"
    """"one" (the same item cap for all budgets, as engines have it) or "each" (what the budget needs)."""

    def __post_init__(self) -> None:
        """Refuse what is no choice: elsewhere it would pass for the other one."""
        for field, known in PIECES.items():
            value = getattr(self, field)
            require(value in known, f"{field} must be one of {[*known]}, got {value!r}")

    @property
    def switches(self) -> dict[str, Any]:
        """Where the switches of an encoder stand; its attention is chosen with the machine."""
        return {
            "metadata": self.metadata,
            "eager_forward": self.eager,
            "fill_rule": self.fill,
            "attention_slab": self.slabs == "shared",
            "compiled": self.compiled,
            "fused": self.fused,
        }


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
    item_caps="one",
)
VLLM_TUNED = replace(
    VLLM,
    name="vllm_tuned",
    about="vLLM's encoder graphs with fitted budgets and few items a graph",
    plan="fitted",
)
ENCGRAPH_PLAIN = Strategy(
    name="encgraph_plain",
    about="ours on the very kernels of `vllm`: plan, packing, slabs and in-graph metadata only",
    plan="fitted",
    packing="cheapest",
)
ENCGRAPH = replace(
    ENCGRAPH_PLAIN,
    name="encgraph",
    about="ours with the fastest attention found and the repeated block compiled and fused",
    compiled=True,
    fused=True,
)

EAGER_COMPILED = replace(
    EAGER_VARLEN,
    name="eager_compiled",
    about="best eager with the repeated block compiled: what a compiled strategy must beat",
    compiled=True,
)
EAGER_FUSED = replace(
    EAGER_COMPILED,
    name="eager_fused",
    about="the same with the block's passes joined by hand: what a fused strategy must beat",
    fused=True,
)
SGLANG_EXACT = Strategy(
    name="sglang_exact",
    about="SGLang's way: a graph for each exact layout that came back, all else eager",
    plan="exact",
    packing="exact",
    metadata="host",
    slabs="private",
)
TRTLLM = Strategy(
    name="trtllm",
    about="TensorRT-LLM's way: graphs of an exact item count, padding in a dummy segment of its own",
    plan="exact_items",
    packing="exact_items",
    metadata="host",
    slabs="private",
)
COMPILE_REDUCE_OVERHEAD = Strategy(
    name="compile_reduce_overhead",
    about="the whole forward under torch.compile(mode='reduce-overhead') for the commonest layouts",
    plan="compile",
    packing="exact",
    slabs="private",
    compiled=True,
)

LADDER = (
    replace(
        VLLM,
        name="ladder_vllm",
        about="rung 0: vLLM's graphs as shipped, flash attention",
        attention="flash",
    ),
    replace(
        VLLM_TUNED,
        name="ladder_plan",
        about="rung 1: budgets fitted to the traffic, packed by predicted time; one item cap",
        packing="cheapest",
        attention="flash",
    ),
    replace(
        ENCGRAPH_PLAIN,
        name="ladder_slabs",
        about="rung 2: shared slabs, metadata inside the graph, one copy of the outputs",
        item_caps="one",
        attention="flash",
    ),
    replace(
        ENCGRAPH_PLAIN,
        name="ladder_caps",
        about="rung 3: an item cap for each budget",
        attention="flash",
    ),
    replace(
        ENCGRAPH_PLAIN,
        name="ladder_attention",
        about="rung 4: FlashAttention-3",
        attention="fa3",
    ),
    replace(
        ENCGRAPH,
        name="ladder_compile",
        about="rung 5: the repeated block compiled",
        attention="fa3",
        fused=False,
    ),
    replace(
        ENCGRAPH,
        name="ladder_kernels",
        about="rung 6: GELU inside the product, norms joined across blocks, one front",
        attention="fa3",
    ),
)
"""The ablation ladder: from vLLM's graphs to ours, one idea a rung."""

STRATEGIES = {
    s.name: s
    for s in (
        EAGER,
        EAGER_VARLEN,
        EAGER_COMPILED,
        EAGER_FUSED,
        COMPILE_REDUCE_OVERHEAD,
        SGLANG_EXACT,
        TRTLLM,
        VLLM,
        LADDER[0],
        VLLM_TUNED,
        *LADDER[1:4],
        ENCGRAPH_PLAIN,
        *LADDER[4:],
        ENCGRAPH,
    )
}
"""In the order of the ideas, which tables and figures keep: eager, other systems, then ours with more and more."""
GROUPS = {"ladder": LADDER}
"""Several strategies by one name."""


def named(name: str) -> Strategy:
    """Look a strategy up by name.

    Raises:
        ValueError: If there is none of that name.
    """
    if name not in STRATEGIES:
        raise ValueError(
            f"strategy must be a preset by name, got {name!r}; {nearest(name, STRATEGIES)}"
            "`encgraph run --help` says what there is"
        )
    return STRATEGIES[name]


def chosen(names: str) -> list[Strategy]:
    """Strategies of a list of names with commas between; the name of a group stands for its members.

    One that is in a group named as well is there once.

    Raises:
        ValueError: If there is none of a name, or a name is there twice.

    >>> [s.name for s in chosen("eager, ladder")][:3]
    ['eager', 'ladder_vllm', 'ladder_plan']
    """
    found: dict[str, Strategy] = {}
    parts = [part.strip() for part in names.split(",")]
    for at, name in enumerate(parts):
        require(name not in parts[:at], f"strategies must be named once each, got {name!r} twice")
        for strategy in GROUPS.get(name) or (named(name),):
            found[strategy.name] = strategy
    return list(found.values())

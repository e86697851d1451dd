"""What must be the same on every rank before any work: encoder, weights, plan, rules, versions."""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import chain

import torch
import transformers

import encgraph
from encgraph import codec
from encgraph.encoders.protocol import Encoder
from encgraph.records import Plan

_SAMPLES = 16
"""Values read of each parameter and buffer; a difference between them goes unseen."""


def facts(encoder: Encoder, plan: Plan, rules: Mapping[str, str]) -> dict[str, str]:
    """Facts of a rank by name, as texts to compare.

    Args:
        encoder: Reads a few values of each parameter and buffer, in one copy from the device.
        plan: As given to the runner.
        rules: Further choices of the runner by name.
    """
    spec = encoder.spec
    return {
        "encoder": spec.name,
        "output widths": repr(spec.widths),
        "dtype": str(spec.dtype),
        "attention": spec.attention,
        "compiled": repr(spec.compiled),
        "fused": repr(spec.fused),
        "weights": weights_digest(encoder.module),
        "token budgets": repr(plan.token_budgets),
        "plan": _digest(codec.dumps(plan).encode()),
        **rules,
        "encgraph": encgraph.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


@torch.no_grad()
def weights_digest(module: torch.nn.Module) -> str:
    """Digest of names, shapes, dtypes and a few values of every parameter and buffer; bits, not nearness."""
    hashed = hashlib.sha256()
    sampled = []
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        hashed.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        parts = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        values = parts.detach().reshape(-1)
        step = max(1, len(values) // _SAMPLES)
        sampled.append(values[::step][:_SAMPLES].float())
    if sampled:
        hashed.update(torch.cat(sampled).cpu().numpy().tobytes())
    return hashed.hexdigest()[:12]


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:12]


def differences(ranks: Sequence[Mapping[str, str]]) -> list[str]:
    """What differs from rank 0, a sentence for each fact and the first rank that differs."""
    first, found = ranks[0], []
    for name in dict.fromkeys(name for known in ranks for name in known):
        expected = first.get(name)
        for rank, known in enumerate(ranks):
            if known.get(name) != expected:
                found.append(f"{name}: rank 0 has {expected}, rank {rank} has {known.get(name)}")
                break
    return found

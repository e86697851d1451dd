"""Check one encoder: parity with eager, poisoned padding, ownership of outputs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import typer

from encgraph import budgets, checks, sizes
from encgraph.budgets import Target
from encgraph.cli import machines, output
from encgraph.cli.options import Backend
from encgraph.encoders import inputs, registry
from encgraph.encoders.protocol import Input
from encgraph.encoders.qwen_vl import QwenVL
from encgraph.runner import EncoderRunner
from encgraph.sizes import EncoderSize, Grid

ITEMS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One check and its outcome."""

    name: str
    passed: bool
    detail: str


def show(encoder: str, backend: Backend | None, *, seed: int, as_json: bool) -> None:
    """Run the checks, a line each.

    Raises:
        typer.Exit: With status 1 if one failed.
    """
    size = sizes.named(encoder)
    machine = machines.chosen(backend)
    output.note(machine.said)
    built = registry.named(size.name, device=machine.device, dtype=machine.dtype, seed=seed)
    smallest = built.spec.min_tokens
    plan = budgets.doubling(smallest, 4 * smallest, target=Target(size=size), items=ITEMS)
    with EncoderRunner(encoder=built, plan=plan, backend=machine.backend) as runner:
        runner.capture()
        found = list(_checked(runner, built, size, seed))
    if as_json:
        output.machine(found)
    else:
        rows = [(one.name, "passed" if one.passed else "FAILED", one.detail) for one in found]
        output.console().print(output.table(("check", "outcome", "detail"), rows))
    if not all(one.passed for one in found):
        raise typer.Exit(1)


def _checked(
    runner: EncoderRunner, built: QwenVL, size: EncoderSize, seed: int
) -> Iterator[Checked]:
    batches = [_batch(built, size, tokens, seed + i) for i, tokens in enumerate(_tokens(built))]
    yield _captured(runner)
    yield _parity(runner, built, batches)
    yield _poison(runner, batches[0])
    yield _ownership(runner, batches)


def _tokens(built: QwenVL) -> Sequence[Sequence[int]]:
    """Tokens an item: one smallest item, several that share a replay, one over every budget."""
    low = built.spec.min_tokens
    return (low,), (low, 2 * low, low), (5 * low,)


def _batch(built: QwenVL, size: EncoderSize, tokens: Sequence[int], seed: int) -> list[Input]:
    grids: list[Grid] = [sizes.near_square_grid(count, size.rule) for count in tokens]
    spec = built.spec
    return inputs.synthetic(grids, size=size, device=spec.device, dtype=spec.dtype, seed=seed)


def _captured(runner: EncoderRunner) -> Checked:
    made = runner.graphs.graphs if runner.graphs else []
    failures = [f"{g.capacity.tokens} tokens: {g.failure}" for g in made if not g.is_captured]
    budgets_said = ", ".join(str(graph.capacity.tokens) for graph in made)
    return Checked(
        name="capture",
        passed=bool(made) and not failures,
        detail="; ".join(failures) or f"budgets {budgets_said}",
    )


def _parity(runner: EncoderRunner, built: QwenVL, batches: Sequence[Sequence[Input]]) -> Checked:
    exact = built.spec.dtype == torch.float32
    oracle = None if exact else built.oracle().eager
    found = checks.parity(runner.execute, batches, eager=built.stock().eager, oracle=oracle)
    worst = found.worst
    assert worst is not None
    return Checked(
        name="parity",
        passed=found.holds,
        detail=f"{len(found.items)} items, replayed and fallen back; worst relative error "
        f"{worst.error_ratio:.3g} against {found.oracle}, {worst.tolerance_ratio:.3g} allowed",
    )


def _poison(runner: EncoderRunner, batch: Sequence[Input]) -> Checked:
    assert runner.graphs is not None
    live = sum(value.item.tokens for value in batch)
    captured = [
        index
        for index, graph in enumerate(runner.graphs.graphs)
        if graph.is_captured and graph.capacity.tokens > live
    ]
    leaks = [i for i in captured if not checks.poison(runner.graphs, batch, graph=i)]
    return Checked(
        name="poison",
        passed=bool(captured) and not leaks,
        detail=f"NaN in the padding of {len(captured)} graphs changed {len(leaks)} of them",
    )


def _ownership(runner: EncoderRunner, batches: Sequence[Sequence[Input]]) -> Checked:
    """Outputs stay as they are when other batches are executed."""
    kept = [tensor for output in runner.execute(batches[0]) for tensor in output.tensors]
    before = [tensor.clone() for tensor in kept]
    for batch in batches[1:]:
        runner.execute(batch)
    same = all(torch.equal(mine, then) for mine, then in zip(kept, before, strict=True))
    detail = "outputs stay the caller's" if same else "a later batch changed outputs"
    return Checked(name="ownership", passed=same, detail=detail)

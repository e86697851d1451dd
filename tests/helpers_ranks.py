"""What the cases that run on every rank share: a sharded runner, and what it must agree with or refuse."""

from collections.abc import Callable

from helpers import TINY, close, plan
from helpers import tiny as tiny_on

from encgraph import balance, costs
from encgraph.encoders.protocol import Input
from encgraph.parallel.notices import RankError
from encgraph.parallel.ranks import Ranks
from encgraph.parallel.sharded import ShardedRunner
from encgraph.runner import EncoderRunner

COSTS = costs.modelled(TINY)


def tiny(ranks: Ranks, seed: int = 0):
    return tiny_on("cuda" if ranks.device.type == "cuda" else "reference", seed=seed)


def sharded(ranks: Ranks, *budgets: int, rule: str = "longest_first", seed: int = 0, **options):
    backend = "cuda" if ranks.device.type == "cuda" else "reference"
    runner = EncoderRunner(encoder=tiny(ranks, seed), plan=plan(*budgets), backend=backend)
    assign = balance.rule(rule, COSTS)
    return ShardedRunner(runner=runner, ranks=ranks, assign=assign, **options)


def agrees_with_eager(one: ShardedRunner, inputs: list[Input], *others: ShardedRunner) -> None:
    encoder = one.runner.encoder
    expected = encoder.eager(inputs)
    for sharded_runner in (one, *others):
        outputs = sharded_runner.execute(inputs)
        assert len(outputs) == len(inputs)
        for mine, eager in zip(outputs, expected, strict=True):
            assert close(mine, eager, encoder)


def refused(run: Callable[[], object], *words: str, kind: type[Exception] = RankError) -> str:
    try:
        run()
    except kind as error:
        assert all(word in str(error) for word in words), str(error)
        return str(error)
    raise AssertionError(f"nothing was refused; expected {words}")


def told_alike(ranks: Ranks, text: str) -> None:
    """Every rank raised the very same words."""
    ranks.board.agree(lambda: (None, text), about="the error")

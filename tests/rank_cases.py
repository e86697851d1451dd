"""Cases that torchrun runs on every rank; `test_parallel` starts it and reads what each rank found.

torchrun --nproc-per-node N tests/rank_cases.py FOLDER DEVICE CASE...
"""

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from helpers import batch, close
from helpers_ranks import agrees_with_eager, refused, sharded, tiny, told_alike

from encgraph import balance, meters
from encgraph.encoders.protocol import Input
from encgraph.parallel import ranks as joining
from encgraph.parallel.ranks import Ranks
from encgraph.parallel.sharded import Lazy, ShardedRunner

TIME_LIMIT_S = 60.0
TRACE_AFTER_S = 40.0
"""After which a case that still runs says where it is."""
GRIDS = [(4, 4), (8, 8), (4, 8), (16, 8), (8, 8)]
MIXED = [(16, 16), (8, 8), (4, 8, 8), (4, 4), (40, 40), (12, 16), (2, 8, 4)]


def every_number_of_items(ranks: Ranks) -> None:
    with sharded(ranks, 16, 64) as padded, sharded(ranks, 16, 64, gather="uneven") as uneven:
        padded.capture()
        uneven.capture()
        for count in range(5 * ranks.size + 1):
            grids = [GRIDS[i % len(GRIDS)] for i in range(count)]
            agrees_with_eager(padded, batch(grids, padded.runner.encoder, seed=count), uneven)
            mine = uneven.last.assignment.ranks[ranks.rank]
            assert (uneven.last.tokens == 0) == (not mine)


def every_rule(ranks: Ranks) -> None:
    for rule in balance.RULES:
        with sharded(ranks, 16, 64, rule=rule) as one:
            one.capture()
            agrees_with_eager(one, batch(MIXED[:4], one.runner.encoder))


def one_giant_among_tiny_items(ranks: Ranks) -> None:
    with sharded(ranks, 16, 64) as padded, sharded(ranks, 16, 64, gather="uneven") as uneven:
        padded.capture()
        inputs = batch([(4, 4)] * 9 + [(64, 48)], padded.runner.encoder)
        agrees_with_eager(padded, inputs, uneven)
        assert (9,) in padded.last.assignment.ranks


def without_graphs(ranks: Ranks) -> None:
    with sharded(ranks) as one:
        agrees_with_eager(one, batch(MIXED, one.runner.encoder))


def a_kept_result_frees_the_rest(ranks: Ranks) -> None:
    with sharded(ranks, 64) as one:
        inputs = batch(MIXED, one.runner.encoder)
        row_bytes = sum(one.runner.encoder.spec.widths) * one.runner.encoder.spec.dtype.itemsize
        outputs = one.execute(inputs)
        for value, output in zip(inputs, outputs, strict=True):
            stores = {t.untyped_storage().data_ptr() for t in output.tensors}
            assert len(stores) == 1
            assert output.main.untyped_storage().nbytes() == value.item.tokens * row_bytes
        shared = replace_ownership(one, "one_copy").execute(inputs)
        assert shared[3].main.untyped_storage().nbytes() > inputs[3].item.tokens * row_bytes


def replace_ownership(one: ShardedRunner, ownership: str) -> ShardedRunner:
    return ShardedRunner(runner=one.runner, ranks=one.ranks, assign=one.assign, ownership=ownership)


def each_rank_loads_only_its_own_pixels(ranks: Ranks) -> None:
    with sharded(ranks, 64) as one:
        inputs = [replace(v, pixels=v.pixels.cpu()) for v in batch(MIXED, one.runner.encoder)]
        loaded: list[int] = []

        def load(index: int) -> Input:
            loaded.append(index)
            return inputs[index]

        lazy = [Lazy(item=v.item, load=lambda i=i: load(i)) for i, v in enumerate(inputs)]
        outputs = one.execute(lazy)
        mine = one.last.assignment.ranks[ranks.rank]
        assert tuple(loaded) == mine
        assert one.last.pixel_bytes == sum(inputs[i].pixels.nbytes for i in mine)
        on_host = ranks.device.type == "cpu"
        assert one.last.copied_bytes == (0 if on_host else one.last.pixel_bytes)
        for output, eager in zip(outputs, tiny(ranks).eager(inputs), strict=True):
            assert close(output, eager, one.runner.encoder)


def uneven_sends_no_padding(ranks: Ranks) -> None:
    sent = {}
    for gather in ("padded", "uneven"):
        with sharded(ranks, 64, gather=gather) as one:
            inputs = batch([(4, 4)] * 3 + [(16, 16)], one.runner.encoder)
            one.execute(inputs)
            spec = one.runner.encoder.spec
            row_bytes = sum(spec.widths) * spec.dtype.itemsize
            sent[gather] = one.last.sent_bytes
    shares = [sum(inputs[i].item.tokens for i in mine) for mine in one.last.assignment.ranks]
    assert sent["uneven"] == shares[ranks.rank] * row_bytes * (ranks.size - 1)
    assert sent["padded"] == max(shares) * row_bytes * (ranks.size - 1)
    assert max(shares) >= 64  # the one large item's rank, whichever else it got


def a_failing_rank_fails_all_alike(ranks: Ranks) -> None:
    with sharded(ranks, 64, rule="round_robin") as one:
        inputs = batch([(4, 4)] * ranks.size, one.runner.encoder)

        def corrupt() -> Input:
            raise OSError("broken image")

        bad = ranks.size - 1
        lazy = [*inputs[:-1], Lazy(item=inputs[-1].item, load=corrupt)]
        text = refused(lambda: one.execute(lazy), f"rank {bad}: ", f"item {bad}", "broken image")
        told_alike(ranks, text)
        agrees_with_eager(one, inputs)


def pixels_of_another_size_are_refused(ranks: Ranks) -> None:
    with sharded(ranks, 64, rule="round_robin") as one:
        small, large = batch([(4, 4), (8, 8)], one.runner.encoder)
        lying = Lazy(item=small.item, load=lambda: large)
        text = refused(lambda: one.execute([small, lying]), "item 1 must have the 4 tokens")
        told_alike(ranks, text)


def what_is_not_an_input_is_named(ranks: Ranks) -> None:
    with sharded(ranks, 64) as one:
        text = refused(lambda: one.execute([torch.zeros(3)]), "item 0 must be an Input or Lazy")
        told_alike(ranks, text)


def a_capture_that_fails_on_one_rank_fails_all(ranks: Ranks) -> None:
    with sharded(ranks, 64) as one:
        if ranks.rank == 1:
            one.runner.encoder.module.blocks[0].register_forward_hook(lambda *given: None)
        text = refused(one.capture, "capturing failed on 1 of", "rank 1: CaptureError")
        told_alike(ranks, text)
        assert not one.runner.has_graphs


def different_batches_are_refused(ranks: Ranks) -> None:
    with sharded(ranks, 64) as one:
        grids = [(4, 4), (8, 8)] if ranks.rank else [(4, 4)]
        inputs = batch(grids, one.runner.encoder)
        text = refused(
            lambda: one.execute(inputs), "rank 0 has 1 items of 4 tokens", "rank 1 has 2"
        )
        told_alike(ranks, text)


def other_pixels_of_the_same_sizes_are_refused(ranks: Ranks) -> None:
    with sharded(ranks, 64) as one:
        drawn = [batch([(4, 4), (8, 8)], one.runner.encoder, seed=seed) for seed in (0, 1)]
        inputs, others = ([replace(v, pixels=v.pixels.cpu()) for v in made] for made in drawn)
        mixed = [inputs[0], others[1]] if ranks.rank == ranks.size - 1 else inputs
        text = refused(
            lambda: one.execute(mixed), f"item 1 has other pixels on rank {ranks.size - 1} than on"
        )
        told_alike(ranks, text)
        agrees_with_eager(one, inputs)


def different_plans_are_refused(ranks: Ranks) -> None:
    one = sharded(ranks, 16, 64 if ranks.rank else 128)
    words = ("token budgets: rank 0 has (16, 128), rank 1 has (16, 64)",)
    told_alike(ranks, refused(one.capture, *words, kind=ValueError))
    assert not one.runner.has_graphs
    told_alike(ranks, refused(lambda: one.execute([]), *words, kind=ValueError))


def different_weights_are_refused(ranks: Ranks) -> None:
    one = sharded(ranks, 16, seed=ranks.rank)
    text = refused(one.capture, "weights: rank 0 has", kind=ValueError)
    assert "budgets" not in text


def different_buffers_are_refused(ranks: Ranks) -> None:
    one = sharded(ranks, 16)
    if ranks.rank == ranks.size - 1:
        for buffer in one.runner.encoder.module.buffers():
            buffer.mul_(2)
    refused(one.capture, "weights: rank 0 has", f"rank {ranks.size - 1} has", kind=ValueError)


def different_rules_are_refused(ranks: Ranks) -> None:
    one = sharded(
        ranks,
        16,
        rule="count" if ranks.rank else "tokens",
        gather="uneven" if ranks.rank else "padded",
    )
    words = ("balance rule: rank 0 has tokens, rank 1 has count", "gather: rank 0 has padded")
    refused(one.capture, *words, kind=ValueError)


def joining_again_reads_no_old_notices(ranks: Ranks) -> None:
    with joining.connect(ranks.device.type, time_limit_s=TIME_LIMIT_S) as again:
        assert (again.rank, again.size) == (ranks.rank, ranks.size)
        with sharded(again, 64) as one:
            agrees_with_eager(one, batch(MIXED, one.runner.encoder))


def a_rank_without_a_card_stops_all(ranks: Ranks) -> None:
    if torch.cuda.device_count() < ranks.size:
        text = refused(
            lambda: joining.connect("cuda", time_limit_s=TIME_LIMIT_S),
            f"local rank {ranks.size - 1} needs a card of its own",
        )
        told_alike(ranks, text)


def a_killed_rank_is_named(ranks: Ranks) -> None:
    """Last of its launch: torchrun ends the ranks that are left, once they have said what they saw."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ranks.board.time_limit_s = (
        12.0  # under the 30 s that torchrun leaves, over a busy machine's pauses
    )
    with sharded(ranks, 64) as one:
        inputs = batch(MIXED, one.runner.encoder)
        one.execute(inputs)
        # A rank that dies in a gather leaves the others' cards in it, and their hosts behind the cards.
        meters.synchronize(ranks.device)
        told_alike(ranks, "every card is done")
        if ranks.rank == ranks.size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        named = f"rank {ranks.size - 1} of {ranks.size} said nothing within 12 s"
        refused(lambda: one.execute(inputs), named)
        refused(lambda: one.execute(inputs), named)


CASES = {
    case.__name__: case
    for case in (
        every_number_of_items,
        every_rule,
        one_giant_among_tiny_items,
        without_graphs,
        a_kept_result_frees_the_rest,
        each_rank_loads_only_its_own_pixels,
        uneven_sends_no_padding,
        a_failing_rank_fails_all_alike,
        pixels_of_another_size_are_refused,
        what_is_not_an_input_is_named,
        a_capture_that_fails_on_one_rank_fails_all,
        different_batches_are_refused,
        other_pixels_of_the_same_sizes_are_refused,
        different_plans_are_refused,
        different_weights_are_refused,
        different_buffers_are_refused,
        different_rules_are_refused,
        joining_again_reads_no_old_notices,
        a_rank_without_a_card_stops_all,
        a_killed_rank_is_named,
    )
}


def found(case: Callable[[Ranks], None], ranks: Ranks) -> str:
    try:
        case(ranks)
    except Exception:
        return traceback.format_exc()
    return "as it should be"


def told(ranks: Ranks, text: str) -> None:
    """One write a line, so that those of several ranks do not run into each other."""
    sys.stdout.write(f"rank {ranks.rank} of {ranks.size} {text}\n")
    sys.stdout.flush()


def main(folder: Path, device: str, names: list[str]) -> None:
    with joining.connect(device, time_limit_s=TIME_LIMIT_S) as ranks:
        results = {}
        for name in names:
            told(ranks, f"begins {name}")
            began_s = time.monotonic()
            faulthandler.dump_traceback_later(TRACE_AFTER_S)
            results[name] = found(CASES[name], ranks)
            faulthandler.cancel_dump_traceback_later()
            told(ranks, f"ends {name} after {time.monotonic() - began_s:.1f} s: {results[name]}")
            (folder / f"{ranks.rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])

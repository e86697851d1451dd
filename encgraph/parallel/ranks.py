"""Join the ranks that torchrun started: one process a card, a store to talk over, a group to gather in.

The store is met first, so that a rank without a card or NCCL says so to all, and nobody waits in a
collective for it. A process that torchrun did not start is rank 0 of 1 and needs neither.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import distributed
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from encgraph.errors import require
from encgraph.parallel.notices import Board
from encgraph.tabular import Showing

DEVICES = ("cuda", "cpu")
TIME_LIMIT_S = 60.0


@dataclass(slots=True, kw_only=True, eq=False)
class Ranks(Showing):
    """This process among its ranks; a context manager that leaves the process group it made."""

    rank: int
    size: int
    device: torch.device
    """Of this rank's encoder."""
    board: Board
    """Shared by all that is agreed on these ranks."""
    owns_group: bool = False

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the process group, if `connect` made it; idempotent.

        Once a rank is lost there is nobody to take leave of, and NCCL would wait: exiting ends it.
        """
        if self.owns_group and not self.board.lost and distributed.is_initialized():
            distributed.destroy_process_group()
        self.owns_group = False


def connect(device: str = "cuda", *, time_limit_s: float = TIME_LIMIT_S) -> Ranks:
    """Join the ranks of this launch, on NCCL for cards and gloo for CPUs.

    Args:
        device: "cuda" (a card a rank, by its local rank) or "cpu".
        time_limit_s: How long a rank waits for the others before it says who is missing.

    Raises:
        ValueError: If the device is unknown, or a process alone has no card.
        RankError: On all ranks alike, if one has no card or no NCCL, or does not come.
    """
    require(device in DEVICES, f"device must be one of {DEVICES}, got {device!r}")
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 and not distributed.is_initialized():
        board = Board(store=None, rank=0, size=1, time_limit_s=time_limit_s)
        return Ranks(rank=0, size=1, device=_device(device, 0), board=board)
    store, rank, size = _meet(time_limit_s)
    # Counted, so that joining again in one process does not read the notices of the first time.
    generation = store.add(f"encgraph/joined/{rank}", 1)
    board = Board(
        store=PrefixStore(f"encgraph/{generation}", store),
        rank=rank,
        size=size,
        time_limit_s=time_limit_s,
    )
    local = int(os.environ.get("LOCAL_RANK", rank))
    mine = board.agree(lambda: (_device(device, local, size), device), about="joining the ranks")
    made = not distributed.is_initialized()
    if made:
        _join(store, rank, size, device=mine, time_limit_s=time_limit_s)
    return Ranks(rank=rank, size=size, device=mine, board=board, owns_group=made)


def _meet(time_limit_s: float) -> tuple[Store, int, int]:
    """The store of the launch, or of the process group the caller already made."""
    if distributed.is_initialized():
        # The only way to the store of a group that somebody else made.
        store = distributed.distributed_c10d._get_default_store()
        return store, distributed.get_rank(), distributed.get_world_size()
    _require_launch(os.environ)
    limit = timedelta(seconds=time_limit_s)
    store, rank, size = next(iter(rendezvous("env://", timeout=limit)))
    return store, rank, size


def _require_launch(environ: Mapping[str, str]) -> None:
    missing = [
        name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in environ
    ]
    require(
        not missing,
        f"several ranks need {', '.join(missing)} in the environment; start them with "
        "torchrun --nproc-per-node N",
    )


def _device(device: str, local_rank: int, size: int = 1) -> torch.device:
    """This rank's device, or why it has none."""
    if device == "cpu":
        require(
            size == 1 or distributed.is_gloo_available(),
            "ranks on CPU need gloo, which this build of torch lacks; install another build",
        )
        return torch.device("cpu")
    cards = torch.cuda.device_count()
    require(
        local_rank < cards,
        f"local rank {local_rank} needs a card of its own, this host has {cards}; start "
        f"{max(cards, 1)} with --nproc-per-node, or connect with device 'cpu'",
    )
    require(
        size == 1 or distributed.is_nccl_available(),
        "ranks on cards need NCCL, which this build of torch lacks; install one with CUDA, or "
        "connect with device 'cpu'",
    )
    return torch.device("cuda", local_rank)


def _join(store: Store, rank: int, size: int, *, device: torch.device, time_limit_s: float) -> None:
    on_card = device.type == "cuda"
    if on_card:
        torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl" if on_card else "gloo",
        store=store,
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=time_limit_s),
        device_id=device if on_card else None,
    )

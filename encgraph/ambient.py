"""Keep a caller's autocast and inference mode out of what a graph holds and of what it is compared with.

Under autocast the forward would read casts of the weights, which autocast caches: a weight edited in
place is then not seen, and on a card a graph would hold the address of a cast that is freed when the
block ends. So captures, replays and eager runs keep to the encoder's own dtypes, inside autocast or
not. Tensors made in inference mode cannot be written to outside it, so static tensors never are.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

_NOTHING = nullcontext()


def own_dtypes(device: torch.device) -> AbstractContextManager[object]:
    """Switch autocast off for a device, where it is on."""
    kind = device.type
    if torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return _NOTHING


@contextmanager
def kept_out(device: torch.device) -> Iterator[None]:
    """Switch off what static tensors and captures must not see: inference mode and autocast."""
    with torch.inference_mode(False), own_dtypes(device):
        yield

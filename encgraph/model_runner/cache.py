"""Keep encoder outputs by the content of their items, in bounded bytes, least recently used out first."""

import hashlib
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.errors import require
from encgraph.model_runner.facts import CacheFacts
from encgraph.watch import Watch


def content_key(value: Input) -> str:
    """Hash of an item's pixels, their type and its grid; copies to the host what lies on a card."""
    pixels = value.pixels.detach().cpu().contiguous()
    about = f"{tuple(value.grid)} {tuple(pixels.shape)} {pixels.dtype}"
    made = hashlib.sha256(about.encode())
    raw: Any = pixels.view(torch.uint8).numpy()
    made.update(raw)
    return made.hexdigest()


class EncoderCache:
    """Outputs by content key; owns what it holds.

    What `find` returns stays valid after its eviction, since tensors live as long as somebody uses
    them; it must not be written to. What is not finite is never found, since it may be the fault of
    another item that shared a replay. To keep an output waits for nothing: the first `find` after it
    asks the device once for all that was kept since, and waits for the work queued until then.
    """

    def __init__(self, max_bytes: int) -> None:
        """Make an empty cache.

        Raises:
            ValueError: If max_bytes is not positive.
        """
        require(max_bytes > 0, f"max_bytes must be positive, got {max_bytes!r}")
        self.max_bytes = max_bytes
        self._held: OrderedDict[str, EncoderOutput] = OrderedDict()
        self._bytes = self._hits = self._misses = self._evictions = self._refused = 0
        self._unproven: set[str] = set()
        """Keys of what nobody has read yet, to see whether it is finite."""
        self._watch: Watch | None = None
        self._versions: tuple[int, ...] = ()

    @property
    def facts(self) -> CacheFacts:
        """What it holds now, and what it was asked since it was made."""
        return CacheFacts(
            entries=len(self._held),
            held_bytes=self._bytes,
            max_bytes=self.max_bytes,
            hits=self._hits,
            misses=self._misses,
            evictions=self._evictions,
            refused=self._refused,
        )

    def find(self, key: str) -> EncoderOutput | None:
        """The output of a content, and count whether it was there."""
        self._prove()
        found = self._held.get(key)
        if found is None:
            self._misses += 1
            return None
        self._hits += 1
        self._held.move_to_end(key)
        return found

    def keep(self, key: str, output: EncoderOutput) -> None:
        """Store a copy, evicting what was unused longest; what is larger than the cache is refused.

        What is not finite is refused by the next `find`.
        """
        size = sum(t.numel() * t.element_size() for t in output.tensors)
        if size > self.max_bytes:
            self._refused += 1
            return
        self._drop(key)
        while self._bytes + size > self.max_bytes:
            self._drop(next(iter(self._held)))
            self._evictions += 1
        main, *extra = (_own(tensor) for tensor in output.tensors)
        self._held[key] = EncoderOutput(main=main, extra=tuple(extra))
        self._bytes += size
        self._unproven.add(key)

    def follow(self, module: nn.Module) -> None:
        """Forget everything if the module that made it is another, or has changed since the last call.

        Seen is what a `Watch` sees, and edits in place. An edit through `.data` leaves torch's version
        counter alone and is not.

        Raises:
            ValueError: If a part of the module is of torch.jit, which nobody can watch.
        """
        held = self._watch
        if held is not None:
            is_same = held.structure.modules[0] is module and held.changed() is None
            if is_same and _versions(held) == self._versions:
                return
            self.clear()
        self._watch = Watch.of(module, {})
        self._versions = _versions(self._watch)

    def clear(self) -> int:
        """Forget everything, and the module that made it; returns the bytes given back."""
        freed, self._bytes = self._bytes, 0
        self._held.clear()
        self._unproven.clear()
        self._watch = None
        return freed

    def _prove(self) -> None:
        """Drop what is not finite of what was kept since the last call; one wait for all of it."""
        keys = tuple(self._unproven)
        if not keys:
            return
        self._unproven.clear()
        peaks = [_peak(self._held[key]) for key in keys]
        for key, is_finite in zip(keys, torch.stack(peaks).isfinite().tolist(), strict=True):
            if not is_finite:
                self._drop(key)
                self._refused += 1

    def _drop(self, key: str) -> None:
        self._unproven.discard(key)
        dropped = self._held.pop(key, None)
        if dropped is not None:
            self._bytes -= sum(t.numel() * t.element_size() for t in dropped.tensors)


def _versions(watch: Watch) -> tuple[int, ...]:
    """Of every tensor, a number that grows when it is edited in place."""
    return tuple(0 if held.tensor.is_inference() else held.tensor._version for held in watch.held)


@torch.no_grad()
def _peak(output: EncoderOutput) -> Tensor:
    """float32 scalar: the largest magnitude, which is finite where all values are."""
    return torch.stack([t.abs().amax().float() for t in output.tensors]).amax()


def _own(tensor: Tensor) -> Tensor:
    """A copy with storage of its own: a view would keep a whole replay's rows alive."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)

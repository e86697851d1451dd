"""Keep encoder outputs by the content of their items, in bounded bytes, least recently used out first."""

import hashlib
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.errors import require
from encgraph.model_runner.facts import CacheFacts


def content_key(value: Input) -> str:
    """Hash of an item's pixels, their type and its grid; copies to the host what lies on a card."""
    pixels = value.pixels.detach().cpu().contiguous()
    about = f"{tuple(value.grid)} {tuple(pixels.shape)} {pixels.dtype}"
    made = hashlib.sha256(about.encode())
    raw: Any = pixels.view(torch.uint8).numpy()
    made.update(raw)
    return made.hexdigest()


def weights_mark(module: nn.Module) -> int:
    """A number that changes when a parameter or buffer is edited in place or bound anew.

    An edit through `.data` leaves torch's version counter alone and is not seen.
    """
    tensors = (*module.parameters(), *module.buffers())
    return hash(tuple((t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors))


class EncoderCache:
    """Outputs by content key; owns what it holds.

    What `find` returns stays valid after its eviction, since tensors live as long as somebody uses
    them; it must not be written to.
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
        self._mark: int | None = None

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
        found = self._held.get(key)
        if found is None:
            self._misses += 1
            return None
        self._hits += 1
        self._held.move_to_end(key)
        return found

    def keep(self, key: str, output: EncoderOutput) -> None:
        """Store a copy, evicting what was unused longest; what is larger than the cache is refused."""
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

    def follow(self, mark: int) -> None:
        """Forget everything if the weights that made it are not those of this mark."""
        if self._mark is not None and self._mark != mark:
            self.clear()
        self._mark = mark

    def clear(self) -> int:
        """Forget everything; returns the bytes given back."""
        freed, self._bytes = self._bytes, 0
        self._held.clear()
        return freed

    def _drop(self, key: str) -> None:
        dropped = self._held.pop(key, None)
        if dropped is not None:
            self._bytes -= sum(t.numel() * t.element_size() for t in dropped.tensors)


def _own(tensor: Tensor) -> Tensor:
    """A copy with storage of its own: a view would keep a whole replay's rows alive."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)

"""Records of a model runner: what it holds, what a capture made, what the cache holds, how long a request's stages took."""

from collections.abc import Sequence
from dataclasses import dataclass

from encgraph.errors import MOST_BYTES, MOST_TOKENS, require, whole
from encgraph.results import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Sizes of what a runner holds."""

    backend: str = "cuda"
    attention: str = "auto"
    """Packed attention of the encoder."""
    batch_sizes: tuple[int, ...] = (1, 2, 4, 8, 16)
    """Rows of each decode graph; the largest is the most prompts a batch may have."""
    length: int = 4096
    """Tokens a request may have, prompt and answer; each decode step attends over all of it."""
    cache_bytes: int = 1 << 28
    """Bound of the encoder cache."""
    slot: str | None = None
    """Adapter of the model to use as the slot that graphs read; None: no adapters."""

    def __post_init__(self) -> None:
        check_batch_sizes(self.batch_sizes)
        whole("length", self.length, most=MOST_TOKENS)
        whole("cache_bytes", self.cache_bytes, least=0, most=MOST_BYTES)


def check_batch_sizes(sizes: Sequence[int]) -> None:
    """Refuse what cannot be the rows of decode graphs.

    Raises:
        ValueError: If there is none, or one is no whole number of at least 1.
    """
    listed = isinstance(sizes, Sequence) and not isinstance(sizes, str) and len(sizes) > 0
    require(
        listed,
        f"batch_sizes must be at least one whole number, got {sizes!r:.40}; give a tuple such as (1, 2)",
    )
    for rows in sizes:
        whole("each of batch_sizes", rows)


NO_MEMORY = Memory(slabs_bytes=0, pool_bytes=0, driver_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCapture:
    """What became of the encoder's or the decoder's graphs."""

    graphs: int = 0
    """Graphs that can be replayed."""
    seconds: float = 0.0
    """Warm-ups and captures, until the device was idle."""
    memory: Memory = NO_MEMORY
    """What the graphs hold: static tensors, pool and driver apart."""
    skipped: str | None = None
    """Why nothing was tried; None if it was."""
    failures: tuple[str, ...] = ()
    """Why graphs are missing, one a graph; the rest are usable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureReport:
    """What a runner's capture made, encoder and decoder apart."""

    encoder: PartCapture
    decoder: PartCapture
    key_value_bytes: int
    """Keys and values of the decoder, which eager decoding holds too."""

    @property
    def total_bytes(self) -> int:
        """Bytes that graphs cost, both parts."""
        return self.encoder.memory.total_bytes + self.decoder.memory.total_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFacts:
    """What an encoder cache holds and what it was asked."""

    entries: int
    held_bytes: int
    max_bytes: int
    hits: int
    misses: int
    evictions: int
    refused: int
    """Outputs larger than the whole cache, and those that turned out not to be finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Wall milliseconds of one request's stages, the device synchronized around each.

    Requests of one batch share their stages, so each has the batch's times: that is what its sender
    waited for.
    """

    preprocessing_ms: float
    """Checks, content keys, position ids, and the way to the device."""
    encode_ms: float
    scatter_ms: float
    prefill_ms: float
    first_token_ms: float
    """From the call to the first token on the host: time to first token."""
    decode_ms: tuple[float, ...]
    """Each further token, in order."""

    @property
    def encode_share_ratio(self) -> float:
        """Share of the time to first token that the encoder took, 0 to 1."""
        return self.encode_ms / self.first_token_ms

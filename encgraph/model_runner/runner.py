"""Run a whole vision-language model: prompts with images and clips in, tokens out, graphs where the gates allow.

One static batch at a time: items through `EncoderRunner` and the cache, their rows into the prompts,
prefill eager, decode steps under graphs. Encoder and decoder are captured independently, the encoder
first; what one fails to capture the other does not miss.
"""

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from encgraph import graphs, meters, packing, streams
from encgraph.encoders.protocol import Encoder, EncoderOutput, Input
from encgraph.encoders.qwen_vl import QwenVL
from encgraph.errors import StaleBufferError, require
from encgraph.graphs import Observe
from encgraph.model_runner import (
    answering,
    batches,
    cache,
    captures,
    encoding,
    facts,
    gates,
    models,
    scatter,
)
from encgraph.model_runner.adapters import AdapterSlot
from encgraph.model_runner.answering import Completion, RunnerParts, WantedAnswer
from encgraph.model_runner.cache import EncoderCache
from encgraph.model_runner.decoding import Decoder
from encgraph.model_runner.facts import CaptureReport, Options
from encgraph.model_runner.gates import Decision, Gates
from encgraph.model_runner.prompts import Prompt
from encgraph.records import Plan
from encgraph.runner import FORGOTTEN, EncoderRunner, PackerOf
from encgraph.sizes import EncoderSize
from encgraph.tabular import Showing

PACKER: PackerOf = partial(packing.packer, rule="ascending")


@dataclass(slots=True, kw_only=True, eq=False)
class ModelRunner(Showing):
    """A model with its encoder runner, encoder cache and decoder; a context manager that shuts down.

    A forgotten `capture` warns."""

    model: Any
    """transformers' Qwen3VLForConditionalGeneration, in eval mode; held, not changed."""
    size: EncoderSize
    plan: Plan
    """Of the encoder graphs; an empty one leaves them off."""
    gates: Gates = field(default_factory=Gates)
    options: Options = field(default_factory=Options)
    encoder: Encoder | None = None
    """Wraps the model's tower; None: made here where the tower is supported."""
    packer: PackerOf = PACKER
    observe: Observe = graphs.unobserved
    decision: Decision = field(init=False)
    cache: EncoderCache | None = field(init=False, default=None)
    slot: AdapterSlot | None = field(init=False, default=None)
    encoders: EncoderRunner | None = field(init=False, default=None)
    """None where the tower is not supported and its own forward encodes."""
    decoder: Decoder | None = field(init=False, default=None)
    """None in encoder-only mode."""
    _parts: dict[str, Any] = field(init=False)
    """Of the model, when this was made."""
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _running: int | None = field(init=False, default=None)
    """Thread of the request in progress."""
    _stream: torch.cuda.Stream | None = field(init=False, default=None)
    _knows: bool = field(init=False, default=False)
    """Whether the caller knows what is captured."""
    _is_closing: bool = field(init=False, default=False)
    _frees_itself: bool = field(init=False, default=False)
    """Whether the request in progress has to free the memory, since it was shut down from within."""

    def __post_init__(self) -> None:
        models.check(self.model)
        self._parts = models.held_parts(self.model)
        wrapped = self.encoder is not None or models.supports(self.model)
        given = self.gates
        self.gates = replace(given, encoder_supported=given.encoder_supported and wrapped)
        self.decision = gates.decide(self.gates)
        if self.options.slot is not None:
            self.slot = AdapterSlot(self.model, self.options.slot)
        if self.gates.encoder_cache:
            self.cache = EncoderCache(self.options.cache_bytes)
        if self.gates.encoder_supported:
            self.encoders = self._encoder_runner()
        if not self.gates.encoder_only:
            self.decoder = Decoder(
                model=self.model,
                rows=max(self.options.batch_sizes),
                length=self.options.length,
                backend=self.options.backend,
                is_graphed=self.decision.decoder_off is None,
                observe=self.observe,
            )

    def __enter__(self) -> "ModelRunner":
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()

    def capture(
        self, plan: Plan | None = None, *, batch_sizes: Sequence[int] | None = None
    ) -> CaptureReport:
        """Capture what the gates allow, encoder first, after freeing what was captured before.

        Args:
            plan: Of the encoder graphs; None keeps the runner's.
            batch_sizes: Of the decode graphs; None takes the options'.

        Returns:
            What was made, encoder and decoder apart; the device is idle by then. What failed is told
            there and in one warning, and runs eager.

        Raises:
            ValueError: If plan, batch sizes or model do not suit the runner.
            RuntimeError: If it was shut down.
        """
        sizes = self.options.batch_sizes if batch_sizes is None else batch_sizes
        facts.check_batch_sizes(sizes)
        most = max(self.options.batch_sizes)
        require(
            max(sizes) <= most,
            f"batch_sizes must be 1 to {most}, got {sizes!r}; Options.batch_sizes sets the largest",
        )
        with self._request():
            self.plan = self.plan if plan is None else plan
            self._clear_graphs()
            with self.slot.dummy() if self.slot else nullcontext():
                report = CaptureReport(
                    encoder=captures.encoder(self.encoders, self.plan, self.decision),
                    decoder=captures.decoder(self.decoder, sizes, self.decision),
                    key_value_bytes=self.decoder.slabs.num_bytes if self.decoder else 0,
                )
            meters.synchronize(self.model.lm_head.weight.device)
        self._knows = True
        said = captures.warning(self.decision, report)
        if said is not None:
            warnings.warn(said, stacklevel=2)
        return report

    def encode(self, items: Sequence[Input], keys: Sequence[str] = ()) -> list[EncoderOutput]:
        """Encode images and clips alone, through graphs and cache.

        Args:
            items: Of any number.
            keys: Their content keys where known; hashed if the cache needs them.

        Returns:
            One output an item, in order; shared with the cache, so not to be written to.
        """
        with self._request():
            self._check_graphs()
            known = tuple(keys)
            if self.cache and not known:
                known = tuple(cache.content_key(value) for value in items)
            return self._encoded(items, known)

    def generate(
        self,
        batch: Sequence[Prompt],
        *,
        new_tokens: int,
        stop: Sequence[int] = (),
        keep_logits: bool = False,
    ) -> list[Completion]:
        """Answer prompts greedily, all in one static batch.

        Args:
            batch: Prompts of any lengths, at most the largest batch size.
            new_tokens: Tokens to decode for each, at least 1.
            stop: Tokens that end an answer; the host then reads every token as it comes.
            keep_logits: Whether to return the logits.

        Returns:
            One completion a prompt, in order.

        Raises:
            ValueError: If token ids, items and placeholders do not match, or the cache has no room.
            StaleBufferError: If weights or adapters are not those of the graphs any more, or the model
                has another tower, language model or head.
            RuntimeError: If the runner was shut down, before or meanwhile.
        """
        require(not self.gates.encoder_only, "encoder-only mode has no decoder; use encode()")
        wanted = WantedAnswer(new_tokens=new_tokens, stop=frozenset(stop), keep_logits=keep_logits)
        with self._request():
            decoder = self.decoder
            assert decoder is not None
            self._check_graphs()
            batches.check_room(batch, new_tokens=new_tokens, decoder=decoder)
            parts = RunnerParts(
                model=self.model,
                decoder=decoder,
                encode=self._encoded,
                is_keyed=self.cache is not None,
                timing=self.gates.timing,
                go_on=self._go_on,
            )
            return answering.answer(batch, parts, wanted)

    def shutdown(self) -> int:
        """Give memory back: encoder graphs, decoder graphs and their pools, slabs, cache, then the model.

        A request in another thread ends at its next stage with an error, and is waited for. Called
        from within a request (by an observer), it marks the runner: the request ends at its next
        stage and the memory goes as it unwinds.

        Returns:
            Bytes given back by this call; idempotent.
        """
        self._is_closing = True
        if self._running == threading.get_ident():
            self._frees_itself = True
            return 0
        with self._lock:
            return self._free()

    def _encoder_runner(self) -> EncoderRunner:
        wrapped = self.encoder or QwenVL(
            self.model.model.visual, self.size, attention=self.options.attention
        )
        return EncoderRunner(
            encoder=wrapped,
            plan=replace(self.plan, graphs=(), reasons=()),  # `capture` gives it the graphs
            backend=self.options.backend,
            packer=self.packer,
            observe=self.observe,
        )

    def _encoded(self, items: Sequence[Input], keys: Sequence[str]) -> list[EncoderOutput]:
        """Outputs of items, from the cache where there is one, checked against their tokens."""
        tower = self.model.model.visual
        encode = self.encoders.execute if self.encoders else encoding.stock(tower)
        if self.cache is None:
            outputs = encode(items)
        else:
            self.cache.follow(self.encoders.encoder.module if self.encoders else tower)
            outputs = encoding.through(self.cache, encode, items, keys=keys)
        scatter.check(outputs, items, (self.size.out,) * (1 + len(self.size.deepstack)))
        return outputs

    @contextmanager
    def _request(self) -> Iterator[None]:
        """One request or capture at a time, on graphs that are still true to the model."""
        if self._running == threading.get_ident():
            raise RuntimeError("a request is in progress; an observer cannot start another")
        with self._lock:
            self._go_on("a request")
            # What is in the cache may have been queued on the stream of another caller.
            self._stream = streams.followed(self._stream, self.model.lm_head.weight.device)
            self._running = threading.get_ident()
            try:
                yield
            finally:
                self._running = None
                if self._frees_itself:
                    self._free()

    def _go_on(self, what: str) -> None:
        if self._is_closing:
            raise RuntimeError(f"the runner was shut down before {what}; make a new one")
        models.refuse_changed(self.model, self._parts)

    def _check_graphs(self) -> None:
        """Warn of a forgotten capture, and refuse what the decoder's graphs would not see; encoder
        graphs check themselves."""
        has_encoder = self.decision.encoder_off is None and self.plan.graphs
        if not self._knows and (has_encoder or self.decision.decoder_off is None):
            self._knows = True
            warnings.warn(FORGOTTEN, stacklevel=3)
        switched = self.slot.changed() if self.slot else None
        if switched:
            raise StaleBufferError(switched)
        changed = self.decoder.changed() if self.decoder else None
        if changed:
            raise StaleBufferError(f"{changed} after capture; capture again")

    def _clear_graphs(self) -> int:
        freed = self.encoders.clear() if self.encoders else 0
        return freed + (self.decoder.clear() if self.decoder else 0)

    def _free(self) -> int:
        freed = self._clear_graphs()
        freed += self.decoder.release() if self.decoder else 0
        freed += self.cache.clear() if self.cache else 0
        self._parts.clear()
        self.encoders = self.encoder = self.decoder = self.slot = self.model = None
        return freed

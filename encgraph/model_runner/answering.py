"""Take one static batch of prompts through its stages: lay out, encode, scatter, prefill, decode."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from encgraph.encoders.protocol import EncoderOutput, Input
from encgraph.model_runner import batches, scatter
from encgraph.model_runner.decoding import Decoder
from encgraph.model_runner.facts import StageTimes
from encgraph.model_runner.prefilling import Batch
from encgraph.model_runner.prompts import Prompt
from encgraph.model_runner.timing import Stopwatch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Completion:
    """What one prompt was answered with."""

    token_ids: tuple[int, ...]
    """Ends with a stop token where one came."""
    times: StageTimes | None
    """None unless the gates ask for timing."""
    logits: Tensor | None = None
    """(tokens, vocabulary) in the model's dtype, a copy; None unless asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedAnswer:
    """How long an answer is, and what comes with it."""

    new_tokens: int
    stop: frozenset[int] = frozenset()
    keep_logits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunnerParts:
    """What of a runner answers prompts."""

    model: Any
    decoder: Decoder
    encode: Callable[[Sequence[Input], Sequence[str]], list[EncoderOutput]]
    """Outputs of all items, by their content keys where those are known; in order and checked."""
    is_keyed: bool
    """Whether `encode` needs content keys."""
    timing: bool
    go_on: Callable[[str], None]
    """Called with what comes next; raises where the runner was shut down meanwhile."""


def answer(batch: Sequence[Prompt], parts: RunnerParts, wanted: WantedAnswer) -> list[Completion]:
    """Answer a batch that there is room for.

    Args:
        batch: Prompts of any lengths.
        parts: Of the runner.
        wanted: Of each answer.

    Returns:
        One completion a prompt, in order.
    """
    decoder, device = parts.decoder, parts.decoder.device
    watch = Stopwatch(device, on=parts.timing)
    with watch.stage("preprocessing"):
        laid = batches.lay(batch, parts.model, device=device, keyed=parts.is_keyed)
    parts.go_on("encode")
    with watch.stage("encode"):
        outputs = parts.encode(laid.items, laid.keys)
    parts.go_on("scatter")
    with watch.stage("scatter"):
        table = parts.model.model.language_model.embed_tokens
        embedded = scatter.embed(laid.ids_bL, table, runs=laid.runs, outputs=outputs)
    parts.go_on("prefill")
    with watch.stage("prefill"):
        whole = Batch(
            embedded=embedded,
            positions_3bL=laid.positions_3bL,
            lengths=laid.lengths,
            visuals=[sum(run.length for run in runs) for runs in laid.runs],
        )
        first_b = decoder.prefill(whole, lengths_b=laid.lengths_b, offsets_b=laid.offsets_b)
    answers = _Answers(rows=len(batch), wanted=wanted, decoder=decoder)
    answers.add(first_b, read=parts.timing)
    watch.first_token()
    while not answers.is_complete:
        parts.go_on(f"token {len(answers.tokens)} of {wanted.new_tokens}")
        with watch.step():
            answers.add(decoder.step(len(batch)), read=False)
    return answers.completions(watch.times)


class _Answers:
    """Tokens and logits as they come; on the host only where something asks to see them."""

    def __init__(self, *, rows: int, wanted: WantedAnswer, decoder: Decoder) -> None:
        self.rows, self.wanted, self.decoder = rows, wanted, decoder
        self.tokens: list[Tensor] = []
        self.logits: list[Tensor] = []
        self._open = set(range(rows))

    def add(self, token_b: Tensor, *, read: bool) -> None:
        """Take one token a row; reads it on the host if asked to, or if a stop token may be there."""
        self.tokens.append(token_b)
        if self.wanted.keep_logits:
            self.logits.append(self.decoder.logits(self.rows))
        if read or self.wanted.stop:
            for row, token in enumerate(token_b.tolist()):
                if token in self.wanted.stop:
                    self._open.discard(row)

    @property
    def is_complete(self) -> bool:
        """Whether every row has all its tokens or has stopped."""
        return len(self.tokens) >= self.wanted.new_tokens or not self._open

    def completions(self, times: StageTimes | None) -> list[Completion]:
        """Each row's tokens up to its stop token, and the logits of just those."""
        made = []
        for row, tokens in enumerate(torch.stack(self.tokens, 1).tolist()):
            ends = [i for i, token in enumerate(tokens, start=1) if token in self.wanted.stop]
            kept = tokens[: ends[0]] if ends else tokens
            logits = [one[row] for one in self.logits[: len(kept)]]
            made.append(
                Completion(
                    token_ids=tuple(kept),
                    times=times,
                    logits=torch.stack(logits) if logits else None,
                )
            )
        return made

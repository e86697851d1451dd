"""BERT, XLM-R and ModernBERT over packed texts, pooled inside the graph.

Texts lie end to end in one row of token ids; attention keeps to each by its offsets. An item's
`pixels` are its token ids, (L,) of an integer dtype, special tokens included. A pooled item yields
one row; its tokens are token ids all the same, since they are what a replay costs.

Token types are all 0: pairs of texts, told apart by types, are not taken.

Shape legend: P token ids of a capacity, M max items, N items, L token ids of one, H hidden.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from encgraph.attention import choose
from encgraph.encoders import faces, packed, rows, text_attention
from encgraph.encoders.metadata import copy_into
from encgraph.encoders.protocol import Buffers, EncoderOutput, EncoderSpec, Input
from encgraph.encoders.segments import POOLINGS, Pooling, Segmented, padded, pooled_rows, segmented
from encgraph.errors import require
from encgraph.records import Capacity, Item, Modality
from encgraph.sizes import EncoderSize, Grid

INTEGERS = (torch.int64, torch.int32)


Positions = Callable[[Any, Segmented], Tensor]
"""Position ids of packed rows as a family numbers them: (module, where texts lie) -> (P,)."""


class PackedText:
    """A text encoder that graphs can hold."""

    def __init__(  # noqa: PLR0913 - the switches that strategies set
        self,
        module: Any,
        size: EncoderSize,
        *,
        positions: Positions,
        name: str = "",
        pooling: Pooling = "cls",
        normalized: bool = True,
        attention: str = "auto",
        eager_forward: Literal["varlen", "stock"] = "varlen",
    ) -> None:
        """Wrap a module.

        Args:
            module: A transformers text encoder in eval mode; held, not changed.
            size: Its size; the rule's `max_pixels` is the longest text.
            positions: How the family numbers positions.
            name: Name in records; empty means the size's.
            pooling: "cls" (the first token), "mean" (over a text's tokens) or "none" (all rows).
            normalized: Whether rows are scaled to length 1.
            attention: A name of `attention.choose`.
            eager_forward: "varlen" (packed) or "stock" (the untouched forward of a padded batch).

        Raises:
            ValueError: If a switch has no such position, or the attention cannot run here.
        """
        require(pooling in POOLINGS, f"pooling must be one of {POOLINGS}, got {pooling!r}")
        known = ("varlen", "stock")
        require(
            eager_forward in known, f"eager_forward must be one of {known}, got {eager_forward!r}"
        )
        self._weight = next(iter(module.parameters()))
        chosen = choose.named(attention, device=self._weight.device, dtype=self._weight.dtype)
        self.size, self.name, self.attention = size, name or size.name, chosen.name
        self._pooling, self._normalized = pooling, normalized
        self._module, self._positions, self._eager = module, positions, eager_forward
        registered = text_attention.register(chosen)
        self._face = faces.Face(module, lambda module: faces.with_attention(module, registered))

    @property
    def module(self) -> nn.Module:
        """The module itself."""
        module: nn.Module = self._module
        return module

    @property
    def pooling(self) -> Pooling:
        """How a text's rows become one; graphs hold it, so another is another encoder."""
        return self._pooling

    @property
    def normalized(self) -> bool:
        """Whether rows are scaled to length 1; graphs hold it, so another is another encoder."""
        return self._normalized

    @property
    def spec(self) -> EncoderSpec:
        """What is fixed about it."""
        return EncoderSpec(
            name=self.name,
            modalities=frozenset({Modality.TEXT}),
            widths=(self.size.out,),
            dtype=self._weight.dtype,
            device=self._weight.device,
            rule=self.size.rule,
            min_tokens=1,
            max_tokens=self.size.rule.max_pixels,
            attention=self.attention,
            compiled=False,
            pooled=self.pooling != "none",
        )

    def input(self, ids: Tensor, *, request: int = 0) -> Input:
        """Make an input of one text's token ids, (L,), with its sizes.

        Ids on the host are compared with the vocabulary; on a card, reading them would wait for it.

        Raises:
            ValueError: If it is empty, too long, no vector of integers, or beyond the vocabulary.
        """
        self._check_ids(ids)
        if not ids.is_cuda:
            words, low, high = self._module.config.vocab_size, int(ids.min()), int(ids.max())
            require(
                low >= 0 and high < words,
                f"must have token ids from 0 to {words - 1}, got {low} to {high}",
            )
        return Input(item=self._item(len(ids), request), pixels=ids, grid=Grid(1, 1, len(ids)))

    def capacity(self, length: int, *, items: int) -> Capacity:
        """Capacity of so many token ids in at most so many texts.

        Args:
            length: Token ids in all.
            items: Most texts; lowered to the length if above.
        """
        items = min(items, length)
        return Capacity(
            tokens=length,
            patches=length,
            items=items,
            segments=items,
            longest_segment=min(length, self.size.rule.max_pixels),
            frames=items,
        )

    def item_spec(self, value: Input) -> Item:
        """Sizes of one input; host only.

        Raises:
            ValueError: If the input does not fit the encoder.
        """
        self._check((value,))
        return self._item(len(value.pixels), value.item.request)

    def buffers(self, capacity: Capacity, device: torch.device, dtype: torch.dtype) -> Buffers:
        """Allocate zeroed token ids (P,), lengths (M + 1,), the last always 0, and attention rows."""
        self._face.now()
        return {
            "ids": torch.zeros(capacity.patches, device=device, dtype=torch.int64),
            "lengths": torch.zeros(capacity.items + 1, device=device, dtype=torch.int32),
            "attention": torch.zeros(
                capacity.patches, self.size.hidden, device=device, dtype=dtype
            ),
        }

    @torch.no_grad()
    def fill(self, buffers: Buffers, inputs: Sequence[Input]) -> None:
        """Write token ids and lengths in place; the host never waits for the device.

        Raises:
            ValueError: If an input does not fit the encoder (names the item), or there are too many.
        """
        self._check(inputs)
        ids_P, lengths_M1 = buffers["ids"], buffers["lengths"]
        lengths = [len(value.pixels) for value in inputs]
        require(
            len(lengths) < len(lengths_M1) and sum(lengths) <= len(ids_P),
            f"these buffers hold at most {len(lengths_M1) - 1} texts of {len(ids_P)} token ids in "
            f"all, got {len(lengths)} of {sum(lengths)}",
        )
        rows.copy_ends(ids_P, [value.pixels for value in inputs])
        lengths += [0] * (len(lengths_M1) - len(lengths))
        copy_into(lengths_M1, torch.tensor(lengths, dtype=torch.int32, device="cpu"))

    @torch.no_grad()
    def forward(self, buffers: Buffers, capacity: Capacity) -> EncoderOutput:
        """Encode the buffers: one row a text slot, or a row a token id without pooling."""
        assert len(buffers["ids"]) == capacity.patches, capacity
        where = segmented(buffers["ids"], buffers["lengths"])
        slab_PH = buffers["attention"].zero_()  # no values of an earlier batch in unused rows
        rows_PH = self._run(where, capacity.longest_segment, slab_PH)
        pooled = pooled_rows(rows_PH, where, self.pooling)
        return EncoderOutput(main=rows.lengthened(self._finish(pooled), self.spec.rows(capacity)))

    @torch.no_grad()
    def eager(self, inputs: Sequence[Input]) -> list[EncoderOutput]:
        """Encode inputs in one batch, ungraphed; owned outputs in order.

        Raises:
            ValueError: If an input does not fit the encoder; names the item.
        """
        self._check(inputs)
        if not inputs:
            return []
        lengths = [len(value.pixels) for value in inputs]
        run = self._run_stock if self._eager == "stock" else self._run_varlen
        made = EncoderOutput(main=self._finish(run(inputs, lengths)))
        return packed.cut(made, lengths if self.pooling == "none" else [1] * len(lengths))

    def stock(self) -> "PackedText":
        """The same weights with the untouched forward of a padded batch as `eager`."""
        return self._like(self._module)

    def oracle(self) -> "PackedText":
        """A float32 copy of the weights with the untouched forward as `eager`."""
        return self._like(copy.deepcopy(self._module).float())

    def _like(self, module: Any) -> "PackedText":
        return PackedText(
            module,
            self.size,
            positions=self._positions,
            name=self.name,
            pooling=self.pooling,
            normalized=self.normalized,
            attention="sdpa",
            eager_forward="stock",
        )

    def _run(self, where: Segmented, longest: int, attention: Tensor) -> Tensor:
        made = self._face.now()(
            input_ids=where.ids_P[None],
            position_ids=self._positions(self._module, where)[None],
            cu_seq_lens_q=where.offsets_M1,
            cu_seq_lens_k=where.offsets_M1,
            max_length_q=longest,
            max_length_k=longest,
            attention_output=attention,
        )
        rows_PH: Tensor = made.last_hidden_state[0]
        return rows_PH

    def _run_varlen(self, inputs: Sequence[Input], lengths: Sequence[int]) -> Tensor:
        device = self._weight.device
        ids_P = torch.empty(sum(lengths), device=device, dtype=torch.int64)
        rows.copy_ends(ids_P, [value.pixels for value in inputs])
        lengths_M1 = torch.zeros(len(lengths) + 1, device=device, dtype=torch.int32)
        copy_into(lengths_M1, torch.tensor([*lengths, 0], dtype=torch.int32, device="cpu"))
        where = segmented(ids_P, lengths_M1)
        scratch = self._weight.new_empty(len(ids_P), self.size.hidden)
        return pooled_rows(self._run(where, max(lengths), scratch), where, self.pooling)

    def _run_stock(self, inputs: Sequence[Input], lengths: Sequence[int]) -> Tensor:
        """The module's own padded forward, then pooling text by text."""
        ids_NL, mask_NL = padded(inputs, self._module.config.pad_token_id or 0)
        device = self._weight.device
        made = self._module(input_ids=ids_NL.to(device), attention_mask=mask_NL.to(device))
        hidden = zip(made.last_hidden_state, lengths, strict=True)
        texts = [text[:length] for text, length in hidden]
        if self.pooling == "none":
            return torch.cat(texts)
        if self.pooling == "cls":
            return torch.stack([text[0] for text in texts])
        return torch.stack([text.float().mean(0) for text in texts])

    def _finish(self, made: Tensor) -> Tensor:
        """Normalise in float32, then the encoder's dtype."""
        if self.normalized:
            made = normalize(made.float(), dim=-1)
        return made.to(self._weight.dtype)

    def _item(self, length: int, request: int) -> Item:
        return Item(modality=Modality.TEXT, tokens=length, patches=length, request=request)

    def _check_ids(self, ids: Tensor) -> None:
        longest = self.size.rule.max_pixels
        require(
            ids.dim() == 1 and ids.dtype in INTEGERS,
            f"must have token ids of shape (L,) and an integer dtype, got {tuple(ids.shape)!r} of "
            f"{ids.dtype}",
        )
        require(
            1 <= len(ids) <= longest,
            f"must have 1 to {longest} token ids, got {len(ids)}; cut or split the text",
        )

    def _check(self, inputs: Sequence[Input]) -> None:
        require(not self._module.training, "the encoder must be in eval mode; call .eval() on it")
        for index, value in enumerate(inputs):
            try:
                self._check_ids(value.pixels)
                rows.require_sizes(value, tokens=len(value.pixels))
            except ValueError as error:
                raise ValueError(f"item {index} {error}") from error

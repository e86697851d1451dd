"""The families of packed text: BERT, XLM-R and ModernBERT at published sizes."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

import torch
from torch import Tensor
from transformers import (
    BertConfig,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from encgraph.encoders import building, compiling, saved
from encgraph.encoders.fixed_family import counted as with_parameters
from encgraph.encoders.fixed_family import saved_name
from encgraph.encoders.protocol import Switches
from encgraph.encoders.segments import Pooling, Segmented
from encgraph.encoders.text import PackedText, Positions
from encgraph.published.text import text_rule
from encgraph.sizes import EncoderSize


def counted(module: Any, where: Segmented) -> Tensor:
    """Positions from 0 in each text."""
    return where.position_P


def after_padding(module: Any, where: Segmented) -> Tensor:
    """XLM-R's positions: real tokens counted from one past the padding id, which itself stays.

    Source:
        `create_position_ids_from_input_ids` of transformers, over packed texts.
    """
    filler: int = module.embeddings.padding_idx
    real_P = (where.ids_P != filler).long()
    before_P = real_P.cumsum(0) - real_P
    first_M1 = where.offsets_M1.clamp(max=len(real_P) - 1)
    start_P = before_P.index_select(0, first_M1).index_select(0, where.item_P)
    counted_P = (before_P - start_P + real_P) * real_P
    # Padding counts on from the last text, so it is kept within the table.
    last = module.embeddings.position_embeddings.num_embeddings - 1
    return (counted_P + filler).clamp(min=0, max=last)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TextFamily:
    """How the encoders of one family of text come to be."""

    module_type: Callable[[Any], Any]
    """Makes the module from a config."""
    config_of: Callable[[EncoderSize], Any]
    """Makes the config of a size."""
    short: Mapping[str, Any]
    """Config values of a twin that has the same buffers; see `building.empty`."""
    name: str
    """A key of `registry.FAMILIES`."""
    config_type: Any
    """Class of a saved model's config."""
    prefixes: tuple[str, ...]
    """Where a whole model's file keeps the weights."""
    unreached: int = 0
    """Rows of the position table that no text reaches."""
    positions: Positions = counted

    def encoder(self, module: Any, size: EncoderSize, **switches: Unpack[Switches]) -> PackedText:
        """Make an encoder of a module of this family, pooled as its size says.

        Args:
            module: In eval mode; held, not changed.
            size: Its size; `pooling` among its settings, and a rule whose `max_pixels` is the
                longest text.
            switches: Attention and eager forward; metadata is always made in the graph.

        Raises:
            ValueError: If it has no such attention or body.
        """
        compiling.refuse(switches)
        return PackedText(
            module,
            size,
            positions=self.positions,
            pooling=pooling_of(size),
            attention=switches.get("attention", "auto"),
            eager_forward=switches.get("eager_forward", "varlen"),
        )

    def build(
        self,
        size: EncoderSize,
        *,
        device: torch.device,
        dtype: torch.dtype,
        seed: int,
        **switches: Unpack[Switches],
    ) -> PackedText:
        """Build one with random weights from a seed; see `registry`."""
        module = building.empty(
            self.module_type, self.config_of(size), device=device, dtype=dtype, short=self.short
        )
        building.randomise(module, torch.Generator(device=device).manual_seed(seed))
        return self.encoder(module, size, **switches)

    def load(
        self,
        files: saved.Files,
        *,
        device: torch.device,
        dtype: torch.dtype,
        **switches: Unpack[Switches],
    ) -> PackedText:
        """Load one from a saved model; see `registry`."""
        config = self.config_type.from_dict(files.config())
        module = building.empty(
            self.module_type, config, device=device, dtype=dtype, short=self.short
        )
        saved.load(module, files, self.prefixes)
        return self.encoder(module, with_parameters(self._size(config, files), module), **switches)

    def _size(self, config: Any, files: saved.Files) -> EncoderSize:
        return EncoderSize(
            name=saved_name(files),
            family=self.name,
            layout="text",
            depth=config.num_hidden_layers,
            hidden=config.hidden_size,
            intermediate=config.intermediate_size,
            heads=config.num_attention_heads,
            out=config.hidden_size,
            settings=(("pooling", saved_pooling(files)),),
            parameters=0,
            rule=text_rule(config.max_position_embeddings - self.unreached),
            source=f"saved model {files.name!r}",
        )


def saved_pooling(files: saved.Files) -> str:
    """ "mean" where the model's sentence-embedding files say so, else "cls"."""
    found = files.find("1_Pooling/config.json")
    read = json.loads(found.read_text()) if found else {}
    return "mean" if read.get("pooling_mode_mean_tokens") else "cls"


def pooling_of(size: EncoderSize) -> Pooling:
    """How a size is pooled: by its settings, or not at all under a rule that does not pool."""
    if not size.rule.pooled:
        return "none"
    return "mean" if dict(size.settings).get("pooling") == "mean" else "cls"


def _settings(size: EncoderSize) -> dict[str, Any]:
    given = {name: value for name, value in size.settings if name != "pooling"}
    return {
        "hidden_size": size.hidden,
        "intermediate_size": size.intermediate,
        "num_hidden_layers": size.depth,
        "num_attention_heads": size.heads,
        **given,
    }


def bert_of(size: EncoderSize) -> BertConfig:
    """BERT's config at a size."""
    return BertConfig(**_settings(size), max_position_embeddings=size.rule.max_pixels)


def xlm_roberta_of(size: EncoderSize) -> XLMRobertaConfig:
    """XLM-R's config at a size: two rows of the position table are never reached."""
    return XLMRobertaConfig(
        **_settings(size),
        max_position_embeddings=size.rule.max_pixels + 2,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
    )


def modernbert_of(size: EncoderSize) -> ModernBertConfig:
    """ModernBERT's config at a size."""
    return ModernBertConfig(**_settings(size), max_position_embeddings=size.rule.max_pixels)


SHORT = {"num_hidden_layers": 1, "vocab_size": 64, "pad_token_id": 0}
"""Of twins: no buffer depends on the layers or the vocabulary."""

BERT = TextFamily(
    module_type=BertModel,
    config_of=bert_of,
    short=SHORT,
    name="bert",
    config_type=BertConfig,
    prefixes=("bert.",),
)
XLM_ROBERTA = TextFamily(
    module_type=XLMRobertaModel,
    config_of=xlm_roberta_of,
    short=SHORT,
    name="xlm-roberta",
    config_type=XLMRobertaConfig,
    prefixes=("roberta.",),
    unreached=2,
    positions=after_padding,
)
MODERNBERT = TextFamily(
    module_type=ModernBertModel,
    config_of=modernbert_of,
    short=SHORT,
    name="modernbert",
    config_type=ModernBertConfig,
    prefixes=("model.",),
)

"""Whisper's encoder: windows of 30 seconds of log-mel features, always padded to full length.

Longer audio is several windows stacked, one item. The convolutions halve the frames, so a window of
3,000 frames gives 1,500 tokens.
"""

from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from encgraph.encoders import fixed, saved
from encgraph.encoders.fixed import Slot
from encgraph.encoders.fixed_family import FixedFamily, saved_name
from encgraph.published.audio import window_rule
from encgraph.records import Modality
from encgraph.sizes import EncoderSize, Grid

STRIDE = 2
"""Frames a token."""
MAX_WINDOWS = 120
"""An hour of audio as one item."""


def config_of(size: EncoderSize) -> WhisperConfig:
    """The encoder's config at a size; the class defaults are those of the tiny one."""
    return WhisperConfig(
        d_model=size.hidden,
        encoder_ffn_dim=size.intermediate,
        encoder_layers=size.depth,
        encoder_attention_heads=size.heads,
        max_source_positions=size.rule.max_pixels,
        **dict(size.settings),
    )


def window(size: EncoderSize) -> Slot:
    """One window of audio: (mel bins, frames)."""
    tokens = size.rule.max_pixels
    return Slot(
        shape=(int(dict(size.settings)["num_mel_bins"]), tokens * STRIDE),
        rows=tokens,
        patches=tokens,
        widths=(size.out,),
        grid=Grid(1, 1, tokens),
        rule=size.rule,
        modality=Modality.AUDIO,
        most=MAX_WINDOWS,
    )


def size_of(config: WhisperConfig, files: saved.Files) -> EncoderSize:
    """Size of a saved encoder."""
    tokens = config.max_source_positions
    return EncoderSize(
        name=saved_name(files),
        family="whisper",
        layout="fixed",
        depth=config.encoder_layers,
        hidden=config.d_model,
        intermediate=config.encoder_ffn_dim,
        heads=config.encoder_attention_heads,
        out=config.d_model,
        settings=(("num_mel_bins", config.num_mel_bins),),
        parameters=0,
        rule=window_rule(tokens),
        source=f"saved model {files.name!r}",
    )


FAMILY = FixedFamily(
    module_type=WhisperEncoder,
    config_of=config_of,
    short={"encoder_layers": 1},
    patches=fixed.patches_of,
    slot_of=window,
    size_of=size_of,
    config_type=WhisperConfig,
    prefixes=("model.encoder.", "encoder."),
)

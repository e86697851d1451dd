"""Sizes of audio encoders: windows of fixed length."""

from encgraph.records import Modality
from encgraph.rules import EncoderSize, TokenRule


def window_rule(tokens: int) -> TokenRule:
    """Rule of a window that always gives so many tokens."""
    return TokenRule(
        patch=1,
        merge=1,
        temporal_patch=1,
        min_pixels=tokens,
        max_pixels=tokens,
        resize="length",
        modality=Modality.AUDIO,
    )


def _whisper(  # noqa: PLR0913 - the numbers of one published config
    name: str,
    *,
    depth: int,
    hidden: int,
    heads: int,
    mel: int,
    tokens: int = 1500,
    parameters: int,
    source: str,
) -> EncoderSize:
    return EncoderSize(
        name=name,
        family="whisper",
        layout="fixed",
        depth=depth,
        hidden=hidden,
        intermediate=4 * hidden,
        heads=heads,
        out=hidden,
        settings=(("num_mel_bins", mel),),
        parameters=parameters,
        rule=window_rule(tokens),
        source=source,
    )


SIZES = (
    _whisper(
        "whisper-tiny",
        depth=2,
        hidden=32,
        heads=4,
        mel=8,
        tokens=12,
        parameters=29_696,
        source="made for tests and laptops; a toy width and a short window, not the published model of that name",
    ),
    _whisper(
        "whisper-base",
        depth=6,
        hidden=512,
        heads=8,
        mel=80,
        parameters=20_590_592,
        source="config of openai/whisper-base",
    ),
    _whisper(
        "whisper-large-v3",
        depth=32,
        hidden=1280,
        heads=20,
        mel=128,
        parameters=636_968_960,
        source="config of openai/whisper-large-v3",
    ),
)

"""Say how large the language models of published vision-language models are; needs no torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSize:
    """The language model's published sizes."""

    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    head: int
    """Width of one head."""
    intermediate: int
    tied: bool
    """Whether the output layer is the embedding."""
    vocabulary: int = 151_936
    sections: tuple[int, int, int] = (24, 20, 20)
    """Rotary frequencies of time, height and width."""
    special: int = 151_652
    """The first of five special tokens: vision start, vision end, padding, image, video."""


TEXT_SIZES: dict[str, TextSize] = {
    "qwen3-vl-tiny": TextSize(
        hidden=96, layers=4, heads=4, key_value_heads=2, head=24, intermediate=192, tied=False,
        vocabulary=512, sections=(4, 4, 4), special=500,
    ),
    "qwen3-vl-2b": TextSize(
        hidden=2048, layers=28, heads=16, key_value_heads=8, head=128, intermediate=6144, tied=True
    ),
    "qwen3-vl-4b": TextSize(
        hidden=2560, layers=36, heads=32, key_value_heads=8, head=128, intermediate=9728, tied=True
    ),
    "qwen3-vl-8b": TextSize(
        hidden=4096, layers=36, heads=32, key_value_heads=8, head=128, intermediate=12_288, tied=False
    ),
}  # fmt: skip
"""By the name of the encoder's size."""

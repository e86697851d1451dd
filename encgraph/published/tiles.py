"""Sizes of towers with the projector into a text model: InternVL, Idefics3, SmolVLM and Gemma 3."""

from dataclasses import replace

from encgraph.published.images import (
    BASE_SHAPE,
    LARGE_SHAPE,
    SO400M,
    TINY_SHAPE,
    TOY,
    square,
    tower,
)
from encgraph.rules import Resize, TokenRule

RATIO_TILES = 12
"""Most tiles of an image by InternVL's processor, which adds one of the whole."""
EDGE_TILES = 4
"""Tiles along the longer side by the processors of Idefics3 and SmolVLM, which add one of the whole."""


def tiled(rule: TokenRule, resize: Resize, tiles: int) -> TokenRule:
    """The rule of images cut into squares of another rule."""
    return replace(rule, resize=resize, tiles=tiles)


def by_ratio(side: int, patch: int, *, merge: int, prefix: int = 0) -> TokenRule:
    """Rule of the published InternVL models."""
    return tiled(square(side, patch, merge=merge, prefix=prefix), "ratio_tiles", RATIO_TILES)


def by_edge(side: int, patch: int, *, merge: int) -> TokenRule:
    """Rule of the published Idefics3 and SmolVLM models."""
    return tiled(square(side, patch, merge=merge), "edge_tiles", EDGE_TILES)


INTERN_300M = (("attention_bias", True),)
INTERNVL_SIZES = (
    tower(
        "internvl-tiny",
        "internvl",
        by_ratio(32, 8, merge=2, prefix=1),
        shape=TINY_SHAPE,
        out=48,
        settings=INTERN_300M,
        parameters=32_768,
        source=TOY,
    ),
    tower(
        "internvl3-2b",
        "internvl",
        by_ratio(448, 14, merge=2, prefix=1),
        shape=LARGE_SHAPE,
        out=1536,
        settings=INTERN_300M,
        parameters=312_674_304,
        source="vision_config and projector of OpenGVLab/InternVL3-2B-hf",
    ),
    tower(
        "internvl3-8b",
        "internvl",
        by_ratio(448, 14, merge=2, prefix=1),
        shape=LARGE_SHAPE,
        out=3584,
        settings=INTERN_300M,
        parameters=331_552_768,
        source="vision_config and projector of OpenGVLab/InternVL3-8B-hf",
    ),
)

IDEFICS3_SIZES = (
    tower(
        "idefics3-tiny",
        "idefics3",
        by_edge(32, 8, merge=2),
        shape=TINY_SHAPE,
        out=48,
        parameters=29_984,
        source=TOY,
    ),
    tower(
        "idefics3-8b",
        "idefics3",
        by_edge(364, 14, merge=2),
        shape=SO400M,
        out=4096,
        parameters=431_800_560,
        source="vision_config and connector of HuggingFaceM4/Idefics3-8B-Llama3",
    ),
    tower(
        "smolvlm2-500m",
        "smolvlm",
        by_edge(512, 16, merge=4),
        shape=BASE_SHAPE,
        out=960,
        parameters=98_229_504,
        source="vision_config and connector of HuggingFaceTB/SmolVLM2-500M-Video-Instruct",
    ),
    tower(
        "smolvlm2-2.2b",
        "smolvlm",
        by_edge(384, 14, merge=3),
        shape=SO400M,
        out=2048,
        parameters=434_220_912,
        source="vision_config and connector of HuggingFaceTB/SmolVLM2-2.2B-Instruct",
    ),
    tower(
        "smolvlm-tiny",
        "smolvlm",
        by_edge(48, 8, merge=3),
        shape=TINY_SHAPE,
        out=48,
        parameters=38_304,
        source=TOY,
    ),
)

GEMMA3_SIZES = (
    tower(
        "gemma3-tiny",
        "gemma3",
        square(32, 8, merge=2),
        shape=TINY_SHAPE,
        out=48,
        parameters=25_408,
        source=TOY,
    ),
    tower(
        "gemma3-4b",
        "gemma3",
        square(896, 14, merge=4),
        shape=SO400M,
        out=2560,
        parameters=419_816_304,
        source="vision_config and projector of google/gemma-3-4b-it",
    ),
    tower(
        "gemma3-27b",
        "gemma3",
        square(896, 14, merge=4),
        shape=SO400M,
        out=5376,
        parameters=423_060_336,
        source="vision_config and projector of google/gemma-3-27b-it",
    ),
)

SIZES = (*INTERNVL_SIZES, *IDEFICS3_SIZES, *GEMMA3_SIZES)

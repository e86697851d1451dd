"""Sizes of text encoders: BERT, XLM-R and ModernBERT, with how their embeddings are pooled."""

from encgraph.published.images import BASE_SHAPE, LARGE_SHAPE
from encgraph.records import Modality
from encgraph.rules import ConfigValue, EncoderSize, TokenRule

TOY_TEXT = "made for tests and laptops; a toy width and vocabulary"


def text_rule(longest: int) -> TokenRule:
    """Rule of a pooled text of 1 to so many token ids."""
    return TokenRule(
        patch=1,
        merge=1,
        temporal_patch=1,
        min_pixels=1,
        max_pixels=longest,
        resize="length",
        modality=Modality.TEXT,
        pooled=True,
    )


def _text(  # noqa: PLR0913 - the numbers of one published config
    name: str,
    family: str,
    shape: tuple[int, int, int, int],
    *,
    words: int,
    longest: int,
    pooling: str = "cls",
    settings: tuple[tuple[str, ConfigValue], ...] = (),
    parameters: int,
    source: str,
) -> EncoderSize:
    """A size from (depth, hidden, intermediate, heads)."""
    depth, hidden, intermediate, heads = shape
    return EncoderSize(
        name=name,
        family=family,
        layout="text",
        depth=depth,
        hidden=hidden,
        intermediate=intermediate,
        heads=heads,
        out=hidden,
        settings=(("vocab_size", words), ("pooling", pooling), *settings),
        parameters=parameters,
        rule=text_rule(longest),
        source=source,
    )


TINY_TEXT_SHAPE = (3, 32, 64, 4)

SIZES = (
    _text(
        "bert-tiny",
        "bert",
        TINY_TEXT_SHAPE,
        words=99,
        longest=64,
        parameters=32_032,
        source=TOY_TEXT,
    ),
    _text(
        "bert-base-uncased",
        "bert",
        BASE_SHAPE,
        words=30522,
        longest=512,
        pooling="mean",
        parameters=109_482_240,
        source="config of google-bert/bert-base-uncased; E5 and others pool its mean",
    ),
    _text(
        "bge-small-en-v1.5",
        "bert",
        (12, 384, 1536, 12),
        words=30522,
        longest=512,
        parameters=33_360_000,
        source="config of BAAI/bge-small-en-v1.5",
    ),
    _text(
        "xlm-roberta-tiny",
        "xlm-roberta",
        TINY_TEXT_SHAPE,
        words=99,
        longest=64,
        pooling="mean",
        parameters=32_064,
        source=TOY_TEXT,
    ),
    _text(
        "bge-m3",
        "xlm-roberta",
        LARGE_SHAPE,
        words=250002,
        longest=8192,
        parameters=567_754_752,
        source="config of BAAI/bge-m3",
    ),
    _text(
        "modernbert-tiny",
        "modernbert",
        (4, 32, 48, 4),
        words=99,
        longest=128,
        pooling="mean",
        settings=(
            ("local_attention", 8),
            ("pad_token_id", 0),
            ("eos_token_id", 2),
            ("bos_token_id", 1),
            ("cls_token_id", 1),
            ("sep_token_id", 2),
        ),
        parameters=38_272,
        source=TOY_TEXT,
    ),
    _text(
        "modernbert-base",
        "modernbert",
        (22, 768, 1152, 12),
        words=50368,
        longest=8192,
        pooling="mean",
        parameters=149_014_272,
        source="config of answerdotai/ModernBERT-base",
    ),
    _text(
        "modernbert-large",
        "modernbert",
        (28, 1024, 2624, 16),
        words=50368,
        longest=8192,
        pooling="mean",
        parameters=394_781_696,
        source="config of answerdotai/ModernBERT-large",
    ),
)

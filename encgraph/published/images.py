"""Sizes of image encoders: SigLIP, CLIP and DINO at one resolution, SigLIP 2 NaFlex at one length."""

from encgraph.rules import ConfigValue, EncoderSize, TokenRule

TOY = "made for tests and laptops; a toy width"


def square(side: int, patch: int, *, merge: int = 1, prefix: int = 0) -> TokenRule:
    """Rule of a square image; class and register tokens are output tokens too."""
    return TokenRule(
        patch=patch,
        merge=merge,
        temporal_patch=1,
        min_pixels=side * side,
        max_pixels=side * side,
        resize="fixed",
        prefix=prefix,
        prefix_tokens=prefix if merge == 1 else 0,
    )


def tower(  # noqa: PLR0913 - the numbers of one published config
    name: str,
    family: str,
    rule: TokenRule,
    *,
    shape: tuple[int, int, int, int],
    out: int = 0,
    table: int = 0,
    settings: tuple[tuple[str, ConfigValue], ...] = (),
    parameters: int,
    source: str,
) -> EncoderSize:
    """A size from (depth, hidden, intermediate, heads); a table side of 0 means one row a patch."""
    depth, hidden, intermediate, heads = shape
    return EncoderSize(
        name=name,
        family=family,
        layout="ragged" if rule.resize == "patch_limit" else "fixed",
        depth=depth,
        hidden=hidden,
        intermediate=intermediate,
        heads=heads,
        out=out or hidden,
        position_side=table or int(rule.max_pixels**0.5 + 1e-9) // rule.patch,
        settings=settings,
        parameters=parameters,
        rule=rule,
        source=source,
    )


SO400M = (27, 1152, 4304, 16)
BASE_SHAPE = (12, 768, 3072, 12)
LARGE_SHAPE = (24, 1024, 4096, 16)
TINY_SHAPE = (2, 32, 64, 4)

SIGLIP_SIZES = (
    tower("siglip-tiny", "siglip", square(32, 8), shape=TINY_SHAPE, parameters=32_352, source=TOY),
    tower(
        "siglip-base-16-224",
        "siglip",
        square(224, 16),
        shape=BASE_SHAPE,
        parameters=92_884_224,
        source="vision_config of google/siglip-base-patch16-224",
    ),
    tower(
        "siglip-so400m-14-384",
        "siglip",
        square(384, 14),
        shape=SO400M,
        parameters=428_225_600,
        source="vision_config of google/siglip-so400m-patch14-384",
    ),
    tower(
        "siglip2-so400m-16-384",
        "siglip",
        square(384, 16),
        shape=SO400M,
        parameters=428_256_704,
        source="vision_config of google/siglip2-so400m-patch16-384",
    ),
)

CLIP_SIZES = (
    tower(
        "clip-tiny",
        "clip",
        square(32, 8, prefix=1),
        shape=TINY_SHAPE,
        parameters=23_936,
        source=TOY,
    ),
    tower(
        "clip-vit-l-14",
        "clip",
        square(224, 14, prefix=1),
        shape=LARGE_SHAPE,
        parameters=303_179_776,
        source="vision_config of openai/clip-vit-large-patch14",
    ),
    tower(
        "clip-vit-l-14-336",
        "clip",
        square(336, 14, prefix=1),
        shape=LARGE_SHAPE,
        parameters=303_507_456,
        source="vision_config of openai/clip-vit-large-patch14-336",
    ),
)

DINOV2_SIZES = (
    tower(
        "dinov2-tiny",
        "dinov2",
        square(32, 8, prefix=1),
        shape=(2, 32, 128, 4),
        table=6,
        parameters=33_024,
        source=TOY,
    ),
    tower(
        "dinov2-large",
        "dinov2",
        square(224, 14, prefix=1),
        shape=LARGE_SHAPE,
        table=37,
        parameters=304_368_640,
        source="config of facebook/dinov2-large, at its processor's 224 pixels",
    ),
    tower(
        "dinov2-giant",
        "dinov2",
        square(224, 14, prefix=1),
        shape=(40, 1536, 4096, 24),
        table=37,
        settings=(("use_swiglu_ffn", True),),
        parameters=1_136_480_768,
        source="config of facebook/dinov2-giant, at its processor's 224 pixels",
    ),
)

DINOV2_REGISTERS_SIZES = (
    tower(
        "dinov2-registers-tiny",
        "dinov2-registers",
        square(32, 8, prefix=5),
        shape=(2, 32, 128, 4),
        table=6,
        parameters=33_152,
        source=TOY,
    ),
    tower(
        "dinov2-registers-large",
        "dinov2-registers",
        square(224, 14, prefix=5),
        shape=LARGE_SHAPE,
        table=37,
        parameters=304_372_736,
        source="config of facebook/dinov2-with-registers-large, at its processor's 224 pixels",
    ),
)

DINOV3_SIZES = (
    tower(
        "dinov3-tiny",
        "dinov3",
        square(32, 8, prefix=5),
        shape=TINY_SHAPE,
        parameters=23_584,
        source=TOY,
    ),
    tower(
        "dinov3-vit-l-16",
        "dinov3",
        square(224, 16, prefix=5),
        shape=LARGE_SHAPE,
        parameters=303_129_600,
        source="config of facebook/dinov3-vitl16-pretrain-lvd1689m",
    ),
    tower(
        "dinov3-vit-h-plus-16",
        "dinov3",
        square(224, 16, prefix=5),
        shape=(32, 1280, 5120, 20),
        settings=(("use_gated_mlp", True), ("hidden_act", "silu")),
        parameters=840_592_640,
        source="config of facebook/dinov3-vith16plus-pretrain-lvd1689m",
    ),
)


def naflex_rule(patch: int, patches: int) -> TokenRule:
    """Rule of images of at most so many patches, pooled to one token."""
    return TokenRule(
        patch=patch,
        merge=1,
        temporal_patch=1,
        min_pixels=patch * patch,
        max_pixels=patches * patch * patch,
        resize="patch_limit",
        pooled=True,
    )


NAFLEX_SIZES = (
    tower(
        "siglip2-naflex-tiny",
        "siglip2-naflex",
        naflex_rule(4, 24),
        shape=TINY_SHAPE,
        table=4,
        parameters=27_744,
        source=TOY,
    ),
    tower(
        "siglip2-so400m-16-naflex",
        "siglip2-naflex",
        naflex_rule(16, 256),
        shape=SO400M,
        table=16,
        parameters=427_888_064,
        source="vision_config of google/siglip2-so400m-patch16-naflex",
    ),
)

SIZES = (
    *SIGLIP_SIZES,
    *CLIP_SIZES,
    *DINOV2_SIZES,
    *DINOV2_REGISTERS_SIZES,
    *DINOV3_SIZES,
    *NAFLEX_SIZES,
)

"""Sizes of the Pixtral vision tower; what it is given is flat patches in raster order."""

from encgraph.rules import EncoderSize, TokenRule


def rule(side: int, patch: int) -> TokenRule:
    """Rule of a longest side in pixels and a patch."""
    return TokenRule(
        patch=patch,
        merge=1,
        temporal_patch=1,
        min_pixels=patch**2,
        max_pixels=side**2,
        resize="longest_edge",
    )


PIXTRAL_RULE = rule(1024, 16)


def _sized(name: str, *, rule: TokenRule, parameters: int, source: str) -> EncoderSize:
    return EncoderSize(
        name=name,
        family="pixtral",
        layout="packed",
        depth=24,
        hidden=1024,
        intermediate=4096,
        heads=16,
        out=1024,
        gated=True,
        settings=(("hidden_act", "silu"), ("rope_theta", 10_000.0)),
        parameters=parameters,
        rule=rule,
        source=source,
    )


SIZES = (
    EncoderSize(
        name="pixtral-tiny",
        family="pixtral",
        layout="packed",
        depth=3,
        hidden=64,
        intermediate=128,
        heads=4,
        out=64,
        gated=True,
        settings=(("hidden_act", "silu"), ("rope_theta", 10_000.0)),
        parameters=172_480,
        rule=PIXTRAL_RULE,
        source="made for tests and laptops; the published token rule, a toy width",
    ),
    _sized(
        "pixtral-12b",
        rule=PIXTRAL_RULE,
        parameters=403_489_792,
        source="vision_config of mistral-community/pixtral-12b",
    ),
    _sized(
        "mistral-small-3.1",
        rule=rule(1540, 14),
        parameters=403_305_472,
        source="vision_config of mistralai/Mistral-Small-3.1-24B-Instruct-2503",
    ),
)

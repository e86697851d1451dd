"""Sizes of the vision tower of GLM-4.1V."""

from encgraph.rules import EncoderSize, TokenRule

GLM4V_RULE = TokenRule(
    patch=14,
    merge=2,
    min_pixels=12_544,
    max_pixels=9_633_792,
    image_frames=2,
    video_min_pixels=12_544,
    video_max_pixels=47_040_000,
)
"""Limits count frames: an image is doubled first, so its own limits are half of these."""

SIZES = (
    EncoderSize(
        name="glm4v-tiny",
        family="glm4v",
        layout="packed",
        depth=3,
        hidden=64,
        intermediate=96,
        heads=4,
        out=96,
        position_side=6,
        gated=True,
        merger=128,
        parameters=253_536,
        rule=GLM4V_RULE,
        source="made for tests and laptops; the published token rule, a toy width",
    ),
    EncoderSize(
        name="glm4v-9b",
        family="glm4v",
        layout="packed",
        depth=24,
        hidden=1536,
        intermediate=4096,
        heads=12,
        out=4096,
        position_side=24,
        gated=True,
        merger=13_696,
        parameters=892_498_432,
        rule=GLM4V_RULE,
        source="vision_config of zai-org/GLM-4.1V-9B-Thinking, which are the class defaults",
    ),
)

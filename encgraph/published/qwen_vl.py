"""Sizes of the Qwen vision towers: Qwen3-VL, Qwen2.5-VL and Qwen2-VL."""

from encgraph.rules import EncoderSize, TokenRule

QWEN3_VL_RULE = TokenRule(
    patch=16,
    merge=2,
    min_pixels=65_536,
    max_pixels=16_777_216,
    video_min_pixels=4_096,
    video_max_pixels=25_165_824,
)
"""Limits as the models' own preprocessor_config.json and video_preprocessor_config.json have them; those
of a clip are of all its frames together. The defaults of transformers' classes are narrower."""

QWEN2_VL_RULE = TokenRule(
    patch=14,
    merge=2,
    min_pixels=3_136,
    max_pixels=12_845_056,
    video_min_pixels=3_136,
    video_max_pixels=12_845_056,
    video_limits_a_frame=True,
)
"""Of Qwen2-VL and Qwen2.5-VL alike, whose one preprocessor_config.json speaks of clips too, a frame each."""


def _qwen3(name: str, *, small: bool, out: int, parameters: int) -> EncoderSize:
    return EncoderSize(
        name=name,
        family="qwen3-vl",
        layout="packed",
        depth=24 if small else 27,
        hidden=1024 if small else 1152,
        intermediate=4096 if small else 4304,
        heads=16,
        out=out,
        deepstack=(5, 11, 17) if small else (8, 16, 24),
        position_side=48,
        parameters=parameters,
        rule=QWEN3_VL_RULE,
        source=f"vision_config of Qwen/Qwen3-VL-{name.rsplit('-', 1)[1].upper()}-Instruct",
    )


TINY = EncoderSize(
    name="qwen3-vl-tiny",
    family="qwen3-vl",
    layout="packed",
    depth=4,
    hidden=64,
    intermediate=128,
    heads=4,
    out=96,
    deepstack=(1, 2),
    position_side=8,
    parameters=508_896,
    rule=QWEN3_VL_RULE,
    source="made for tests and laptops; the published token rule, a toy width",
)


def _qwen25(name: str, *, out: int, parameters: int, intermediate: int = 3420) -> EncoderSize:
    return EncoderSize(
        name=name,
        family="qwen2.5-vl",
        layout="packed",
        depth=32,
        hidden=1280,
        intermediate=intermediate,
        heads=16,
        out=out,
        gated=True,
        window=112,
        full_attention=(7, 15, 23, 31),
        parameters=parameters,
        rule=QWEN2_VL_RULE,
        source=f"vision_config of Qwen/Qwen2.5-VL-{name.rsplit('-', 1)[1].upper()}-Instruct",
    )


def _qwen2(name: str, *, out: int, parameters: int) -> EncoderSize:
    return EncoderSize(
        name=name,
        family="qwen2-vl",
        layout="packed",
        depth=32,
        hidden=1280,
        intermediate=5120,
        heads=16,
        out=out,
        parameters=parameters,
        rule=QWEN2_VL_RULE,
        source=f"vision_config of Qwen/Qwen2-VL-{name.rsplit('-', 1)[1].upper()}-Instruct",
    )


SIZES = (
    TINY,
    _qwen3("qwen3-vl-2b", small=True, out=2048, parameters=406_957_056),
    _qwen3("qwen3-vl-4b", small=True, out=2560, parameters=415_347_712),
    _qwen3("qwen3-vl-8b", small=False, out=4096, parameters=576_388_336),
    _qwen3("qwen3-vl-32b", small=False, out=5120, parameters=595_266_800),
    EncoderSize(
        name="qwen2.5-vl-tiny",
        family="qwen2.5-vl",
        layout="packed",
        depth=4,
        hidden=64,
        intermediate=128,
        heads=4,
        out=96,
        gated=True,
        window=112,
        full_attention=(1, 3),
        parameters=332_448,
        rule=QWEN2_VL_RULE,
        source="made for tests and laptops; the published token rule, a toy width",
    ),
    _qwen25("qwen2.5-vl-3b", out=2048, parameters=668_684_288),
    _qwen25("qwen2.5-vl-7b", out=3584, parameters=676_550_144),
    _qwen25("qwen2.5-vl-32b", out=5120, parameters=688_841_984, intermediate=3456),
    EncoderSize(
        name="qwen2-vl-tiny",
        family="qwen2-vl",
        layout="packed",
        depth=3,
        hidden=64,
        intermediate=128,
        heads=4,
        out=96,
        parameters=266_272,
        rule=QWEN2_VL_RULE,
        source="made for tests and laptops; the published token rule, a toy width",
    ),
    _qwen2("qwen2-vl-2b", out=1536, parameters=665_271_296),
    _qwen2("qwen2-vl-7b", out=3584, parameters=675_759_104),
)

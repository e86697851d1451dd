"""Token rules equal the processor's, and published sizes equal what transformers builds."""

import random
from dataclasses import replace

import pytest

from encgraph import sizes
from encgraph.records import Load, Modality, Plan
from encgraph.sizes import QWEN3_VL_RULE, Grid, TokenRule

RULE = QWEN3_VL_RULE
LIMIT = RULE.max_pixels // RULE.factor**2


def draws(count: int, *, top: int = 9000) -> list[tuple[int, int]]:
    """Seeded sizes on a log scale, aspect within the processor's limit."""
    draw = random.Random(count)
    sides = [tuple(round(top ** draw.random()) for _ in "wh") for _ in range(4 * count)]
    return [s for s in sides if max(s) / min(s) <= sizes.MAX_ASPECT][:count]


def test_image_grids_equal_the_processors_for_1000_sizes() -> None:
    module = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    drawn = draws(1000)
    assert len(drawn) == 1000
    for width, height in drawn:
        high, wide = module.smart_resize(
            height, width, factor=32, min_pixels=65536, max_pixels=16777216
        )
        expected = Grid(1, high // RULE.patch, wide // RULE.patch)
        assert sizes.image_grid(width, height, RULE) == expected, (width, height)


def test_video_grids_equal_the_processors_for_1000_clips() -> None:
    module = pytest.importorskip("transformers.models.qwen3_vl.video_processing_qwen3_vl")
    draw = random.Random(0)
    for width, height in draws(1000, top=3000):
        frames = draw.randint(2, 96)
        try:
            high, wide = module.smart_resize(
                frames, height, width, factor=32, min_pixels=4096, max_pixels=25165824
            )
        except ValueError:
            with pytest.raises(ValueError, match="aspect ratio"):
                sizes.video_grid(width, height, frames, RULE)
            continue
        expected = Grid(-(-frames // 2), high // RULE.patch, wide // RULE.patch)
        assert sizes.video_grid(width, height, frames, RULE) == expected, (width, height, frames)


def test_every_image_grid_is_legal() -> None:
    for width, height in draws(500):
        grid = sizes.image_grid(width, height, RULE)
        tokens = sizes.item(grid, RULE).tokens
        assert grid.h % RULE.merge == grid.w % RULE.merge == 0
        assert RULE.min_pixels // RULE.factor**2 <= tokens <= LIMIT


@pytest.mark.parametrize(
    ("width", "height", "message"),
    [
        (0, 5, "at least 1 pixel, got 0 x 5"),
        (5, -1, "at least 1 pixel, got 5 x -1"),
        (1, 228, "at most 200, got 228.0"),
        (30000, 100, "at most 200, got 300.0"),
    ],
)
def test_an_image_that_the_processor_refuses_is_refused(
    width: int, height: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        sizes.image_grid(width, height, RULE)


def test_the_extremes_that_the_processor_takes_are_taken() -> None:
    assert sizes.image_grid(1, 1, RULE) == Grid(1, 16, 16)
    assert sizes.item(sizes.image_grid(30000, 30000, RULE), RULE).tokens == LIMIT
    assert sizes.image_grid(200, 1, RULE).h == RULE.merge


def test_a_clip_of_one_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 frames, got 1"):
        sizes.video_grid(64, 64, 1, RULE)


def test_a_near_square_grid_holds_its_tokens_with_little_to_spare() -> None:
    low = RULE.min_pixels // RULE.factor**2
    for tokens in [*range(1, 2000), *range(2000, LIMIT, 97), LIMIT]:
        grid = sizes.near_square_grid(tokens, RULE)
        high, wide = grid.h // RULE.merge, grid.w // RULE.merge
        asked = max(tokens, low)
        assert (grid.t, grid.h, grid.w) == (1, high * RULE.merge, wide * RULE.merge)
        assert asked <= high * wide <= min(asked + high, LIMIT)
        assert high <= wide <= 2 * high


def test_a_near_square_grid_survives_the_processor() -> None:
    for tokens in range(64, 3000, 7):
        grid = sizes.near_square_grid(tokens, RULE)
        assert sizes.image_grid(grid.w * RULE.patch, grid.h * RULE.patch, RULE) == grid


@pytest.mark.parametrize("tokens", [0, -3, LIMIT + 1])
def test_tokens_that_no_image_has_are_refused(tokens: int) -> None:
    with pytest.raises(ValueError, match=f"got {tokens}"):
        sizes.near_square_grid(tokens, RULE)


def test_attention_of_an_item_runs_within_each_temporal_step() -> None:
    clip = sizes.item(Grid(4, 16, 22), RULE, request=3)
    assert (clip.modality, clip.tokens, clip.patches) == (Modality.VIDEO, 352, 1408)
    assert (clip.segments, clip.longest_segment, clip.frames, clip.request) == (4, 352, 4, 3)
    image = sizes.item(Grid(1, 30, 40), RULE)
    assert (image.modality, image.segments, image.longest_segment) == (Modality.IMAGE, 1, 1200)
    assert (image.width, image.height) == (640, 480)


def test_a_capacity_is_the_worst_case_unless_told() -> None:
    worst = sizes.capacity(64, RULE, items=100)
    assert (worst.items, worst.segments, worst.frames) == (64, 64, 64)
    assert (worst.patches, worst.longest_segment) == (256, 256)
    told = sizes.capacity(64, RULE, items=2, frames=5, longest_segment=100)
    assert (told.items, told.segments, told.longest_segment) == (2, 5, 100)
    assert sizes.capacity(64, RULE, items=1, longest_segment=10**6).longest_segment == 256


def test_a_clip_of_one_step_is_a_clip_where_that_is_said() -> None:
    grid = sizes.video_grid(64, 64, 2, RULE)
    assert grid.t == 1
    assert sizes.item(grid, RULE).modality is Modality.IMAGE
    assert sizes.item(grid, RULE, modality=Modality.VIDEO).modality is Modality.VIDEO


def test_a_function_in_place_of_a_size_is_told_where_it_goes() -> None:
    with pytest.raises(ValueError, match="only `encgraph check` takes MODULE:FUNCTION"):
        sizes.named("module:build")


QWEN2 = sizes.named("qwen2-vl-7b").rule
GLM = sizes.named("glm4v-9b").rule
PIXTRAL = sizes.named("pixtral-12b").rule


def test_qwen2_grids_equal_the_processors() -> None:
    module = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    for width, height in draws(400):
        high, wide = module.smart_resize(
            height, width, factor=28, min_pixels=3136, max_pixels=12845056
        )
        assert sizes.image_grid(width, height, QWEN2) == Grid(1, high // 14, wide // 14)
        # one file of limits for images and, a frame each, for clips
        assert sizes.video_grid(width, height, 9, QWEN2) == Grid(5, high // 14, wide // 14)


def test_glm_grids_equal_the_processors_which_count_an_image_as_two_frames() -> None:
    module = pytest.importorskip("transformers.models.glm4v.image_processing_pil_glm4v")
    draw = random.Random(1)
    for width, height in draws(400):
        if max(width, height) / max(28, min(width, height)) > 150:
            continue
        high, wide = module.smart_resize(2, height, width, min_pixels=12544, max_pixels=9_633_792)
        assert sizes.image_grid(width, height, GLM) == Grid(1, high // 14, wide // 14)
        frames = draw.randint(2, 40)
        high, wide = module.smart_resize(
            frames, height, width, min_pixels=12544, max_pixels=47_040_000
        )
        expected = Grid(-(-frames // 2), high // 14, wide // 14)
        assert sizes.video_grid(width, height, frames, GLM) == expected


def test_pixtral_grids_equal_the_processors() -> None:
    module = pytest.importorskip("transformers.models.pixtral.image_processing_pil_pixtral")
    numpy = pytest.importorskip("numpy")
    for width, height in draws(300):
        blank = numpy.broadcast_to(numpy.zeros((1, 1, 1)), (3, height, width))
        if min(width, height) < max(width, height) / 1024:
            continue
        high, wide = module.get_resize_output_image_size(blank, 1024, 16)
        assert sizes.image_grid(width, height, PIXTRAL) == Grid(1, high // 16, wide // 16)


def test_patch_limit_grids_equal_the_processors() -> None:
    module = pytest.importorskip("transformers.models.siglip2.image_processing_pil_siglip2")
    rule = TokenRule(patch=16, merge=1, min_pixels=256, max_pixels=256 * 256, resize="patch_limit")
    for width, height in draws(200):
        high, wide = module.get_image_size_for_max_num_patches(height, width, 16, 256)
        assert sizes.image_grid(width, height, rule) == Grid(1, high // 16, wide // 16)


def test_a_fixed_rule_has_one_grid_and_capacities_of_whole_items() -> None:
    rule = TokenRule(
        patch=14,
        merge=1,
        min_pixels=336**2,
        max_pixels=336**2,
        resize="fixed",
        prefix=1,
        prefix_tokens=1,
    )
    assert sizes.image_grid(5, 900, rule) == Grid(1, 24, 24)
    assert rule.min_tokens == rule.max_tokens == 577
    assert sizes.item(Grid(1, 24, 24), rule).tokens == 577
    held = sizes.capacity(1500, rule, items=9)
    assert (held.tokens, held.items, held.patches, held.longest_segment) == (1154, 2, 1154, 577)


def test_a_pooled_text_counts_the_tokens_it_is_pooled_from() -> None:
    rule = TokenRule(patch=1, merge=1, min_pixels=1, max_pixels=512, resize="length", pooled=True)
    assert sizes.image_grid(77, 1, rule) == Grid(1, 1, 77)
    item = sizes.item(Grid(1, 1, 77), rule)
    assert (item.tokens, item.patches) == (77, 77)
    held = sizes.capacity(600, rule, items=4)
    assert (held.tokens, held.patches, held.items, held.longest_segment) == (600, 600, 4, 512)
    with pytest.raises(ValueError, match="length must be 1 to 512, got 513"):
        sizes.image_grid(513, 1, rule)


@pytest.mark.parametrize("name", sizes.SIZES)
def test_a_budget_of_slots_holds_as_many_items_however_few_tokens_they_have(name: str) -> None:
    rule = sizes.named(name).rule
    for count in (1, 2, 5) if rule.slot_tokens else ():
        held = sizes.capacity(count * rule.slot_tokens + rule.slot_tokens - 1, rule, items=9)
        assert (held.tokens, held.items) == (count * rule.slot_tokens, count)
        least = sizes.item(sizes.near_square_grid(1, rule), rule)
        most = sizes.item(sizes.near_square_grid(rule.max_tokens, rule), rule)
        several = (count - 1) // rule.max_tiles
        assert held.holds(Load.of([least, *[most] * several]))
        assert held.holds(Load.of([least] * count))
        assert not held.holds(Load.of([least] * (count + 1)))


@pytest.mark.parametrize("rule", [QWEN2, GLM, PIXTRAL], ids=["qwen2", "glm", "pixtral"])
def test_near_square_grids_of_other_rules_are_legal(rule: TokenRule) -> None:
    for tokens in [*range(1, 400), *range(400, rule.max_tokens, 61), rule.max_tokens]:
        grid = sizes.near_square_grid(tokens, rule)
        made = sizes.item(grid, rule)
        assert max(tokens, rule.min_tokens) <= made.tokens <= rule.max_tokens + grid.h
        assert sizes.image_grid(made.width or 0, made.height or 0, rule) == grid, tokens


def test_clips_are_refused_where_the_encoder_takes_none() -> None:
    with pytest.raises(ValueError, match="takes no clips"):
        sizes.video_grid(64, 64, 4, PIXTRAL)


def test_a_name_with_a_typo_is_refused_with_the_nearest() -> None:
    assert sizes.named("qwen3-vl-8b").hidden == 1152
    with pytest.raises(ValueError, match="got 'Qwen3-VL-8'; did you mean 'qwen3-vl-8b'"):
        sizes.named("Qwen3-VL-8")
    with pytest.raises(ValueError, match=r"got 'zzz'; `encgraph encoders` lists"):
        sizes.named("zzz")


@pytest.mark.parametrize("name", [3, None, ["qwen3-vl-8b"]])
def test_what_is_no_name_is_said(name: object) -> None:
    with pytest.raises(ValueError, match=r"encoder must be a name, got "):
        sizes.named(name)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(sizes.SIZES))
def test_the_capacities_made_here_are_whole(name: str) -> None:
    rule = sizes.named(name).rule
    for tokens in (rule.max_tokens, 3 * rule.max_tokens + 1):
        for items in (1, 3):
            made = sizes.capacity(tokens, rule, items=items, frames=5)
            sizes.check_plan(Plan(graphs=(made,), encoder=name), rule)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("qwen3-vl-8b", {"patches": 10}, "a budget of 300 tokens needs 1,200 patches, .* says 10"),
        ("qwen3-vl-8b", {"patches": 1201}, "needs 1,200 patches, the plan says 1,201"),
        ("qwen3-vl-8b", {"segments": 1}, "for 2 items needs at least as many segments, .* says 1"),
        ("qwen3-vl-8b", {"frames": 1}, "for 2 items needs at least as many frames, .* says 1"),
        ("clip-vit-l-14", {"patches": 256}, "needs 257 patches, the plan says 256"),
        ("bert-base-uncased", {"patches": 10}, "needs 300 patches, the plan says 10"),
    ],
)
def test_a_capacity_that_contradicts_its_rule_says_what_is_needed(
    name: str, change: dict[str, int], message: str
) -> None:
    rule = sizes.named(name).rule
    made = replace(sizes.capacity(300, rule, items=2), **change)
    with pytest.raises(ValueError, match=message):
        sizes.check_plan(Plan(graphs=(made,), encoder=name), rule)


@pytest.mark.parametrize(
    "name", ["qwen3-vl-8b", "siglip-base-16-224", "clip-vit-l-14", "bert-base-uncased"]
)
def test_an_item_known_by_its_tokens_is_one_that_its_capacity_holds(name: str) -> None:
    rule = sizes.named(name).rule
    tokens = rule.slot_tokens or 300
    one, held = sizes.item_of(tokens, rule), sizes.capacity(tokens, rule, items=1)
    assert (one.tokens, one.patches) == (held.tokens, held.patches)

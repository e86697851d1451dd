"""Token rules equal the processor's, and published sizes equal what transformers builds."""

import random

import pytest

from encgraph import sizes
from encgraph.records import Modality
from encgraph.sizes import QWEN3_VL_RULE, Grid

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
                frames, height, width, factor=32, min_pixels=131072, max_pixels=786432
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


@pytest.mark.parametrize("name", sorted(sizes.SIZES))
def test_a_published_size_has_the_parameters_that_transformers_builds(name: str) -> None:
    torch = pytest.importorskip("torch")
    models = pytest.importorskip("transformers.models.qwen3_vl.modeling_qwen3_vl")
    size = sizes.named(name)
    config = models.Qwen3VLVisionConfig(
        depth=size.depth,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_heads=size.heads,
        out_hidden_size=size.out,
        deepstack_visual_indexes=list(size.deepstack),
        num_position_embeddings=size.position_side**2,
        patch_size=size.rule.patch,
        spatial_merge_size=size.rule.merge,
        temporal_patch_size=size.rule.temporal_patch,
    )
    with torch.device("meta"):
        tower = models.Qwen3VLVisionModel(config)
    assert sum(p.numel() for p in tower.parameters()) == size.parameters
    assert size.patch_width == 3 * 2 * 16 * 16


def test_a_name_with_a_typo_is_refused_with_the_nearest() -> None:
    assert sizes.named("qwen3-vl-8b").hidden == 1152
    with pytest.raises(ValueError, match="got 'Qwen3-VL-8'; did you mean 'qwen3-vl-8b'"):
        sizes.named("Qwen3-VL-8")
    with pytest.raises(ValueError, match=r"got 'zzz'$"):
        sizes.named("zzz")

import random

import pytest
import torch
from PIL import Image

from encgraph import sizes
from encgraph.encoders import inputs
from encgraph.records import Item
from encgraph.sizes import Grid

TINY = sizes.named("qwen3-vl-tiny")
ROTATED = 6
"""EXIF orientation that turns width and height."""


def write(path, width, height, orientation=1, mode="RGB"):
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.linear_gradient("L").resize((width, height)).convert(mode)
    image.save(path, exif=exif)
    return path


def test_grids_of_files_equal_the_token_rule_for_random_sizes(tmp_path):
    rng = random.Random(0)
    for index in range(25):
        width, height = rng.randint(20, 900), rng.randint(20, 900)
        orientation = rng.choice([1, 3, ROTATED, 8])
        path = write(tmp_path / f"{index}.jpg", width, height, orientation)
        if orientation in (ROTATED, 8):
            width, height = height, width
        (made,) = inputs.from_files([path], TINY)
        assert made.grid == sizes.image_grid(width, height, TINY.rule)
        assert (made.item.width, made.item.height) == (width, height)
        assert made.pixels.shape == (made.item.patches, TINY.patch_width)


def test_a_rotated_file_gives_the_pixels_of_the_upright_image(tmp_path):
    gradient = Image.linear_gradient("L").resize((320, 256)).convert("RGB")
    gradient.save(tmp_path / "upright.png")
    exif = Image.Exif()
    exif[0x0112] = ROTATED
    gradient.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    upright, turned = inputs.from_files([tmp_path / "upright.png", tmp_path / "turned.png"], TINY)
    assert torch.equal(upright.pixels, turned.pixels)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P"])
def test_any_colour_mode_becomes_rgb_in_the_normalised_range(tmp_path, mode):
    path = write(tmp_path / "one.png", 300, 300, mode=mode)
    (made,) = inputs.from_files([path], TINY)
    assert made.pixels.min() >= -1
    assert made.pixels.max() <= 1
    assert made.pixels.std() > 0.1


def test_files_come_back_in_order_and_in_the_dtype_asked_for(tmp_path):
    paths = [write(tmp_path / "a.png", 600, 300), write(tmp_path / "b.png", 300, 600)]
    first, second = inputs.from_files(paths, TINY, dtype=torch.bfloat16)
    assert first.grid.w > first.grid.h
    assert second.grid.w < second.grid.h
    assert first.pixels.dtype == torch.bfloat16


@pytest.mark.parametrize("content", [b"", b"no image at all"])
def test_a_file_that_is_no_image_is_named(tmp_path, content):
    path = tmp_path / "broken.jpg"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"broken\.jpg.* cannot be encoded"):
        inputs.from_files([path], TINY)


def test_an_aspect_over_the_processor_s_is_refused_by_name(tmp_path):
    path = write(tmp_path / "thin.png", 4000, 10)
    with pytest.raises(ValueError, match=r"thin\.png.* cannot be encoded"):
        inputs.from_files([path], TINY)


def test_synthetic_pixels_are_seeded_and_in_range():
    def made(seed):
        return inputs.synthetic([Grid(1, 4, 6), Grid(2, 4, 4)], size=TINY, seed=seed)

    assert torch.equal(made(1)[1].pixels, made(1)[1].pixels)
    assert not torch.equal(made(1)[0].pixels, made(2)[0].pixels)
    assert made(1)[1].pixels.shape == (32, TINY.patch_width)
    assert made(1)[0].pixels.abs().max() <= 1
    assert not torch.equal(made(1)[0].pixels[:24], made(1)[1].pixels[:24])


@pytest.mark.parametrize(
    "grid", [Grid(1, 30, 40), Grid(1, 40, 30), Grid(1, 16, 16), Grid(4, 16, 22), Grid(1, 2, 34)]
)
def test_an_item_keeps_its_patches_and_frames_when_it_becomes_pixels(grid):
    item = sizes.item(grid, TINY.rule)
    (made,) = inputs.synthetic([item], size=TINY)
    assert made.item == item
    assert (made.grid.t, made.grid.h * made.grid.w) == (grid.t, grid.h * grid.w)


def test_an_item_s_own_sides_give_its_own_grid():
    grid = sizes.image_grid(1000, 400, TINY.rule)
    item = sizes.item(grid, TINY.rule, width=1000, height=400)
    assert inputs.grid_of(item, TINY.rule) == grid


def test_an_item_that_is_no_whole_tokens_is_refused():
    with pytest.raises(ValueError, match="10 patches in 1 frames"):
        inputs.synthetic([Item(tokens=3, patches=10)], size=TINY)


@pytest.mark.parametrize(
    "name", ["qwen2.5-vl-tiny", "qwen2-vl-tiny", "glm4v-tiny", "pixtral-tiny", "qwen3-vl-tiny"]
)
def test_every_packed_family_reads_files_with_the_grid_its_rule_promises(name, tmp_path):
    size = sizes.named(name)
    for width, height in ((300, 200), (31, 500), (1100, 900)):
        path = tmp_path / f"{width}.png"
        Image.effect_noise((width, height), 60).convert("RGB").save(path)
        made = inputs.from_files([path], size)[0]
        assert made.grid == sizes.image_grid(width, height, size.rule)
        assert made.pixels.shape == (made.item.patches, size.patch_width)
        assert (made.item.width, made.item.height) == (width, height)


def test_pixtral_patches_put_together_are_the_processors_image(tmp_path):
    from encgraph.encoders import readers, registry

    path = tmp_path / "image.png"
    Image.effect_noise((90, 60), 60).convert("RGB").save(path)
    size = sizes.named("pixtral-tiny")
    value = inputs.from_files([path], size)[0]
    processor = readers.PixtralImageProcessorPil(
        size={"longest_edge": 1024}, patch_size={"height": 16, "width": 16}
    )
    with Image.open(path) as image:
        whole = processor(images=[image.convert("RGB")], return_tensors="pt")
    encoder = registry.named("pixtral-tiny", device="cpu", dtype=torch.float32)
    sides = [tuple(side) for side in whole["image_sizes"]]
    with torch.no_grad():
        true = encoder.module(whole["pixel_values"], image_sizes=sides).last_hidden_state[0]
    torch.testing.assert_close(encoder.eager([value])[0].main, true, rtol=1e-4, atol=1e-5)


def test_a_family_without_a_reader_is_refused(tmp_path):
    from dataclasses import replace

    with pytest.raises(ValueError, match=r"files are read for families .*got 'other'"):
        inputs.from_files([], replace(TINY, family="other"))


def test_a_photo_of_a_hundred_megapixels_is_read_without_a_warning(tmp_path, recwarn):
    path = tmp_path / "huge.png"
    Image.new("L", (10_000, 9_500)).save(path)
    [made] = inputs.from_files([path], TINY)
    assert made.item.tokens <= TINY.rule.max_tokens
    assert not [w for w in recwarn if "Bomb" in w.category.__name__]


def test_one_path_in_place_of_a_list_is_said(tmp_path):
    for one in (tmp_path, str(tmp_path)):
        with pytest.raises(ValueError, match="paths must be a list of image files, got"):
            inputs.from_files(one, sizes.named("qwen3-vl-tiny"))

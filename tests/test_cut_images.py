"""Images that a processor cuts into tiles: counts, pixels, budgets and replays, from header to rows."""

import json
import math
import random
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers_whole import whole
from PIL import Image
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from encgraph import budgets, cards, packing, sizes, traffic
from encgraph.budgets import Target
from encgraph.encoders import inputs, pixels, registry
from encgraph.published import tiles
from encgraph.records import Load, Route
from encgraph.runner import EncoderRunner

CUT = [size.name for size in (*tiles.INTERNVL_SIZES, *tiles.IDEFICS3_SIZES)]
TINY = [name for name in CUT if name.endswith("-tiny")]
STRIPS = [(1, 1), (4000, 1), (1, 4000), (4000, 10), (10, 4000), (1456, 364), (364, 1457)]
TOLERANCE = 1e-5


def drawn(count):
    """Sides of pictures, flat and tall ones among them."""
    rng = random.Random(0)
    sides = [(rng.randint(1, 4000), rng.randint(1, 4000)) for _ in range(count // 2)]
    for _ in range(count - len(sides)):
        high = rng.randint(20, 2000)
        sides.append((max(1, round(high * math.exp(rng.uniform(-2, 2)))), high))
    return sides


def processor(name):
    """The processor of a published model of this size: InternVL's is told what its config says."""
    size = sizes.named(name)
    side, known = math.isqrt(size.rule.max_pixels), pixels.NORMALISATIONS[size.family]
    if size.family == "internvl":
        return GotOcr2ImageProcessorPil(
            size={"height": side, "width": side},
            crop_to_patches=True,
            image_mean=known.mean,
            image_std=known.std,
        )
    made = {"idefics3": Idefics3ImageProcessorPil, "smolvlm": SmolVLMImageProcessorPil}
    edges = {"size": {"longest_edge": 4 * side}, "max_image_size": {"longest_edge": side}}
    return made[size.family](**edges)


def cut(name, image):
    """Tiles (N, 3, S, S) by the processor."""
    return processor(name)(images=[image], return_tensors="pt")["pixel_values"].flatten(0, -4)


def photo(rng, width, height):
    """Smooth colours with noise on them."""
    y, x = np.mgrid[:height, :width] / 90
    waves = [np.sin(rng.uniform(0.2, 2) * x + rng.uniform(0.2, 2) * y + c) for c in range(3)]
    noise = np.random.default_rng(rng.randrange(99)).normal(0, 12, (height, width, 3))
    return Image.fromarray((127 + 90 * np.stack(waves, -1) + noise).clip(0, 255).astype("uint8"))


@pytest.mark.parametrize("name", CUT)
def test_tiles_and_tokens_of_1000_sizes_are_those_the_processor_counts(name):
    rule, cuts, seen = sizes.named(name).rule, processor(name), set()
    side = math.isqrt(rule.max_pixels)
    for width, height in [*drawn(1000 - len(STRIPS)), *STRIPS]:
        told = cuts.get_number_of_image_patches(height, width, {})
        count = told[0] if isinstance(told, tuple) else told
        item = sizes.item(sizes.image_grid(width, height, rule), rule)
        assert item.segments == count, (width, height)
        assert item.tokens == count * (side // rule.patch // rule.merge) ** 2
        assert item.patches == count * item.longest_segment
        assert (item.frames, item.modality) == (1, rule.modality)
        seen.add(count)
    assert max(seen) == rule.max_tiles
    assert len(seen) >= 4


def test_published_models_are_cut_as_their_processors_are_by_default():
    ratio = GotOcr2ImageProcessorPil.max_patches
    edges = {
        stated.size["longest_edge"] // stated.max_image_size["longest_edge"]
        for stated in (Idefics3ImageProcessorPil, SmolVLMImageProcessorPil)
    }
    assert {size.rule.tiles for size in tiles.INTERNVL_SIZES} == {ratio}
    assert {size.rule.tiles for size in tiles.IDEFICS3_SIZES} == edges


@pytest.mark.parametrize("name", TINY)
def test_files_become_the_processor_s_pixels_in_as_many_tiles_as_their_header_says(name, tmp_path):
    size, rng = sizes.named(name), random.Random(3)
    sides = [(rng.randint(1, 300), rng.randint(1, 300)) for _ in range(12)]
    counts = set()
    for index, (width, height) in enumerate([*sides, (30, 30), (400, 3)]):
        path = tmp_path / f"{index}.png"
        photo(rng, width, height).save(path)
        [made] = inputs.from_files([path], size)
        grid = sizes.image_grid(width, height, size.rule)
        assert made.grid == grid
        assert made.item == sizes.item(grid, size.rule, width=width, height=height)
        torch.testing.assert_close(made.pixels, cut(name, Image.open(path)), rtol=0, atol=TOLERANCE)
        counts.add(len(made.pixels))
    assert len(counts) >= 3


@pytest.mark.parametrize("name", ["internvl3-2b", "idefics3-8b", "smolvlm2-2.2b"])
def test_a_photo_at_a_published_size_gives_the_processor_s_pixels(name, tmp_path):
    path, size = tmp_path / "photo.png", sizes.named(name)
    photo(random.Random(5), 700, 420).save(path)
    [made] = inputs.from_files([path], size)
    assert len(made.pixels) == sizes.image_grid(700, 420, size.rule).t > 1
    torch.testing.assert_close(made.pixels, cut(name, Image.open(path)), rtol=0, atol=TOLERANCE)


def test_tiles_lie_row_by_row_and_the_whole_is_last(tmp_path):
    """Told by colour: a picture of four flat quarters, cut in two by two."""
    size = sizes.named("internvl-tiny")
    quarters = torch.tensor([[10, 90], [170, 250]], dtype=torch.uint8)
    picture = quarters.repeat_interleave(24, 0).repeat_interleave(24, 1)
    Image.fromarray(picture.numpy()).save(tmp_path / "quarters.png")
    [made] = inputs.from_files([tmp_path / "quarters.png"], size, dtype=torch.uint8)
    middles = made.pixels[:, 0, 16, 16].tolist()
    assert middles[:4] == [10, 90, 170, 250]
    corners = made.pixels[4, 0, [2, 2, -3, -3], [2, -3, 2, -3]].tolist()
    assert corners == middles[:4]


@pytest.mark.parametrize("name", TINY)
def test_replays_of_items_of_one_and_of_many_tiles_equal_eager(name, tmp_path):
    encoder, size = registry.named(name, device="cpu", dtype=torch.float32), sizes.named(name)
    rng, paths, steps = random.Random(7), [], []
    for index, sides in enumerate([(400, 300), (30, 30), (900, 100), (200, 210)]):
        paths.append(tmp_path / f"{index}.png")
        photo(rng, *sides).save(paths[-1])
    items = [encoder.input(torch.rand(encoder.slot.shape)), *inputs.from_files(paths, size)]
    assert {1, size.rule.max_tiles} <= {encoder.item_spec(one).segments for one in items}

    def observe(step):
        steps.append(step)
        return nullcontext()

    plan = budgets.auto(Target(size=size))
    with EncoderRunner(encoder=encoder, plan=plan, backend="reference") as runner:
        runner.capture()
        runner.observe = observe
        for batch in (items, items[:1], items[1:2], items[::-1], items[2:]):
            for mine, true in zip(runner.execute(batch), encoder.stock().eager(batch), strict=True):
                torch.testing.assert_close(mine.main, true.main, rtol=1e-4, atol=1e-5)
    assert {step.route for step in steps} == {Route.REPLAY}


@pytest.mark.parametrize("name", CUT)
def test_auto_has_a_budget_of_one_tile_of_the_largest_image_and_of_every_half_of_it(name):
    rule = sizes.named(name).rule
    plan = budgets.auto(Target(size=sizes.named(name)))
    counts = [budget // rule.slot_tokens for budget in plan.token_budgets]
    assert {1, rule.max_tiles} <= set(counts)
    assert all(low < high <= 2 * low for low, high in pairwise(counts))
    for graph, count in zip(plan.graphs, counts, strict=True):
        assert graph.segments == graph.items == count
    largest = sizes.item(sizes.near_square_grid(rule.max_tokens, rule), rule)
    assert plan.graphs[counts.index(rule.max_tiles)].holds(Load.of([largest]))


def test_a_plan_from_a_folder_has_the_tokens_of_its_pictures(tmp_path):
    size = sizes.named("internvl3-2b")
    Image.new("RGB", (640, 480)).save(tmp_path / "four_by_three.png")
    Image.new("RGB", (448, 448)).save(tmp_path / "one.png")
    read = traffic.read(str(tmp_path), size)
    items = {item.width: item for request in read.requests for item in request}
    assert (items[640].tokens, items[640].patches, items[640].segments) == (3328, 13325, 13)
    assert (items[448].tokens, items[448].patches, items[448].segments) == (256, 1025, 1)
    plan = budgets.quantile(read.requests, 2, target=Target(size=size))
    assert plan.token_budgets == (256, 3328)
    for request in read.requests:
        [one] = packing.ascending(request, plan).bins
        assert one.token_budget == request[0].tokens


@pytest.mark.parametrize("name", TINY)
def test_a_fitted_plan_replays_items_of_any_number_of_tiles(name):
    """Towers so small that launches are all they cost."""
    size = sizes.named(name)
    read = traffic.read("builtin:coco", size, count=400)
    assert len({item.segments for request in read.requests for item in request}) > 2
    costs = cards.price(size)
    plan = budgets.fitted(read.requests[:200], target=Target(size=size), costs=costs).best.plan
    assert budgets.judge(read.requests[200:], plan, costs=costs).replay_rate == 1


def test_a_table_of_tokens_gives_as_few_tiles_as_have_them_and_says_so(tmp_path):
    (tmp_path / "tokens.csv").write_text("tokens\n1\n256\n257\n3328\n")
    read = traffic.read(str(tmp_path / "tokens.csv"), sizes.named("internvl3-2b"))
    assert [request[0].segments for request in read.requests] == [1, 1, 2, 13]
    assert any("each image has as few tiles as have them, 4352 tokens" in n for n in read.notes)


def test_a_list_of_patch_grids_is_refused_since_it_does_not_say_how_many_tiles(tmp_path):
    (tmp_path / "list.json").write_text('{"requests": [[[32, 32]]]}')
    with pytest.raises(ValueError, match=r"cut into tiles.*give a CSV of sides"):
        traffic.read(str(tmp_path / "list.json"), sizes.named("internvl3-2b"))


@pytest.mark.parametrize(
    ("name", "stated", "most"),
    [
        ("internvl-tiny", {"max_patches": 6}, 7),
        ("internvl-tiny", {}, 13),
        (
            "idefics3-tiny",
            {"size": {"longest_edge": 96}, "max_image_size": {"longest_edge": 32}},
            10,
        ),
        ("smolvlm-tiny", {"size": {"longest_edge": 192}}, 17),
        ("smolvlm-tiny", {"do_image_splitting": False}, 1),
    ],
)
def test_a_saved_processor_says_how_images_are_cut(name, stated, most, tmp_path):
    whole(name)[0].save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "preprocessor_config.json").write_text(json.dumps(stated))
    loaded = registry.from_pretrained(tmp_path / "saved", device="cpu", dtype=torch.float32)
    assert loaded.spec.max_tokens == most * loaded.spec.min_tokens
    assert loaded.spec.max_tokens == loaded.slot.rule.max_tokens

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers_time import least_seconds

from encgraph import datadir, sizes
from encgraph.sizes import QWEN3_VL_RULE as RULE
from encgraph.sources import profiles
from encgraph.sources.profiles import Profile

DRAWS = 20_000
KOLMOGOROV_99 = 1.63 / DRAWS**0.5
"""Largest distance of an empirical distribution from its law, at 99 %."""

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95)
REFERENCE = {
    "servegen": (64, 196, 729, 930, 1025, 1607),
    "mix": (192, 300, 874, 2304, 6834, 11844),
}
"""Tokens a request in the 4,000 `fit_tokens` of the project's request lists servegen and mix: lists
drawn once from the same laws, on which the first measurements were made. Values that occur."""


def law_of_image(profile: Profile) -> np.ndarray:
    """Probability of each token count of one image, from the table alone."""
    law = np.zeros(1 << 18)
    for width, height, images in profile.sizes:
        grid = sizes.image_grid(width, height, RULE)
        law[grid.h * grid.w // 4] += images
    return law / law.sum()


def added(image_law: np.ndarray, counts: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Transform of the law of a sum over a random number of images."""
    transformed = np.fft.rfft(image_law)
    total = sum(weight for _, weight in counts)
    return sum(weight / total * transformed**number for number, weight in counts)


def servegen_law() -> np.ndarray:
    profile = profiles.load("servegen")
    volume = sum(window.requests for window in profile.windows)
    total = 0
    for window in profile.windows:
        law = np.zeros(1 << 16)
        for tokens, share in window.tokens:
            grid = profiles.converted_grid(tokens, 784, RULE)
            law[grid.h * grid.w // 4] += share
        total = total + window.requests / volume * added(law / law.sum(), window.images)
    return np.fft.irfft(total)


def mix_law() -> np.ndarray:
    laws = {part: law_of_image(profiles.load(part)) for part in ("coco", "catalogue", "receipts")}
    three = (50 * laws["coco"] + 30 * laws["catalogue"] + 15 * laws["receipts"]) / 95
    alone = 0.95 * three + 0.05 * law_of_image(profiles.load("phone"))
    total = 0.66 * np.fft.rfft(alone) + added(three, ((2, 16), (4, 12), (9, 6))) * 0.34
    return np.fft.irfft(total)


def cumulative(name: str) -> np.ndarray:
    special = {"servegen": servegen_law, "mix": mix_law}
    law = special[name]() if name in special else law_of_image(profiles.load(name))
    return np.cumsum(law)


def share_off(law: np.ndarray, level: float, value: int) -> float:
    """How far the cumulative share at a value is from a level; 0 if the value's jump spans it."""
    return max(law[value - 1] - level, level - law[value], 0.0)


def tokens(name: str, count: int = DRAWS, seed: int = 0) -> np.ndarray:
    drawn = profiles.draw(name, RULE, count=count, seed=seed)
    return np.array([sum(item.tokens for item in request) for request in drawn])


@pytest.mark.parametrize("name", profiles.PROFILE_NAMES)
def test_draws_follow_the_law_computed_exactly_from_the_table(name):
    law = cumulative(name)
    values = np.sort(tokens(name))
    seen = np.unique(values)
    share = np.searchsorted(values, seen, side="right") / DRAWS
    assert np.abs(share - law[seen]).max() < KOLMOGOROV_99
    for level in LEVELS:
        drawn = int(np.quantile(values, level, method="inverted_cdf"))
        exact = np.searchsorted(law, level)
        assert abs(drawn - exact) <= 0.03 * exact or share_off(law, level, drawn) < 0.01


@pytest.mark.parametrize("name", REFERENCE)
def test_quantiles_agree_with_the_request_lists(name):
    """Within 3 %, or within two points of the cumulative share where the law is flat.

    The lists have 4,000 requests: their own shares are uncertain by 1.6 points at the median, where
    the density is so low that a point of share moves the quantile by several percent.
    """
    law = cumulative(name)
    for level, value in zip(LEVELS, REFERENCE[name], strict=True):
        quantile = np.searchsorted(law, level)
        near = abs(quantile - value) <= 0.03 * value
        assert near or share_off(law, level, value) < 0.02, (level, quantile, value)


def test_servegen_has_the_atoms_and_the_mean_of_the_request_list():
    law = np.diff(servegen_law().cumsum(), prepend=0)
    expected = {930: 0.310, 196: 0.096, 64: 0.093, 961: 0.034, 650: 0.025}
    assert {value: law[value] for value in expected} == pytest.approx(expected, abs=0.01)
    assert (law * np.arange(len(law))).sum() == pytest.approx(714.7, rel=0.03)


def test_mix_has_the_stated_images_a_request_and_phone_photos_only_alone():
    drawn = profiles.draw("mix", RULE, count=DRAWS)
    counts = np.array([len(request) for request in drawn])
    shares = [(counts == number).mean() for number in (1, 2, 4, 9)]
    assert shares == pytest.approx([0.66, 0.16, 0.12, 0.06], abs=0.01)
    others = {
        size[:2] for part in ("coco", "catalogue", "receipts") for size in profiles.load(part).sizes
    }
    phones = [
        len(request) for request in drawn for i in request if (i.width, i.height) not in others
    ]
    assert set(phones) == {1}
    assert len(phones) / (counts == 1).sum() == pytest.approx(0.05, abs=0.01)


def test_the_same_seed_draws_the_same_requests_and_another_seed_others():
    first = profiles.draw("servegen", RULE, count=50, seed=3)
    assert first == profiles.draw("servegen", RULE, count=50, seed=3)
    assert first != profiles.draw("servegen", RULE, count=50, seed=4)


def test_items_carry_the_index_of_their_request():
    drawn = profiles.draw("mix", RULE, count=40)
    assert [{i.request for i in request} for request in drawn] == [{n} for n in range(40)]


def test_ten_thousand_servegen_requests_take_under_three_tenths_of_a_second():
    draws = [lambda: profiles.draw("servegen", RULE, count=10_000)] * 4
    assert least_seconds(*draws) < 0.3


@pytest.mark.parametrize("source_tokens", [4, 6, 144, 525, 1196, 1280])
def test_converted_grid_is_legal_and_close_to_the_pixels_of_the_source(source_tokens):
    grid = profiles.converted_grid(source_tokens, 784, RULE)
    wanted = max(64, source_tokens * 784 / 1024)
    assert grid.h % 2 == grid.w % 2 == 0
    assert grid.h * grid.w // 4 == pytest.approx(wanted, rel=0.06)
    assert grid.h * grid.w // 4 >= 64


IMAGES = sorted(name for name, size in sizes.SIZES.items() if size.rule.modality == "image")


@pytest.mark.parametrize("name", IMAGES)
def test_every_item_drawn_is_one_that_a_picture_gives(name):
    rule = sizes.named(name).rule
    drawn = {
        replace(item, request=0)
        for profile in profiles.PROFILE_NAMES
        for request in profiles.draw(profile, rule, count=400)
        for item in request
    }
    for item in drawn:
        picture = sizes.item(
            sizes.image_grid(item.width, item.height, rule),
            rule,
            width=item.width,
            height=item.height,
        )
        assert item == picture
        assert rule.min_tokens <= item.tokens <= rule.max_tokens


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("siglip-tiny", {16}),
        ("siglip-base-16-224", {196}),
        ("clip-vit-l-14", {257}),
        ("gemma3-4b", {256}),
    ],
)
def test_an_encoder_of_one_shape_always_has_the_tokens_of_it(name, tokens):
    drawn = profiles.draw("servegen", sizes.named(name).rule, count=100)
    assert {item.tokens for request in drawn for item in request} == tokens


def test_a_larger_picture_has_no_fewer_tokens_and_none_over_the_limit():
    rule = sizes.named("pixtral-12b").rule
    counts = [10, 100, 1000, 10_000, 100_000]
    grids = [profiles.converted_grid(tokens, 784, rule) for tokens in counts]
    areas = [grid.h * grid.w for grid in grids]
    assert areas == sorted(areas)
    assert areas[-1] == rule.max_tokens


@pytest.mark.parametrize("name", ["bert-tiny", "whisper-tiny"])
def test_profiles_of_images_are_refused_where_none_are_taken(name):
    rule = sizes.named(name).rule
    with pytest.raises(ValueError, match=f"holds images, and the encoder takes {rule.modality}"):
        profiles.draw("servegen", rule, count=1)


@pytest.mark.parametrize("count", [10**9, 1.5, True])
def test_a_count_that_no_memory_holds_or_that_is_none_is_refused(count):
    with pytest.raises(ValueError, match=r"count must be .*(1,000,000|whole number).*, got"):
        profiles.draw("coco", RULE, count=count)


def test_an_unknown_profile_names_the_nearest():
    with pytest.raises(
        ValueError, match=re.escape("got 'builtin:servgen'; did you mean 'builtin:servegen'")
    ):
        profiles.load("servgen")


def test_no_requests_is_refused():
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        profiles.draw("coco", RULE, count=0)


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(ValueError, match=re.escape("coco.json")):
        profiles.load("coco", root=tmp_path)


@pytest.mark.parametrize("name", profiles.PROFILE_NAMES)
def test_every_table_is_small_and_says_its_origin_licence_and_bias(name):
    path = datadir.root() / "traffic" / f"{name}.json"
    profile = profiles.load(name)
    assert path.stat().st_size < 200_000
    assert all((profile.source, profile.commit, profile.licence, profile.bias, profile.derivation))
    assert profile.name in (datadir.root() / "traffic" / "README.md").read_text(encoding="utf-8")
    assert any(profile.bias in note for note in profiles.notes(profile))


def derive(sources: Path, out: Path) -> None:
    script = datadir.root() / "traffic" / "derive.py"
    subprocess.run([sys.executable, str(script), str(sources), str(out)], check=True)


def test_deriving_twice_writes_the_same_bytes_and_pools_equal_windows(tmp_path):
    sources, first, second = (tmp_path / name for name in ("sources", "first", "second"))
    for folder in (sources, first, second):
        folder.mkdir()
    for table in ("coco_val2017", "taco_official", "sroie_receipt"):
        (sources / f"{table}_sizes.csv").write_text("width,height\n8,9\n5,5\n8,9\n")
    (sources / "shopify_mlperf_top50_sizes.csv").write_text("width,height,count_est\n5,5,7\n")
    (sources / "servegen_mm_windows.csv").write_text(
        "client,window_start_s,requests_est\n1,0,30\n1,6,10\n2,0,0\n"
    )
    (sources / "servegen_mm_image_count.csv").write_text(
        "client,window_start_s,image_count,prob\n1,0,1,1.0\n1,6,0,0.5\n1,6,2,0.5\n2,0,1,1.0\n"
    )
    (sources / "servegen_mm_image_tokens.csv").write_text(
        "client,window_start_s,image_tokens,prob\n1,0,9,1.0\n1,6,9,1.0\n2,0,4,1.0\n"
    )
    derive(sources, first)
    derive(sources, second)
    for name in profiles.PROFILE_NAMES:
        assert (first / f"{name}.json").read_bytes() == (second / f"{name}.json").read_bytes()
    pooled = json.loads((first / "servegen.json").read_text())["windows"]
    images = [[1, 750_000], [2, 250_000]]
    assert pooled == [{"client": 1, "requests": 40, "images": images, "tokens": [[9, 1_000_000]]}]
    assert json.loads((first / "coco.json").read_text())["sizes"] == [[5, 5, 1], [8, 9, 2]]


def test_a_mix_says_its_parts_and_their_licences_in_a_sentence():
    origin = profiles.notes(profiles.load("mix"))[0]
    assert "as theirs" not in origin
    assert origin.startswith("mix: the profiles coco, catalogue, receipts and phone, under their")
    assert origin.endswith("CC BY 4.0, Apache-2.0, MIT")

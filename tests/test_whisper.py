"""Whisper's encoder: windows of audio, one item or several stacked."""

import pytest
import torch
from helpers_layouts import SIZES, built, error, joined

from encgraph.records import Modality


def test_long_audio_is_several_windows_of_one_item():
    encoder = built(SIZES["whisper-tiny"])
    windows = torch.randn(3, *encoder.slot.shape)
    value = encoder.input(windows)
    assert (value.item.modality, value.item.tokens, value.item.segments) == (Modality.AUDIO, 36, 3)
    alone = encoder.eager([encoder.input(window) for window in windows])
    assert error(encoder.eager([value])[0].main, joined(alone)) < 1e-5


@pytest.mark.parametrize("frames", [0, 23, 25])
def test_features_that_are_not_padded_to_a_window_are_refused(frames):
    encoder = built(SIZES["whisper-tiny"])
    with pytest.raises(ValueError, match=rf"shape \(8, 24\) or up to 120 .*got \(8, {frames}\)"):
        encoder.input(torch.randn(8, frames))


def test_an_audio_item_has_no_width_in_pixels():
    item = built(SIZES["whisper-tiny"]).input(torch.randn(8, 24)).item
    assert (item.width, item.height) == (None, None)

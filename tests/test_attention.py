import os
import sys
from itertools import pairwise

import pytest
import torch
from helpers_sync import SyncAuditor
from torch.nn.functional import scaled_dot_product_attention

from encgraph.attention import choose, fa3, loop, sdpa

CPU = torch.device("cpu")
CARD = torch.cuda.is_available()
HEADS, WIDTH = 4, 72
SCALE = WIDTH**-0.5


def made(rows, device="cpu", dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    qkv = torch.randn(rows, 3, HEADS, WIDTH, generator=generator).to(device, dtype)
    q, k, v = qkv.unbind(1)
    return q.contiguous(), k.contiguous(), v


def by_segment(q, k, v, offsets):
    parts = []
    for start, end in pairwise(offsets):
        one = (x[start:end].transpose(0, 1).float() for x in (q, k, v))
        parts.append(scaled_dot_product_attention(*one, scale=SCALE).transpose(0, 1))
    return torch.cat(parts)


@pytest.mark.parametrize("portable", [sdpa, loop])
@pytest.mark.parametrize(
    "offsets", [[0, 7], [0, 300, 301, 640, 700], [0, 5, 5, 9, 9], [0, 1, 2, 3]]
)
def test_packed_attention_equals_one_call_a_segment(portable, offsets):
    q, k, v = made(1000)
    longest = max(b - a for a, b in pairwise(offsets))
    slots = torch.tensor(offsets + [offsets[-1]] * 3, dtype=torch.int32)
    result = portable.attend(q, k, v, slots, longest, scale=SCALE)
    live = offsets[-1]
    torch.testing.assert_close(result[:live], by_segment(q, k, v, offsets))
    assert (result[live:] == 0).all()


@pytest.mark.parametrize("portable", [sdpa, loop])
def test_a_longest_bound_above_the_rows_is_allowed(portable):
    q, k, v = made(20)
    slots = torch.tensor([0, 20], dtype=torch.int32)
    result = portable.attend(q, k, v, slots, 4096, scale=SCALE)
    torch.testing.assert_close(result, by_segment(q, k, v, [0, 20]))


@pytest.mark.parametrize("portable", [sdpa, loop])
def test_rows_outside_every_segment_stay_as_out_had_them(portable):
    q, k, v = made(32)
    out = torch.full((32, HEADS, WIDTH), 5.0)
    slots = torch.tensor([0, 10, 20, 20], dtype=torch.int32)
    result = portable.attend(q, k, v, slots, 10, scale=SCALE, out=out)
    assert result is out
    assert (out[20:] == 5).all()
    torch.testing.assert_close(out[:20], by_segment(q, k, v, [0, 10, 20]))


@pytest.mark.parametrize("portable", [sdpa, loop])
def test_no_live_row_at_all_gives_zeros(portable):
    q, k, v = made(8)
    slots = torch.zeros(3, dtype=torch.int32)
    assert (portable.attend(q, k, v, slots, 8, scale=SCALE) == 0).all()


@pytest.mark.parametrize("portable", [sdpa, loop])
def test_packed_attention_never_synchronizes(portable):
    q, k, v = made(600)
    slots = torch.tensor([0, 300, 600], dtype=torch.int32)
    with SyncAuditor() as auditor:
        portable.attend(q, k, v, slots, 300, scale=SCALE)
    assert auditor.found == []


def test_auto_off_the_card_is_a_loop_over_segments():
    assert choose.named("auto", device=CPU, dtype=torch.float32).name == "loop"


@pytest.mark.parametrize("name", ["flash", "fa3", "cudnn"])
def test_an_attention_that_cannot_run_is_an_error_that_says_what_is_missing(name):
    with pytest.raises(ValueError, match=f"'{name}' cannot run here: .*needs"):
        choose.named(name, device=CPU, dtype=torch.bfloat16)


def test_a_misspelt_attention_suggests_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'flash'"):
        choose.named("flsh", device=CPU, dtype=torch.float32)


def test_doctor_hears_of_every_attention():
    assert dict(choose.available(CPU))["sdpa"] == "ok"
    assert [name for name, _ in choose.available(CPU)] == list(choose.ATTENTION_NAMES)


def test_a_library_that_is_no_file_is_named(monkeypatch):
    monkeypatch.setenv(fa3.VARIABLE, "/nowhere/lib.so")
    with pytest.raises(ValueError, match=r"must name the library's file, got '/nowhere/lib.so'"):
        choose.named("fa3", device=CPU, dtype=torch.bfloat16)


def test_the_library_is_found_inside_a_vllm_that_is_not_imported(tmp_path, monkeypatch):
    monkeypatch.delenv(fa3.VARIABLE, raising=False)
    library = tmp_path / "vllm" / fa3.INSIDE_VLLM
    library.parent.mkdir(parents=True)
    library.touch()
    (tmp_path / "vllm" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert fa3.library() == library
    assert "vllm" not in sys.modules


def test_a_registered_name_takes_the_packed_path_of_transformers():
    attention = choose.named("sdpa", device=CPU, dtype=torch.float32)
    assert "flash" in choose.register(attention)


def fast_here():
    if not CARD:
        return ["flash", "fa3", "cudnn"]
    return [n for n, reason in choose.available(torch.device("cuda")) if n != "sdpa"]


@pytest.mark.cuda
@pytest.mark.skipif(not CARD, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("name", fast_here())
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("offsets", [[0, 1024], [0, 100, 612, 900], [0, 3, 3, 40]])
def test_fast_attention_agrees_with_fp32_on_the_card(name, dtype, offsets):
    device = torch.device("cuda")
    reason = choose.missing(name, device=device, dtype=dtype)
    if reason is not None:
        pytest.skip(reason)
    attend = choose.named(name, device=device, dtype=dtype).attend
    q, k, v = made(1100, device, dtype)
    slots = torch.tensor(offsets + [offsets[-1]] * 5, dtype=torch.int32, device=device)
    out = torch.zeros(1100, HEADS, WIDTH, device=device, dtype=dtype)
    attend(q, k, v, slots, 1100, scale=SCALE, out=out)
    live = offsets[-1]
    truth = by_segment(q, k, v, offsets)
    same_dtype = sdpa.attend(q, k, v, slots, 1100, scale=SCALE)[:live].float()
    allowed = 2 * (same_dtype - truth).abs().max() + 1e-3
    assert (out[:live].float() - truth).abs().max() <= allowed
    assert (out[live:] == 0).all()


@pytest.mark.cuda
@pytest.mark.skipif(not CARD, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("name", fast_here())
def test_a_captured_attention_follows_offsets_changed_in_place(name):
    device, dtype = torch.device("cuda"), torch.bfloat16
    reason = choose.missing(name, device=device, dtype=dtype)
    if reason is not None:
        pytest.skip(reason)
    attend = choose.named(name, device=device, dtype=dtype).attend
    q, k, v = made(512, device, dtype)
    slots = torch.tensor([0, 512, 512, 512], dtype=torch.int32, device=device)
    out = torch.zeros(512, HEADS, WIDTH, device=device, dtype=dtype)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        attend(q, k, v, slots, 512, scale=SCALE, out=out)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        attend(q, k, v, slots, 512, scale=SCALE, out=out)
    for offsets in ([0, 100, 300, 300], [0, 512, 512, 512], [0, 8, 16, 24]):
        slots.copy_(torch.tensor(offsets, dtype=torch.int32))
        graph.replay()
        truth = by_segment(q, k, v, offsets)
        torch.testing.assert_close(out[: offsets[-1]].float(), truth, rtol=0.02, atol=0.02)


def test_the_variable_for_the_library_is_documented_by_its_error():
    if os.environ.get(fa3.VARIABLE) or fa3.library():
        pytest.skip("a library is found here")
    assert fa3.VARIABLE in str(fa3.missing(CPU, torch.bfloat16))

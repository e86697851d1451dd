"""No attention is chosen for being quick where it is wrong, and no right one is left out."""

import pytest
import torch

from encgraph.attention import measured, plain, sdpa
from encgraph.attention.measured import FirstCall, Launch

CPU = torch.device("cpu")
HEADS, WIDTH = 2, 16
RIGHT = dict(plain.FUNCTIONS)


def launch(rows, *, segments=3, longest=0, dtype=torch.float32):
    return Launch(rows, segments, longest or rows, HEADS, WIDTH, dtype, CPU)


def given(scale=0.25):
    return FirstCall(((HEADS * WIDTH, WIDTH, 1),) * 3, scale)


def settled(shape, scale=0.25):
    [choice] = measured.settle({shape: given(scale)})
    return choice


def nothing(*given, scale, out):
    return out.copy_(given[2])


def untouched(*given, scale, out):
    return out


def one_segment(*given, scale, out):
    *qkv, offsets, longest = given
    return RIGHT["loop"](*qkv, offsets[[0, -1]], longest, scale=scale, out=out)


def half(*given, scale, out):
    return RIGHT["loop"](*given, scale=scale / 2, out=out)


def one_row(*given, scale, out):
    RIGHT["loop"](*given, scale=scale, out=out)[int(given[3][-1]) - 1, 1] = 0
    return out


def infinite(*given, scale, out):
    return RIGHT["loop"](*given, scale=scale, out=out).mul_(torch.nan)


FAULTS = {f.__name__: f for f in (nothing, untouched, one_segment, half, one_row, infinite)}


@pytest.fixture(autouse=True)
def own_choices(monkeypatch):
    monkeypatch.setattr(measured, "_CHOSEN", {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_attention_is_out_and_says_how_far_it_is_off(monkeypatch, fault, dtype):
    monkeypatch.setitem(plain.FUNCTIONS, "loop", FAULTS[fault])
    choice = settled(launch(96, dtype=dtype))
    assert (choice.name, set(choice.ms)) == ("sdpa", {"sdpa"})
    assert choice.failures.keys() == {"loop"}
    assert "must be the portable attention's, but one is off by" in choice.failures["loop"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [0.25, 1.0])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (64, 64, 1), (700, 3, 300), (512, 9, 40), (1024, 1, 1024)]
)
def test_no_right_attention_is_left_out(dtype, scale, sizes):
    rows, segments, longest = sizes
    choice = settled(launch(rows, segments=segments, longest=longest, dtype=dtype), scale)
    assert choice.failures == {}
    assert set(choice.ms) == {"loop", "sdpa"}


def test_where_all_are_wrong_the_portable_one_stands(monkeypatch):
    for name in ("loop", "sdpa"):
        monkeypatch.setitem(plain.FUNCTIONS, name, nothing)
    choice = settled(launch(96))
    assert (choice.name, choice.ms) == ("sdpa", {})


def test_where_there_is_nothing_to_compare_with_the_fixed_order_stands(monkeypatch):
    def refuses(*given, **named):
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(sdpa, "in_blocks", refuses)
    choice = settled(launch(96))
    assert (choice.name, choice.ms) == (plain.first(CPU, torch.float32), {})
    assert set(choice.failures.values()) == {"no room"}


def test_few_query_rows_at_once_give_the_same():
    q, k, v = torch.randn(3, 700, HEADS, WIDTH, generator=torch.Generator().manual_seed(0))
    offsets = torch.tensor([0, 600, 690], dtype=torch.int32)
    whole = sdpa.attend(q, k, v, offsets, 600, scale=0.25)
    parts = sdpa.in_blocks(q, k, v, offsets, 600, scale=0.25, step=64)
    torch.testing.assert_close(parts, whole)
    assert not parts[690:].any()

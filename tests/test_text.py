"""Packed text: pooling, positions, sliding windows, and what is refused."""

import pytest
import torch
from helpers_layouts import SIZES, built, error, joined, unpooled

from encgraph.attention import windowed
from encgraph.attention.windowed import Segments
from encgraph.encoders import registry, text_families
from encgraph.encoders.segments import pooled_rows, segmented
from encgraph.encoders.text import PackedText

CPU = torch.device("cpu")
LENGTHS = torch.tensor([3, 1, 5, 0, 0], dtype=torch.int32)


@pytest.mark.parametrize("name", ["bert-tiny", "modernbert-tiny"])
def test_what_an_earlier_batch_left_in_unused_rows_reaches_no_text(name):
    encoder = registry.named(name, device=CPU, dtype=torch.float32, attention="sdpa")
    capacity = encoder.capacity(64, items=4)
    buffers = encoder.buffers(capacity, CPU, torch.float32)
    encoder.fill(buffers, [encoder.input(torch.arange(5, 5 + length)) for length in (9, 4)])
    right = encoder.forward(buffers, capacity).main[:2].clone()
    assert right.isfinite().all()
    buffers["attention"].fill_(torch.nan)
    assert torch.equal(encoder.forward(buffers, capacity).main[:2], right)


def of(encoder, **switches):
    """The same module with other pooling."""
    return PackedText(encoder.module, encoder.size, positions=encoder._positions, **switches)


def test_rows_know_their_text_and_their_place_in_it():
    where = segmented(torch.arange(50, 62), LENGTHS)
    assert where.offsets_M1.tolist() == [0, 3, 4, 9, 9]
    assert where.item_P.tolist() == [0, 0, 0, 1, 2, 2, 2, 2, 2, 4, 4, 4]
    assert where.position_P.tolist() == [0, 1, 2, 0, 0, 1, 2, 3, 4, 0, 0, 0]
    assert where.ids_P.tolist() == [*range(50, 59), 0, 0, 0]


def test_a_full_row_of_one_text_has_no_padding():
    where = segmented(torch.arange(4), torch.tensor([4, 0], dtype=torch.int32))
    assert where.position_P.tolist() == [0, 1, 2, 3]
    assert where.offsets_M1.tolist() == [0, 4]


def test_pooling_keeps_to_each_text():
    rows = torch.randn(12, 4)
    where = segmented(torch.arange(12), LENGTHS)
    parts = rows[:9].split([3, 1, 5])
    mean = pooled_rows(rows, where, "mean")
    torch.testing.assert_close(mean[:3], torch.stack([part.mean(0) for part in parts]))
    cls = pooled_rows(rows, where, "cls")
    assert torch.equal(cls[:3], torch.stack([part[0] for part in parts]))
    assert len(mean) == len(cls) == 4
    assert pooled_rows(rows, where, "none") is rows


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_what_is_not_finite_in_one_text_or_in_padding_stays_there(bad):
    rows = torch.randn(12, 4)
    where = segmented(torch.arange(12), LENGTHS)
    right = pooled_rows(rows, where, "mean")
    rows[3, 1] = rows[10, 2] = bad
    mean = pooled_rows(rows, where, "mean")
    assert torch.equal(mean[[0, 2]], right[[0, 2]])
    torch.testing.assert_close(mean[1], rows[3], equal_nan=True)


def test_what_graphs_hold_of_an_encoder_cannot_be_set():
    encoder = registry.named("bert-tiny", device=CPU, dtype=torch.float32)
    for name, value in (("pooling", "mean"), ("normalized", False)):
        with pytest.raises(AttributeError, match=name):
            setattr(encoder, name, value)


@pytest.mark.parametrize("family", ["bert-tiny", "xlm-roberta-tiny", "modernbert-tiny"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("normalized", [True, False])
def test_every_pooling_equals_the_stock_one(family, pooling, normalized):
    encoder = of(built(SIZES[family]), pooling=pooling, normalized=normalized)
    inputs = [encoder.input(torch.randint(3, 99, (n,))) for n in (5, 40, 1)]
    capacity = encoder.capacity(60, items=4)
    buffers = encoder.buffers(capacity, CPU, torch.float32)
    encoder.fill(buffers, inputs)
    mine = encoder.forward(buffers, capacity).main[:3]
    assert error(mine, joined(encoder.stock().eager(inputs))) < 1e-5
    lengths = torch.linalg.vector_norm(mine, dim=1)
    assert torch.allclose(lengths, torch.ones(3), atol=1e-5) == normalized


def test_padding_ids_inside_a_text_keep_their_position_in_xlm_r():
    encoder = built(unpooled(SIZES["xlm-roberta-tiny"], pooled=False))
    filler = encoder.module.config.pad_token_id
    ids = torch.tensor([5, filler, 7, 8, filler, 9])
    inputs = [encoder.input(ids), encoder.input(ids.flip(0)), encoder.input(ids[:1])]
    where = segmented(torch.cat([v.pixels for v in inputs]), torch.tensor([6, 6, 1, 0, 0]).int())
    mine = text_families.after_padding(encoder.module, where)
    stock = encoder.module.embeddings.create_position_ids_from_input_ids
    true = torch.cat([stock(value.pixels[None], filler)[0] for value in inputs])
    assert mine.tolist() == true.tolist()
    assert error(joined(encoder.eager(inputs)), joined(encoder.stock().eager(inputs))) < 1e-5


@pytest.mark.parametrize("reach", [1, 4, 300])
@pytest.mark.parametrize("rows", [20, 600])
def test_a_window_reaches_so_far_and_not_into_the_next_text(reach, rows):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, rows, 2, 8)
    offsets = torch.tensor([0, 7, rows - 5, rows - 5], dtype=torch.int32)
    segments = Segments(offsets, rows)
    mine = windowed.attend(q, k, v, segments, scale=0.3, reach=reach)
    at = torch.arange(rows)
    text = torch.bucketize(at, offsets[1:], right=True)
    seen = (text[:, None] == text) & ((at[:, None] - at).abs() <= reach)
    scores = torch.einsum("qhd,khd->hqk", q, k) * 0.3
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    true = torch.einsum("hqk,khd->qhd", weights, v)
    assert error(mine[: rows - 5], true[: rows - 5]) < 1e-5
    assert (mine[rows - 5 :] == 0).all()


def test_a_window_writes_live_rows_only():
    q, k, v = torch.randn(3, 9, 2, 8)
    out = torch.full((9, 2, 8), 5.0)
    offsets = torch.tensor([0, 6, 6], dtype=torch.int32)
    windowed.attend(q, k, v, Segments(offsets, 6), scale=1.0, reach=2, out=out)
    assert (out[6:] == 5).all()
    assert (out[:6] != 5).any()


def test_modernbert_slides_so_far_texts_depend_on_their_window():
    encoder = built(SIZES["modernbert-tiny"])
    sliding = [layer.attn.sliding_window for layer in encoder.module.layers]
    assert None in sliding
    assert 5 in sliding


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.zeros(0, dtype=torch.int64), "1 to 64 token ids, got 0; cut or split"),
        (torch.ones(65, dtype=torch.int64), "1 to 64 token ids, got 65"),
        (torch.ones(1, 4, dtype=torch.int64), r"shape \(L,\) and an integer dtype, got \(1, 4\)"),
        (torch.ones(4), "integer dtype, got .* of torch.float32"),
        (torch.tensor([3, 99]), "token ids from 0 to 98, got 3 to 99"),
        (torch.tensor([-1, 9]), "token ids from 0 to 98, got -1 to 9"),
    ],
)
def test_token_ids_that_do_not_fit_are_refused(ids, message):
    with pytest.raises(ValueError, match=message):
        built(SIZES["bert-tiny"]).input(ids)


def test_the_item_is_named():
    encoder = built(SIZES["bert-tiny"])
    good = encoder.input(torch.ones(4, dtype=torch.int64))
    bad = type(good)(item=good.item, pixels=torch.ones(4), grid=good.grid)
    with pytest.raises(ValueError, match="item 1 must have token ids"):
        encoder.eager([good, bad])


def test_more_token_ids_than_the_buffers_hold_are_refused():
    encoder = built(SIZES["bert-tiny"])
    buffers = encoder.buffers(encoder.capacity(8, items=4), CPU, torch.float32)
    inputs = [encoder.input(torch.ones(5, dtype=torch.int32)) for _ in range(2)]
    with pytest.raises(ValueError, match="at most 4 texts of 8 token ids in all, got 2 of 10"):
        encoder.fill(buffers, inputs)


@pytest.mark.parametrize("switch", [{"pooling": "max"}, {"eager_forward": "sometimes"}])
def test_a_switch_without_that_position_is_refused(switch):
    with pytest.raises(ValueError, match="must be one of"):
        of(built(SIZES["bert-tiny"]), **switch)

"""The kernel of `rotating`, in Triton: each program turns a run of pairs of queries and of keys."""

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def rotate_pairs(  # noqa: PLR0913 - pointers, a size and constants
    qkv: tl.tensor,
    cos: tl.tensor,
    sin: tl.tensor,
    out: tl.tensor,
    pairs: tl.tensor,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Turn pairs (i, i + HALF) of each head, in float32.

    Pair p is element `p % HALF` of head `p // HALF % HEADS` of patch `p // (HALF * HEADS)`.
    """
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = pair < pairs
    element = pair % HALF
    head = pair // HALF % HEADS
    patch = pair // (HALF * HEADS)

    angle = patch * (2 * HALF) + element
    cos_low = tl.load(cos + angle, mask=live, other=0.0).to(tl.float32)
    cos_high = tl.load(cos + angle + HALF, mask=live, other=0.0).to(tl.float32)
    sin_low = tl.load(sin + angle, mask=live, other=0.0).to(tl.float32)
    sin_high = tl.load(sin + angle + HALF, mask=live, other=0.0).to(tl.float32)

    row = HEADS * 2 * HALF
    read = patch.to(tl.int64) * (3 * row) + head * (2 * HALF) + element
    write = patch.to(tl.int64) * row + head * (2 * HALF) + element
    keys = (pairs // (HALF * HEADS)).to(tl.int64) * row
    for which in tl.static_range(2):
        low = tl.load(qkv + read + which * row, mask=live, other=0.0).to(tl.float32)
        high = tl.load(qkv + read + which * row + HALF, mask=live, other=0.0).to(tl.float32)
        tl.store(out + write + which * keys, low * cos_low - high * sin_low, mask=live)
        tl.store(out + write + which * keys + HALF, high * cos_high + low * sin_high, mask=live)

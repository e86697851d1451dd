"""What NaFlex computes from shapes inside the graph: interpolated positions, and packed rows.

Shape legend: M max items, L patches a slot, K patch width, H hidden, S side of the table, P rows.
"""

from typing import Any

import torch
from torch import Tensor, nn

from encgraph.encoders import faces


class NaFlexEmbeddings(nn.Module):
    """Patch embeddings, and positions interpolated to each item's shape in static shapes."""

    def __init__(self, stock: Any) -> None:
        super().__init__()
        self.stock = faces.replaced(stock, "embeddings")
        faces.replaced(stock.position_embedding, "embeddings.position_embedding")

    def forward(self, pixels_MLK: Tensor, shapes_M2: Tensor) -> Tensor:
        """Embed as (M, L, H); padding rows get the position of a legal patch."""
        weight = self.stock.position_embedding.weight
        taps_MLS2 = resize_weights(
            shapes_M2, pixels_MLK.shape[1], side=self.stock.position_embedding_size
        )
        positions = (taps_MLS2 @ weight.float()).to(weight.dtype)
        dtype = self.stock.patch_embedding.weight.dtype
        embedded: Tensor = self.stock.patch_embedding(pixels_MLK.to(dtype)) + positions
        return embedded


def interpolated(module: Any) -> Any:
    """Face of a `Siglip2VisionModel` with these embeddings."""
    embeddings = NaFlexEmbeddings(module.embeddings)
    return faces.unaltered(faces.with_children(module, {"embeddings": embeddings}), module)


def resize_weights(shapes_M2: Tensor, length: int, *, side: int) -> Tensor:
    """Weights (M, L, S x S) of a table's cells for each patch of items of given shapes.

    Source:
        torch's `interpolate(mode="bilinear", align_corners=False, antialias=True)`: along each axis a
        triangle around the patch's center, as wide as the scale where that shrinks.
    """
    sizes_ML2 = shapes_M2[:, None].float()
    at_L = torch.arange(length, device=shapes_M2.device)
    at_ML = at_L[None] % (shapes_M2[:, :1] * shapes_M2[:, 1:])
    column_ML = at_ML % shapes_M2[:, 1:]
    index_ML2 = torch.stack((at_ML // shapes_M2[:, 1:], column_ML), 2).float()
    scale_ML2 = side / sizes_ML2
    center_ML2 = (index_ML2 + 0.5) * scale_ML2 - 0.5
    cells_S = torch.arange(side, device=shapes_M2.device, dtype=torch.float32)
    distance = (cells_S - center_ML2[..., None]).abs() / scale_ML2.clamp(min=1)[..., None]
    taps_ML2S = (1 - distance).clamp(min=0)
    taps_ML2S = taps_ML2S / taps_ML2S.sum(-1, keepdim=True)
    return (taps_ML2S[..., 0, :, None] * taps_ML2S[..., 1, None, :]).flatten(-2)


def compacted(rows_MLH: Tensor, shapes_M2: Tensor, count: int) -> Tensor:
    """Rows of real patches from row 0; an unused slot's one patch follows the real ones."""
    counts_M = shapes_M2.prod(1)
    ends_M = counts_M.cumsum(0)
    at_P = torch.arange(count, device=rows_MLH.device)
    item_P = torch.searchsorted(ends_M, at_P, right=True).clamp(max=len(ends_M) - 1)
    within_P = at_P - (ends_M - counts_M).index_select(0, item_P)
    length = rows_MLH.shape[1]
    return rows_MLH.flatten(0, 1).index_select(0, item_P * length + within_P.clamp(max=length - 1))

"""Packed attention by cuDNN's graph API, through the package `nvidia-cudnn-frontend`.

A plan is built once for each launch shape and looked up afterwards. Ragged offsets, in elements, are
made from the row offsets on the device, so a captured call follows offsets that change in place.

Shape legend: P patches, H heads, D head width, S segments.
"""

import importlib
import importlib.util
import threading
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

ELEMENTS = 2**31
"""Elements a tensor may span; the kernels multiply rows by strides in 32 bits in places."""


class PlanShape(NamedTuple):
    """What a plan is built for."""

    segments: int
    longest: int
    heads: int
    head_dim: int
    dtype: torch.dtype
    device: int
    strides: tuple[tuple[int, ...], ...]
    """Strides of q, k, v and the output, in elements."""
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BuiltPlan:
    """A built plan, its tensors' handles, its constants on the device, its workspaces."""

    graph: Any
    names: tuple[Any, ...]
    """Handles of q, k, v, the output, their four ragged offsets, and the lengths."""
    row_strides_41: Tensor
    """int64 elements from row to row of q, k, v and the output."""
    workspaces: dict[int, Tensor] = field(default_factory=dict)
    """One a stream: two streams may not share one."""

    def workspace(self, stream: int, device: torch.device) -> Tensor:
        """The stream's workspace, allocated at its first use."""
        if stream not in self.workspaces:
            size = max(16, self.graph.get_workspace_size())
            self.workspaces[stream] = torch.empty(size, device=device, dtype=torch.uint8)
        return self.workspaces[stream]


def missing(device: torch.device, dtype: torch.dtype) -> str | None:
    """What stops this attention here, or None."""
    if importlib.util.find_spec("cudnn") is None:
        return "cudnn needs the package nvidia-cudnn-frontend: pip install nvidia-cudnn-frontend"
    if device.type != "cuda":
        return f"cudnn needs a CUDA card, got device {str(device)!r}"
    if dtype not in (torch.float16, torch.bfloat16):
        return f"cudnn needs float16 or bfloat16, got {dtype}"
    return None


def attend(  # noqa: PLR0913 - the one signature of packed attention
    q_PHD: Tensor,
    k_PHD: Tensor,
    v_PHD: Tensor,
    offsets_S1: Tensor,
    longest: int,
    *,
    scale: float,
    out: Tensor | None = None,
) -> Tensor:
    """Attend within segments on the current stream; see `sdpa.attend` for the arguments.

    The first call with a launch shape builds its plan (0.04 to 1.3 s) and must not be captured.

    Raises:
        ValueError: If a tensor spans 2**31 elements or more.
        RuntimeError: If a plan is missing while the stream is captured, or cuDNN has no kernel for it.
    """
    if out is None:
        out = torch.zeros_like(q_PHD, memory_format=torch.contiguous_format)
    tensors = (q_PHD, k_PHD, v_PHD, out)
    shape = PlanShape(
        segments=offsets_S1.shape[0] - 1,
        longest=longest,
        heads=q_PHD.shape[1],
        head_dim=q_PHD.shape[2],
        dtype=q_PHD.dtype,
        device=q_PHD.device.index,
        strides=tuple(x.stride() for x in tensors),
        scale=scale,
    )
    _check_span(shape, rows=q_PHD.shape[0])
    planned = _PLANS.get(shape) or _remember(shape)
    ragged_4S1 = _ragged(offsets_S1, planned.row_strides_41)
    lengths_S = offsets_S1[1:] - offsets_S1[:-1]
    stream = torch.cuda.current_stream(q_PHD.device).cuda_stream
    values = (*tensors, *ragged_4S1.unbind(0), lengths_S)
    pack = dict(zip(planned.names, values, strict=True))
    workspace = planned.workspace(stream, q_PHD.device)
    handle = _handle(shape.device)
    with _ONE_AT_A_TIME, torch.cuda.device(shape.device):
        _frontend().set_stream(handle=handle, stream=stream)
        planned.graph.execute(pack, workspace, handle=handle)
    return out


_PLANS: dict[PlanShape, BuiltPlan] = {}
_ONE_AT_A_TIME = threading.Lock()
"""A handle has one stream, set apart from the launch: another thread's would take the launch to it."""


def _ragged(offsets_S1: Tensor, row_strides_41: Tensor) -> Tensor:
    """Element offsets of q, k, v and the output, int64, each row 16-byte aligned as cuDNN assumes."""
    slots = offsets_S1.shape[0]
    wide = torch.empty(4, slots + slots % 2, device=offsets_S1.device, dtype=torch.int64)
    return torch.mul(offsets_S1, row_strides_41, out=wide[:, :slots])


def _frontend() -> ModuleType:
    return importlib.import_module("cudnn")


@cache
def _handle(device: int) -> Any:
    with torch.cuda.device(device):
        return _frontend().create_handle()


def _check_span(shape: PlanShape, rows: int) -> None:
    widest = max(max(strides) for strides in shape.strides)
    if rows * widest >= ELEMENTS:
        raise ValueError(
            f"cudnn attention must span under {ELEMENTS} elements, got {rows!r} rows of "
            f"{widest!r}; lower the token budget or use another attention"
        )


def _remember(shape: PlanShape) -> BuiltPlan:
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            f"a plan must be built before capture, got none for {shape!r}; "
            "run the encoder once on these buffers first"
        )
    try:
        with torch.cuda.device(shape.device):
            _PLANS[shape] = _build(shape)
    except _frontend().cudnnGraphNotSupportedError as error:
        raise RuntimeError(f"cudnn must have a kernel for {shape!r}, got: {error}") from error
    return _PLANS[shape]


def _build(shape: PlanShape) -> BuiltPlan:
    """Build the plan of a launch shape; rows do not appear in it."""
    cudnn = _frontend()
    kinds = {torch.float16: cudnn.data_type.HALF, torch.bfloat16: cudnn.data_type.BFLOAT16}
    kind = kinds[shape.dtype]
    graph = cudnn.pygraph(
        io_data_type=kind,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        handle=_handle(shape.device),
    )
    dim = (shape.segments, shape.heads, shape.longest, shape.head_dim)
    # (row, head, element) strides as cuDNN's (segment, head, row, element); ragged offsets stand in
    # for the segment's stride, which only has to be plausible.
    strides = [(shape.longest * row, head, row, one) for row, head, one in shape.strides]
    bounds = [_column(graph, f"ragged_{x}", shape.segments + 1, wide=True) for x in "qkvo"]
    lengths = _column(graph, "lengths", shape.segments, wide=False)
    inputs = []
    for name, stride, bound in zip("qkv", strides, bounds, strict=False):
        tensor = graph.tensor(name=name, dim=dim, stride=stride, data_type=kind)
        tensor.set_ragged_offset(bound)
        inputs.append(tensor)
    q, k, v = inputs
    o, _ = graph.sdpa(
        name="sdpa",
        q=q,
        k=k,
        v=v,
        generate_stats=False,
        attn_scale=shape.scale,
        use_padding_mask=True,
        seq_len_q=lengths,
        seq_len_kv=lengths,
    )
    o.set_output(True).set_dim(dim).set_stride(strides[3])
    o.set_ragged_offset(bounds[3]).set_data_type(kind)
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A])
    graph.check_support()
    graph.build_plans()
    rows = [[stride[0]] for stride in shape.strides]
    return BuiltPlan(
        graph=graph,
        names=(q, k, v, o, *bounds, lengths),
        row_strides_41=torch.tensor(rows, device=f"cuda:{shape.device}", dtype=torch.int64),
    )


def _column(graph: Any, name: str, rows: int, *, wide: bool) -> Any:
    """An integer vector in cuDNN's four dimensions."""
    cudnn = _frontend()
    kind = cudnn.data_type.INT64 if wide else cudnn.data_type.INT32
    return graph.tensor(name=name, dim=(rows, 1, 1, 1), stride=(1, 1, 1, 1), data_type=kind)

"""Subscribers to the one hook, `observe(step)`: ranges, profiles, memory snapshots, kernels by module.

Give one to a runner as `observe=`, or several through `several`. Nothing here changes what runs; a
runner that nobody observes pays nothing. A replay runs no Python, so a module's share of it is known
only where torch annotates graph nodes at capture: 2.12 or later, `cuda-bindings` and a driver of
CUDA 13.1; `annotations_missing` says what is not there.
"""

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler import record_function
from torch.nn.modules import module as global_hooks

from encgraph import kernels as profiled
from encgraph import traces, watch
from encgraph.errors import require
from encgraph.graphs import Observe
from encgraph.kernels import Annotations, Kernel
from encgraph.records import Route, Step
from encgraph.runner import EncoderRunner

SNAPSHOT_ENTRIES = 100_000
"""Allocations and frees a memory snapshot remembers, the latest ones."""


def several(*observers: Observe) -> Observe:
    """Combine subscribers: entered in order, left in reverse, also when the step raises."""

    @contextmanager
    def observe(step: Step) -> Iterator[None]:
        with ExitStack() as stack:
            for observer in observers:
                stack.enter_context(observer(step))
            yield

    return observe


def nvtx() -> Observe:
    """Ranges named by route, budget, items and fill: for torch's profiler and, on a card, for NVTX."""
    return _range


def _range(step: Step) -> AbstractContextManager[None]:
    return _named(traces.title(step))


@contextmanager
def _named(name: str) -> Iterator[None]:
    with ExitStack() as stack:
        if torch.cuda.is_available():
            torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]
            stack.callback(torch.cuda.nvtx.range_pop)
        stack.enter_context(record_function(name))
        yield


@contextmanager
def torch_profile(path: Path | str) -> Iterator[torch.profiler.profile]:
    """Profile a block, CPU and card, and export it as a Chrome trace, also if the block raises.

    Observe with `nvtx()` inside, so that the steps have names.

    Yields:
        The profile; after the block, `kernels` takes the file.

    Raises:
        ValueError: If there is no folder to write to; before anything runs.
    """
    path = _writable(path, "trace")
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    profile = torch.profiler.profile(activities=activities)
    try:
        with profile:
            yield profile
            if torch.cuda.is_available():
                torch.cuda.synchronize()
    finally:
        profile.export_chrome_trace(str(path))


@contextmanager
def memory_snapshot(path: Path | str) -> Iterator[None]:
    """Record the card's allocations over a block, for pytorch.org/memory_viz.

    Raises:
        RuntimeError: Without a card: torch's allocator keeps no history on a CPU.
        ValueError: If there is no folder to write to; before anything runs.
    """
    path = _writable(path, "snapshot")
    if not torch.cuda.is_available():
        raise RuntimeError(
            "a memory snapshot needs an NVIDIA GPU, and torch sees none; only the card's allocator "
            "keeps a history. On a CPU, `EncoderRunner.memory` says what a plan holds"
        )
    torch.cuda.memory._record_memory_history(max_entries=SNAPSHOT_ENTRIES)
    try:
        yield
    finally:
        torch.cuda.memory._dump_snapshot(str(path))  # type: ignore[no-untyped-call]
        torch.cuda.memory._record_memory_history(enabled=None)


def _writable(path: Path | str, what: str) -> Path:
    path = Path(path)
    require(not path.is_dir(), f"{what} {str(path)!r} is a folder; name a file")
    require(
        path.parent.is_dir(), f"{what} {str(path)!r} needs the folder {str(path.parent)!r}; make it"
    )
    return path


def kernels(profile: torch.profiler.profile | Path | str) -> tuple[Kernel, ...]:
    """Kernels of a profile with their steps and, where torch offers it, their modules.

    A module comes from torch's annotations of graph nodes, else from the innermost range around the
    launch; see `Modules`. Without a card the outermost CPU operators stand for kernels.

    Args:
        profile: A file that this process exported, such as by `torch_profile`, since annotations live
            as long as the process; or a profile that has ended and was not exported, which torch
            does once only.

    Raises:
        ValueError: If it is no trace, or a profile that torch will not export.
    """
    if not isinstance(profile, torch.profiler.profile):
        return profiled.from_trace(profile, annotations=_annotations())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        try:
            profile.export_chrome_trace(str(path))
        except (RuntimeError, AssertionError) as error:
            raise ValueError(
                f"torch cannot export this profile ({error}); give the file it was exported to"
            ) from error
        return profiled.from_trace(path, annotations=_annotations())


def _annotations() -> Annotations:
    if annotations_missing() is not None:
        return {}
    from torch.cuda import _graph_annotations

    return _graph_annotations.get_kernel_annotations()


def annotations_missing() -> str | None:
    """What is missing for kernels of a replay to name their modules; None if nothing is."""
    if not torch.cuda.is_available():
        return "an NVIDIA GPU: torch sees none"
    try:
        from torch.cuda import _graph_annotations
    except ImportError:
        return f"torch 2.12 or later, which annotates graph nodes; this is {torch.__version__}"
    if _graph_annotations._is_tools_id_unavailable():
        return "cuda-bindings 13.1 or later and a driver of CUDA 13.1 or later"
    return None


@dataclass(slots=True, eq=False)
class Modules:
    """An observer that names the encoder's modules inside of every step.

    Whatever runs Python (eager, fallback, the reference backend) gets a `record_function` range a
    module. A capture annotates the nodes of the graph, so that the kernels of its replays name their
    modules; where torch cannot, replays show their step alone. It slows what it observes: use it to
    profile, not to measure.
    """

    runner: EncoderRunner
    """Observe it from before its capture on."""
    _captured: list[int | None] = field(default_factory=list)
    """Torch's id of each capture since the last replay, in order; None for one that failed."""

    @contextmanager
    def __call__(self, step: Step) -> Iterator[None]:
        """Name modules while a step runs."""
        capturing = step.route is Route.CAPTURE and annotations_missing() is None
        if step.route is Route.REPLAY and self._captured:
            self._rename()
        names = {m: name for name, m in self.runner.encoder.module.named_modules() if name}
        with _hooked(names, annotate=capturing):
            yield
        if capturing:
            self._captured.append(_resolved())

    def _rename(self) -> None:
        """Annotations carry the id of what was captured, profiles that of what was instantiated."""
        from cuda.bindings import runtime as cuda_runtime
        from torch.cuda import _graph_annotations

        made = self.runner.graphs
        in_order = sorted(made.graphs if made else (), key=lambda g: g.capacity, reverse=True)
        ids = {}
        for captured, made_of in zip(self._captured[-len(in_order) :], in_order, strict=False):
            if captured is not None and made_of.graph is not None:
                handle = cuda_runtime.cudaGraphExec_t(
                    init_value=made_of.graph.raw_cuda_graph_exec()
                )
                _, ids[captured] = cuda_runtime.cudaGraphExecGetId(handle)
        notes = _graph_annotations.get_kernel_annotations()
        renamed = {
            (ids.get(k >> 32, k >> 32) << 32) | (k & 0xFFFFFFFF): v for k, v in notes.items()
        }
        notes.clear()
        notes.update(renamed)
        self._captured.clear()


def _resolved() -> int | None:
    """Settle the annotations of the capture that ended; the id of its graph, None without any."""
    from torch.cuda import _graph_annotations

    before = {key >> 32 for key in _graph_annotations.get_kernel_annotations()}
    _graph_annotations.resolve_pending_annotations()
    new = {key >> 32 for key in _graph_annotations.get_kernel_annotations()} - before
    return min(new, default=None)


@contextmanager
def _hooked(names: dict[torch.nn.Module, str], *, annotate: bool) -> Iterator[None]:
    """Open a range around every forward of the named modules, by hooks that no module carries."""
    opened: list[ExitStack] = []

    def enter(module: torch.nn.Module, _: Any) -> None:
        if module in names:
            stack = ExitStack()
            stack.enter_context(record_function(names[module]))
            if annotate:
                from torch.cuda import _graph_annotations

                stack.enter_context(_graph_annotations.mark_kernels(names[module]))
            opened.append(stack)

    def leave(module: torch.nn.Module, *_: Any) -> None:
        if module in names and opened:
            opened.pop().close()

    if annotate:
        from torch.cuda import _graph_annotations

        _graph_annotations.enable_annotations()
    before = global_hooks.register_module_forward_pre_hook(watch.LooksOn(enter))
    after = global_hooks.register_module_forward_hook(watch.LooksOn(leave), always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()
        while opened:
            opened.pop().close()

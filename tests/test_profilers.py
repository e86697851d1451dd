"""Subscribers to the hook, with torch's own profiler on a tiny encoder."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from helpers import BACKENDS, batch, plan, tiny
from helpers_cli import passes, photos

from encgraph import profilers, traces
from encgraph.kernels import Kernel
from encgraph.measure import Recorder
from encgraph.records import Modality, Route, Step
from encgraph.runner import EncoderRunner

PAGE = (Path(__file__).parents[1] / "docs" / "profiling.md").read_text(encoding="utf-8")
STEP = Step(route=Route.EAGER, modality=Modality.IMAGE, items=1, real_tokens=16)


def profiled(path: Path, backend: str = "reference") -> tuple[Recorder, tuple[Kernel, ...]]:
    """Capture two graphs, then run a batch that replays and falls back."""
    encoder = tiny(backend)
    recorder = Recorder(encoder.spec.device)
    runner = EncoderRunner(encoder=encoder, plan=plan(16, 64), backend=backend)
    runner.observe = profilers.several(profilers.nvtx(), recorder, profilers.Modules(runner))
    with runner, profilers.torch_profile(path):
        runner.capture()
        runner.execute(batch([(12, 12), (40, 40)], encoder))
    return recorder, profilers.kernels(path)


@pytest.fixture(scope="module")
def one_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recorder, tuple[Kernel, ...]]:
    path = tmp_path_factory.mktemp("profile") / "trace.json"
    return path, *profiled(path)


def test_every_step_is_a_named_range_of_the_exported_trace(one_run) -> None:
    path, recorder, _ = one_run
    events = json.loads(path.read_text())["traceEvents"]
    ranges = sorted(
        (e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("enc")),
        key=lambda event: event["ts"],
    )
    assert [e["name"] for e in ranges] == [traces.title(timed.step) for timed in recorder.steps]
    assert [e["name"] for e in ranges] == [
        "encgraph capture 64 tokens, 4 items",
        "encgraph capture 16 tokens, 4 items",
        "encgraph replay 64 tokens, 1 item, 56 % full",
        "encgraph fallback 400 tokens, 1 item, tokens over every budget",
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_kernels_belong_to_the_step_that_launched_them(backend: str, tmp_path: Path) -> None:
    recorder, found = profiled(tmp_path / "trace.json", backend)
    titles = {kernel.step: kernel.title for kernel in found if kernel.step is not None}
    assert titles == {n: traces.title(timed.step) for n, timed in enumerate(recorder.steps)}
    assert all(kernel.on_card == (backend == "cuda") and kernel.ms >= 0 for kernel in found)
    assert [k.start_ms for k in found if k.step == 2] == sorted(
        k.start_ms for k in found if k.step == 2
    )


def test_kernels_name_the_module_they_ran_in(one_run) -> None:
    _, _, found = one_run
    names = {name for name, _ in tiny().module.named_modules() if name}
    modules = {kernel.module for kernel in found if kernel.step == 2} - {None}
    assert modules
    assert modules <= names
    assert any(kernel.name == "aten::linear" and kernel.module for kernel in found)


@pytest.mark.cuda
@pytest.mark.skipif(
    profilers.annotations_missing() is not None, reason=str(profilers.annotations_missing())
)
def test_kernels_of_a_replay_name_their_modules(tmp_path: Path) -> None:
    _, found = profiled(tmp_path / "trace.json", "cuda")
    replayed = [kernel for kernel in found if (kernel.title or "").startswith("encgraph replay")]
    names = {name for name, _ in tiny("cuda").module.named_modules() if name}
    assert {kernel.module for kernel in replayed} & names


def test_modules_leave_no_hook_behind() -> None:
    encoder = tiny()
    with EncoderRunner(encoder=encoder, plan=plan(16), backend="reference") as runner:
        runner.observe = profilers.Modules(runner)
        runner.capture()
        runner.execute(batch([(8, 8)], encoder))
        encoder.module.train()
        with pytest.raises(ValueError, match="eval mode"):
            runner.encoder.eager(batch([(8, 8)], encoder))
    hooks = torch.nn.modules.module
    assert not hooks._global_forward_hooks
    assert not hooks._global_forward_pre_hooks


def test_a_profiled_run_gives_the_same_outputs(tmp_path: Path) -> None:
    encoder = tiny()
    given = batch([(8, 8), (40, 40)], encoder)
    with EncoderRunner(encoder=encoder, plan=plan(16), backend="reference") as runner:
        runner.capture()
        plain = runner.execute(given)
        runner.observe = profilers.several(profilers.nvtx(), profilers.Modules(runner))
        with profilers.torch_profile(tmp_path / "trace.json"):
            seen = runner.execute(given)
    for mine, other in zip(plain, seen, strict=True):
        assert all(map(torch.equal, mine.tensors, other.tensors))


def test_a_profile_that_was_not_exported_gives_its_kernels_once() -> None:
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile, profilers.nvtx()(STEP):
        torch.ones(3).sum()
    assert "aten::sum" in {k.name for k in profilers.kernels(profile) if k.step == 0}
    with pytest.raises(ValueError, match="give the file it was exported to"):
        profilers.kernels(profile)


def test_several_observers_nest_and_all_leave_when_the_step_raises() -> None:
    said: list[str] = []

    def observer(name: str) -> profilers.Observe:
        @contextmanager
        def observe(step: Step) -> Iterator[None]:
            said.append(f"enter {name}")
            try:
                yield
            finally:
                said.append(f"leave {name}")

        return observe

    both = profilers.several(observer("a"), observer("b"))
    with pytest.raises(KeyError), both(STEP):
        raise KeyError
    assert said == ["enter a", "enter b", "leave b", "leave a"]
    with profilers.several()(STEP):
        pass


def test_a_profile_is_exported_also_when_the_block_raises(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with pytest.raises(KeyError), profilers.torch_profile(path):
        with profilers.nvtx()(STEP):
            torch.ones(3).sum()
        raise KeyError
    names = {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}
    assert traces.title(STEP) in names


@pytest.mark.parametrize("context", [profilers.torch_profile, profilers.memory_snapshot])
def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(
    context, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="needs the folder"), context(tmp_path / "no" / "x"):
        pytest.fail("ran")
    with pytest.raises(ValueError, match="is a folder"), context(tmp_path):
        pytest.fail("ran")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card here")
def test_without_a_card_what_is_missing_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match=r"needs an NVIDIA GPU.*On a CPU"),
        profilers.memory_snapshot(tmp_path / "m.pickle"),
    ):
        pytest.fail("ran")
    assert not (tmp_path / "m.pickle").exists()
    assert profilers.annotations_missing() == "an NVIDIA GPU: torch sees none"


@pytest.mark.cuda
def test_a_memory_snapshot_holds_the_capture_s_allocations(tmp_path: Path) -> None:
    encoder, path = tiny("cuda"), tmp_path / "m.pickle"
    runner = EncoderRunner(encoder=encoder, plan=plan(16), backend="cuda")
    with runner, profilers.memory_snapshot(path):
        runner.capture()
    assert path.stat().st_size > 1000


def test_the_commands_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [script, _] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(script, "profiling.md", "exec"), names)
    assert {kernel.step for kernel in names["kernels"]} >= {0, 1, 2}
    assert json.loads(Path("steps.json").read_text())["traceEvents"]
    [command] = re.findall(r"```sh\nencgraph (.*?)\n```", PAGE)
    photos(Path("photos"), (64, 64), (256, 320))
    passes(*command.split())
    assert json.loads(Path("out/run.json").read_text())["traceEvents"]

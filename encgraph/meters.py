"""Read clocks and name the machine: device and wall timers, and the environment of a measurement."""

import os
import platform
import re
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import torch

import encgraph
from encgraph.errors import require
from encgraph.results import Environment, Latency

DRIVER_FILE = Path("/proc/driver/nvidia/version")
PROCESSOR_FILE = Path("/proc/cpuinfo")


def environment(dtype: str | torch.dtype, device: str | torch.device) -> Environment:
    """Name the machine, the versions and the moment, for measurements made with a dtype on a device.

    What ran on the CPU of a machine with a card is no measurement of the card: no card is named.
    """
    device = torch.device(device)
    has_card = device.type == "cuda"
    return Environment(
        gpu=torch.cuda.get_device_name(device) if has_card else None,
        driver=_driver() if has_card else None,
        cuda=torch.version.cuda if has_card else None,
        cpu=_processor(),
        python=platform.python_version(),
        torch=torch.__version__,
        transformers=version("transformers"),
        encgraph=encgraph.__version__,
        commit=_commit(Path(encgraph.__file__).resolve().parents[1]),
        dtype=str(dtype).removeprefix("torch."),
        utc=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def wall(run: Callable[[], object], *, samples: int, warmups: int = 0) -> Latency:
    """Time calls by the host's clock, the device synchronized before and after each.

    Args:
        run: What to time.
        samples: Timed calls.
        warmups: Calls before them that are not counted.
    """
    require(samples >= 1, f"samples must be at least 1, got {samples!r}")
    times = [_wall_ms(run) for _ in range(warmups + samples)]
    return Latency.of(times[warmups:], clock="wall", warmups=warmups)


def device(run: Callable[[], object], *, samples: int, warmups: int = 0) -> Latency:
    """Time calls by events on the current stream; the host waits once, at the end.

    Args:
        run: What to time; it must launch on the current stream.
        samples: Timed calls.
        warmups: Calls before them that are not counted.

    Raises:
        ValueError: If there is no card, or no sample.
    """
    require(samples >= 1, f"samples must be at least 1, got {samples!r}")
    require(torch.cuda.is_available(), "device time needs a CUDA card, got none; use meters.wall")
    pairs = []
    for _ in range(warmups + samples):
        start, stop = _event(), _event()
        start.record()
        run()
        stop.record()
        pairs.append((start, stop))
    torch.cuda.current_stream().synchronize()
    times = [start.elapsed_time(stop) for start, stop in pairs[warmups:]]
    return Latency.of(times, clock="device", warmups=warmups)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _wall_ms(run: Callable[[], object]) -> float:
    _synchronize()
    start = time.perf_counter_ns()
    run()
    _synchronize()
    return (time.perf_counter_ns() - start) / 1e6


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _driver() -> str | None:
    """Driver version, as the kernel module tells it; None where it does not."""
    if not DRIVER_FILE.is_file():
        return None
    found = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", DRIVER_FILE.read_text())
    return found.group(1) if found else None


def _processor() -> str:
    if PROCESSOR_FILE.is_file():
        found = re.search(r"^model name\s*:\s*(.+)$", PROCESSOR_FILE.read_text(), re.MULTILINE)
        if found:
            return f"{found.group(1)} x {os.cpu_count()}"
    return f"{platform.processor() or platform.machine()} x {os.cpu_count()}"


def _commit(checkout: Path) -> str | None:
    """Commit of a checkout, marked "+" if its files differ from it; None outside of one."""
    if not (checkout / ".git").exists():
        return None
    try:
        head = _git(checkout, "rev-parse", "--short=12", "HEAD")
        changed = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if changed else "")


def _git(checkout: Path, *arguments: str) -> str:
    command = ("git", "-C", str(checkout), *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

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


def wall(run: Callable[[], object], on: torch.device, *, samples: int, warmups: int = 0) -> Latency:
    """Time calls by the host's clock, the device synchronized before and after each.

    Args:
        run: What to time.
        on: Where it works, which may be another card than the current one.
        samples: Timed calls.
        warmups: Calls before them that are not counted.
    """
    require(samples >= 1, f"samples must be at least 1, got {samples!r}")
    times = [wall_ms(run, on) for _ in range(warmups + samples)]
    return Latency.of(times[warmups:], clock="wall", warmups=warmups)


def device(
    run: Callable[[], object], on: torch.device, *, samples: int, warmups: int = 0
) -> Latency:
    """Time calls by events on a card's current stream; the host waits once, at the end.

    Args:
        run: What to time; it must launch on that stream.
        on: The card, which may be another than the current one.
        samples: Timed calls.
        warmups: Calls before them that are not counted.

    Raises:
        ValueError: If that is no card, or there is no sample.
    """
    require(samples >= 1, f"samples must be at least 1, got {samples!r}")
    require(on.type == "cuda", f"device time is of a CUDA card, got {str(on)!r}; use meters.wall")
    pairs = []
    for _ in range(warmups + samples):
        start = event(on)
        run()
        pairs.append((start, event(on)))
    torch.cuda.current_stream(on).synchronize()
    times = [start.elapsed_time(stop) for start, stop in pairs[warmups:]]
    return Latency.of(times, clock="device", warmups=warmups)


def event(on: torch.device) -> torch.cuda.Event:
    """An event that keeps the time, recorded now on a card's current stream."""
    made = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    made.record(torch.cuda.current_stream(on))
    return made


def wall_ms(run: Callable[[], object], on: torch.device) -> float:
    """Milliseconds from call to finished work, one synchronize after it."""
    synchronize(on)
    start = time.perf_counter_ns()
    run()
    synchronize(on)
    return (time.perf_counter_ns() - start) / 1e6


def synchronize(on: torch.device) -> None:
    """Wait for the device; nothing to wait for on a CPU."""
    if on.type == "cuda":
        torch.cuda.synchronize(on)


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

"""Make again every record that needs a card, a step at a time, each within a time limit of its own.

    python benchmarks/on_card.py --steps inside,record,bench --out out/card
    torchrun is started by the steps that need two cards: --steps two_cards_tests,two_cards, then
    --steps two_cards_336,two_cards_native,two_cards_rules

A step writes into `data/measurements` of this checkout, so that the next one plans by it; what changed there
is copied to OUT, with a log a step. A step that fails or runs out of time does not stop the others.
vLLM's own manager is compared where --vllm names the folder of its two files; see `vllm_manager`.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from encgraph import datadir

ENCODER = "qwen3-vl-8b"
GRACE_S = 35
"""A step's, to end what it started; torchrun's ranks have 30."""
COMPARED = "eager,eager_varlen,eager_compiled,eager_fused,vllm,vllm_tuned,encgraph_plain,ladder_compile,encgraph"
TESTS = (
    "-q -p no:cacheprovider -p benchmarks.failures_at_once -n 14 tests --ignore tests/browser --ignore tests/test_notebooks.py "
    "--ignore tests/test_papers.py --ignore tests/test_environment.py --ignore tests/test_house.py"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command, its words apart by blanks; DATA, REQUESTS, VLLM stand for what the caller names."""

    name: str
    seconds: int
    """Limit; the usual time is about half."""
    command: str


def _step(name: str, seconds: int, command: str) -> Step:
    return Step(name=name, seconds=seconds, command=command)


TWO = "-m torch.distributed.run --nproc-per-node 2 benchmarks/data_parallel.py"
THIRTY = "--max-bursts 30 --max-items 640"
"""Bursts a size: what a mean and a P99 stand on, and ten of the largest."""
LADDER = "--smallest 512 --largest 4864 --items 8 --attention cudnn"
"""Of vLLM's own measurement of images over several cards."""
STEPS = (
    _step("inside", 270, f"benchmarks/inside_the_tower.py --encoder {ENCODER} --out DATA"),
    _step(
        "record",
        150,
        f"-m encgraph record --encoder {ENCODER} --body fused --attention ATTENTION --out data",
    ),
    _step(
        "record_2b",
        150,
        "-m encgraph record --encoder qwen3-vl-2b --body fused --attention ATTENTION --out data",
    ),
    _step(
        "record_plain",
        150,
        f"-m encgraph record --encoder {ENCODER} --body plain --attention ATTENTION --out data",
    ),
    _step(
        "bench",
        560,
        f"benchmarks/vllm_agreement.py VLLM REQUESTS/servegen.json --strategies {COMPARED} CHOSEN "
        "--seconds 330 --out DATA",
    ),
    _step(
        "bench_mix",
        300,
        "benchmarks/vllm_agreement.py VLLM REQUESTS/mix.json --fit-on builtin:mix --count 80 "
        "--strategies eager_varlen,eager_compiled,vllm,encgraph_plain,encgraph CHOSEN --seconds 230 --out DATA",
    ),
    _step("vllm_memory", 60, "benchmarks/vllm_memory.py VLLM --attention ATTENTION --out DATA"),
    _step(
        "ladder",
        560,
        "benchmarks/ladder.py REQUESTS/servegen.json --runs 1 --seconds 270 --out DATA",
    ),
    _step(
        "capture",
        240,
        f"benchmarks/capture_time.py builtin:servegen --encoder {ENCODER} --out DATA",
    ),
    _step(
        "run",
        120,
        f"-m encgraph run builtin:servegen --encoder {ENCODER} --strategy encgraph --count 120 "
        "--out OUT/run",
    ),
    _step("tests", 270, f"-m pytest {TESTS}"),
    _step("cuda_tests", 200, f"-m pytest -m cuda {TESTS}"),
    _step(
        "notebooks",
        420,
        "benchmarks/remeasured_notebooks.py --seconds 380 --workers 7 --out OUT",
    ),
    _step(
        "encoders",
        440,
        "benchmarks/encoder_table.py --out data/measurements --time-limit-s 90 --seconds 400 --workers 4",
    ),
    _step(
        "first_token",
        240,
        "benchmarks/time_to_first_token.py builtin:servegen --model qwen3-vl-8b "
        "--seconds 175 --out data",
    ),
    _step(
        "first_token_2b",
        180,
        "benchmarks/time_to_first_token.py builtin:servegen --model qwen3-vl-2b "
        "--seconds 125 --out data",
    ),
    _step(
        "two_cards",
        300,
        f"{TWO} REQUESTS/servegen.json --bursts 1,4,8,16,64 {THIRTY} --repeats 2 --seconds 185 "
        "--attention ATTENTION --out DATA",
    ),
    _step(
        "two_cards_mix",
        330,
        f"{TWO} REQUESTS/mix.json --fit-on builtin:mix --bursts 1,4,16 {THIRTY} --repeats 1 --seconds 155 "
        "--attention ATTENTION --strategies eager_varlen,eager_compiled,vllm,encgraph --name data_parallel_mix "
        "--out DATA",
    ),
    _step(
        "two_cards_mix_64",
        150,
        f"{TWO} REQUESTS/mix.json --fit-on builtin:mix --bursts 64 {THIRTY} --repeats 1 --seconds 50 "
        "--attention ATTENTION --strategies eager_varlen,vllm,encgraph --name data_parallel_mix_64 "
        "--out DATA",
    ),
    _step(
        "two_cards_rules",
        150,
        f"{TWO} REQUESTS/servegen.json --strategies encgraph --bursts 4,16,64 {THIRTY} --repeats 1 "
        "--seconds 80 --attention ATTENTION --rules longest_first,tokens,round_robin,count,patches "
        "--gathers padded,uneven --name data_parallel_rules --out DATA",
    ),
    _step(
        "two_cards_mix_rules",
        240,
        f"{TWO} REQUESTS/mix.json --fit-on builtin:mix --strategies encgraph --bursts 4,16,64 {THIRTY} "
        "--repeats 1 --seconds 95 --attention ATTENTION --rules longest_first,tokens,round_robin,count "
        "--gathers padded,uneven --name data_parallel_mix_rules --out DATA",
    ),
    _step(
        "two_cards_336",
        140,
        f"{TWO} images:336x336x20 --count 30 {LADDER} --bursts requests --repeats 2 --seconds 34 "
        "--strategies eager,eager_varlen,eager_compiled,vllm,encgraph --name data_parallel_336 "
        "--out DATA",
    ),
    _step(
        "two_cards_native",
        120,
        f"{TWO} builtin:coco {LADDER} --bursts 20 {THIRTY} --repeats 1 --seconds 38 "
        "--strategies eager,eager_varlen,vllm,encgraph --name data_parallel_native --out DATA",
    ),
    _step(
        "two_cards_tests",
        200,
        "-m pytest -m cuda -q -s -p no:cacheprovider -p benchmarks.failures_at_once "
        "tests/test_parallel.py",
    ),
)


def run(step: Step, given: argparse.Namespace) -> str:
    """Run a step and say how it ended."""
    places = {
        "DATA": str(datadir.root() / "measurements" / given.card),
        "REQUESTS": str(given.requests),
        "VLLM": str(given.vllm or ".") + ("" if given.vllm else " --no-manager"),
        "OUT": str(given.out),
        "CHOSEN": "--attention ATTENTION --calibrate",
        "ATTENTION": given.attention,
    }
    words = step.command
    for name, place in places.items():
        words = words.replace(name, place)
    started = time.monotonic()
    with (given.out / f"{step.name}.log").open("w") as log:
        # A group of its own, so that what a step started ends with it.
        process = subprocess.Popen(
            [sys.executable, *words.split()],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # A thread a process: many tests at once, or work that is the card's.
            env={
                **os.environ,
                "PYTHONUNBUFFERED": "1",
                "NCCL_NVLS_ENABLE": "0",
                "OMP_NUM_THREADS": "1" if "tests" in step.name else "8",
            },
        )
        try:
            ended = f"exit {process.wait(step.seconds)}"
        except subprocess.TimeoutExpired:
            end(process)
            ended = "out of time"
    return f"{ended} after {time.monotonic() - started:.0f} s"


def end(process: subprocess.Popen[bytes]) -> None:
    """End a step and what it started.

    torchrun's ranks are in sessions of their own, where no signal to the group arrives: it is asked to
    end, upon which it ends them, and gets the time that it gives them.
    """
    os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def changed_since(since: float, out: Path) -> None:
    """Copy what changed to OUT, what was found wrong among it."""
    for file in sorted(datadir.root().rglob("*")):
        if file.is_file() and file.stat().st_mtime >= since:
            target = out / file.relative_to(datadir.root())
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", required=True, help=", ".join(step.name for step in STEPS))
    parser.add_argument("--requests", type=Path, default=Path(), help="folder of request lists")
    parser.add_argument("--vllm", type=Path, help="folder of vLLM's manager")
    parser.add_argument("--card", default="h200")
    parser.add_argument("--attention", default="auto", help="of what does not name its own")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start nothing after")
    parser.add_argument("--tail", type=int, default=12, help="lines of each log to print")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    known = {step.name: step for step in STEPS}
    unknown = [name for name in given.steps.split(",") if name not in known]
    if unknown:
        parser.error(f"--steps must be of {', '.join(known)}, got {unknown[0]!r}")
    given.out.mkdir(parents=True, exist_ok=True)
    since, started = time.time(), time.monotonic()
    for name in given.steps.split(","):
        if time.monotonic() - started > given.seconds:
            print(f"{name:18} not started: {given.seconds:.0f} s have passed", flush=True)
            continue
        print(f"{name:18} {run(known[name], given)}", flush=True)
        tail = (given.out / f"{name}.log").read_text(errors="replace").splitlines()[-given.tail :]
        print("\n".join(f"    {line[:220]}" for line in tail), flush=True)
        changed_since(since, given.out)


if __name__ == "__main__":
    main()

"""The script that makes the card's records again: its commands exist, and a step that fails stops no other."""

import argparse
import os
import re
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import on_card  # noqa: E402
from helpers_cli import passes  # noqa: E402

from encgraph import datadir  # noqa: E402


def options(command: str) -> list[str]:
    return re.findall(r"--[a-z][a-z-]*", command)


@pytest.mark.parametrize("step", on_card.STEPS, ids=lambda step: step.name)
def test_every_step_runs_what_there_is_with_options_it_has(step):
    script = next((word for word in step.command.split() if word.endswith(".py")), None)
    if script is not None and not script.startswith("tests/"):
        text = (ROOT / script).read_text()
        known = [o for o in options(step.command) if f'"{o}"' in text]
        assert known or not options(step.command)
        assert set(options(step.command)) - set(known) <= {"--nproc-per-node"}
    elif step.command.startswith("-m encgraph"):
        told = passes(step.command.split()[2], "--help")
        assert [o for o in options(step.command) if o not in told] == []
    else:
        named = [w for w in step.command.split() if w.startswith("tests/")]
        assert named and all((ROOT / name).exists() for name in named)


def test_the_steps_have_names_of_their_own():
    names = [step.name for step in on_card.STEPS]
    assert len(names) == len(set(names))


@pytest.fixture
def card(monkeypatch, tmp_path):
    """Run given steps with a data folder of their own."""
    data, out = tmp_path / "data", tmp_path / "copied"
    (data / "measurements" / "h200").mkdir(parents=True)
    (data / "measurements" / "h200" / "old.jsonl").write_text("{}\n")
    time.sleep(0.02)
    monkeypatch.setattr(datadir, "root", lambda: data)

    def run(**scripts):
        steps = []
        for name, (seconds, text) in scripts.items():
            file = tmp_path / f"{name}.py"
            file.write_text(text)
            steps.append(on_card.Step(name=name, seconds=seconds, command=f"{file} DATA"))
        monkeypatch.setattr(on_card, "STEPS", tuple(steps))
        monkeypatch.setattr(
            sys, "argv", ["on_card.py", "--steps", ",".join(scripts), "--out", str(out)]
        )
        on_card.main()
        return out

    return run


def test_a_step_that_fails_or_hangs_stops_no_other_and_what_changed_is_copied(card, capsys):
    out = card(
        broken=(30, "raise RuntimeError('no such kernel')"),
        hanging=(1, "import time; print('begun', flush=True); time.sleep(60)"),
        writing=(30, "import sys; open(sys.argv[1] + '/new.jsonl', 'w').write('{}')"),
    )
    told = capsys.readouterr().out
    assert re.search(r"broken +exit 1 after", told) and "no such kernel" in told
    assert re.search(r"hanging +out of time after 1 s", told) and "begun" in told
    assert re.search(r"writing +exit 0", told)
    copied = [p.relative_to(out) for p in out.rglob("*.jsonl")]
    assert copied == [Path("measurements/h200/new.jsonl")]


def test_the_ranks_of_a_step_that_ran_out_of_time_are_ended_with_it(tmp_path):
    rank, told = tmp_path / "rank.py", tmp_path / "pid"
    rank.write_text(
        f"import os, pathlib, time\npathlib.Path({str(told)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(300)"
    )
    command = f"-m torch.distributed.run --nproc-per-node 1 {rank}"
    given = argparse.Namespace(
        card="h200", requests=tmp_path, vllm=None, out=tmp_path, attention="auto"
    )
    step = on_card.Step(name="two_cards", seconds=25, command=command)
    assert on_card.run(step, given).startswith("out of time")
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)


def test_a_step_of_no_known_name_is_refused_before_anything_runs(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["on_card.py", "--steps", "benchh", "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        on_card.main()
    assert "got 'benchh'" in capsys.readouterr().err

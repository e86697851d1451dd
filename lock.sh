#!/bin/sh
# Writes constraints.txt from a clean resolve of every extra: names and versions only, no paths and no local
# version (+cpu), so that one line, torch==2.13.0, takes a CPU wheel where pip finds one and PyPI's elsewhere.
# torch pins its own CUDA packages, so those stay out; the optional cuDNN frontend is the one exception.
set -e
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --dry-run --ignore-installed --report "$work/lock.json" \
    'torch==2.13.0' 'transformers==5.24.0' -e '.[dev,cuda]'
"$work/venv/bin/python" - "$work/lock.json" <<'PY'
import json
import pathlib
import re
import sys

kept = "nvidia-cudnn-frontend"
left_out = re.compile(r"encgraph$|nvidia-|cuda-|triton$")
report = json.loads(pathlib.Path(sys.argv[1]).read_text())
pins = {
    re.sub(r"[-_.]+", "-", entry["metadata"]["name"]).lower(): entry["metadata"]["version"].split("+")[0]
    for entry in report["install"]
}
lines = [f"{n}=={v}\n" for n, v in sorted(pins.items()) if n == kept or not left_out.match(n)]
pathlib.Path("constraints.txt").write_text("".join(lines))
print(len(lines), "pins")
PY

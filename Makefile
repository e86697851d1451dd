# `make help` lists what there is. VENV=/path uses another environment; PYTHON=python3.12 another interpreter.
VENV ?= .venv
PYTHON ?= python3
PY := $(VENV)/bin/python
NOTEBOOKS := $(wildcard notebooks/*.ipynb)
BROWSER := $(wildcard tests/browser/test_*.py)
CHROMIUM := $(shell command -v chromium 2>/dev/null)

export HF_HUB_OFFLINE ?= 1
export PLOTLY_RENDERER ?= plotly_mimetype
ifneq ($(CHROMIUM),)
export BROWSER_PATH ?= $(CHROMIUM)
endif

# plugins by name: nbval and playwright make every start of pytest 2 to 3 s slower
PYTEST := PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(PY) -m pytest
NBVAL := -p nbval --nbval --nbval-current-env --nbval-cell-timeout 300 \
	$(addprefix --nbval-sanitize-with ,$(wildcard tests/sanitize.cfg))

# the folder of photographs that ships in scikit-image; the 2b tower where there is a card, else the tiny one
PHOTOS = $(shell $(PY) -c "import pathlib, skimage; print(pathlib.Path(skimage.__file__).parent / 'data')")
PICK := import torch; card = torch.cuda.is_available(); \
	print('--encoder', *(('qwen3-vl-2b', '--backend cuda') if card else ('qwen3-vl-tiny', '--backend reference')))
ENCODER = $(eval ENCODER := $$(shell $$(PY) -c "$$(PICK)"))$(ENCODER)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint unit notebooks-test browser-test lab notebooks figures lock clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

setup: $(VENV)/.done  ## create .venv and install everything at its pinned version

$(VENV)/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup  ## run real photographs and a production profile; writes out/demo/report.html
	$(VENV)/bin/encgraph run builtin:servegen $(ENCODER) --out out/demo/servegen
	$(VENV)/bin/encgraph run "$(PHOTOS)" $(ENCODER) --out out/demo
	@echo "photographs: out/demo/report.html, out/demo/report.json"
	@echo "production profile: out/demo/servegen/report.html, out/demo/servegen/report.json"

test: lint notebooks-test browser-test unit  ## everything: lint, notebooks, browser, unit tests and doctests

lint: setup  ## formatting, ruff, mypy --strict, import layers
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy --strict
	$(VENV)/bin/lint-imports

# one thread a worker: two workers with a pool of two threads each wait for one another on two cores
unit: setup  ## unit tests and doctests
	OMP_NUM_THREADS=1 $(PYTEST) -p xdist.plugin -n 2 --ignore=tests/browser tests encgraph

notebooks-test: setup  ## run the notebooks and compare what they show
ifneq ($(NOTEBOOKS),)
	$(PYTEST) -p xdist.plugin $(NBVAL) -n 2 --dist loadfile notebooks
endif

browser-test: setup  ## JupyterLab in a real browser
ifneq ($(BROWSER),)
	$(PYTEST) -p playwright tests/browser
endif

lab: setup  ## open JupyterLab on the notebooks
	$(VENV)/bin/jupyter lab notebooks

notebooks: setup  ## run the notebooks and store what they show
ifneq ($(NOTEBOOKS),)
	$(PY) notebooks/refresh.py $(NOTEBOOKS)
endif

figures: setup  ## draw every figure from the measurements and refresh their manifest
	$(VENV)/bin/encgraph figures --out out/figures
	cp out/figures/manifest.json data/figures/manifest.json

lock:  ## resolve every extra again and write constraints.txt
	./lock.sh

clean:  ## remove the environment, what runs wrote, and caches
	rm -rf $(VENV) out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

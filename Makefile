# Every target sets up what it needs: a virtual environment in .venv, installed once and again when pyproject changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo serve test test-long test-gpu report lint format clean

demo: $(VENV)/.core
	$(BIN)/xmtc demo --out xmtc-demo

# The service and its page on the demo's model, which is trained where there is none.
serve: $(VENV)/.server
	test -f xmtc-demo/model/model.json || $(BIN)/xmtc demo --out xmtc-demo
	$(BIN)/xmtc serve xmtc-demo/model

test: $(VENV)/.dev lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

# Files in the order of their names: the few slow tests in files of their own would otherwise be left for the end.
test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -m long -n 2 --dist loadfile --no-loadscope-reorder

test-gpu: $(VENV)/.dev
	$(BIN)/python -m pytest -m gpu

# All suites that were run: a page to look at, and the tables that stand in the docs.
report: $(VENV)/.plots
	mkdir -p build
	$(BIN)/xmtc report $(addsuffix .jsonl,$(sort $(basename $(wildcard benchmarks/results/*.jsonl)))) --out build/report.html --markdown docs/results.md

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build xmtc-demo .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(not (3, 11) <= v <= (3, 13) and "xmtc needs Python 3.11 to 3.13; set PYTHON=python3.12, this is %d.%d" % v)'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e .
	touch $@

$(VENV)/.server: $(VENV)/.core
	$(PIP) -e '.[server]'
	touch $@

$(VENV)/.plots: $(VENV)/.core
	$(PIP) -e '.[plots]'
	touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) -e '.[dev,torch,server]'
	touch $@

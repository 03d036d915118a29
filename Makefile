# Every target installs what it needs into a virtual environment in .venv, and again when pyproject.toml changes.
# On Windows, run make in Git Bash.
VENV := .venv
ifeq ($(OS),Windows_NT)
SHELL := sh.exe
PYTHON ?= python
BIN := $(VENV)/Scripts
EXE := .exe
else
PYTHON ?= python3
BIN := $(VENV)/bin
EXE :=
endif
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo serve test test-long test-gpu report dist lint kernels format clean

demo: $(VENV)/.core
	$(BIN)/xmtc demo --out xmtc-demo

# Serve the demo model with its web page; train the model first if there is none.
serve: $(VENV)/.server
	test -f xmtc-demo/model/model.json || $(BIN)/xmtc demo --out xmtc-demo
	$(BIN)/xmtc serve xmtc-demo/model

# The type checker and the compiler of kernels take one core each.
test: $(VENV)/.dev
	$(MAKE) -j 2 lint kernels
	$(BIN)/python -m pytest -n 2 --dist loadfile

# Files run in alphabetical order, which starts the slow ones early.
test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -m long -n 2 --dist loadfile --no-loadscope-reorder --durations 20

test-gpu: $(VENV)/.dev
	$(BIN)/python -m pytest -m gpu

# One HTML page with the results of all suites, and the tables of docs/results.md.
report: $(VENV)/.plots
	mkdir -p build
	$(BIN)/xmtc report $(addsuffix .jsonl,$(sort $(basename $(wildcard benchmarks/results/*.jsonl)))) --out build/report.html --markdown docs/results.md

# The source distribution and the wheel, in dist.
dist: $(VENV)/.dist
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Compile the kernels that most tests need; tests compile the others.
kernels: $(VENV)/.dev
	$(BIN)/python -m tests.support.compile_kernels

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist xmtc-demo .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python$(EXE):
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(not (3, 11) <= v <= (3, 13) and "xmtc needs Python 3.11 to 3.13. Found %d.%d; pass another: make PYTHON=python3.12" % v)'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python$(EXE)
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

# Not the package itself: it is built in an environment of its own.
$(VENV)/.dist: constraints.txt | $(BIN)/python$(EXE)
	$(PIP) build twine
	touch $@

# make run    replay the shipped trace on the shipped heterogeneous platform gaia, with a report
# make test   the tests of every change      make test-all   all tests (tests/README.md)
# make lint   style and types                make bench      benchmarks
# make docs   tables of the documentation that are made from the code
# make fuzz   inputs of all kinds, mutated: SEED and CASES (tests/README.md)
# The first of them makes .venv; later ones start at once.

CANDIDATES := python3.13 python3.12 python3.11 python3 python
PYTHON ?= $(shell for p in $(CANDIDATES); do \
	$$p -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
RUN ?= runs/gaia
TESTS ?= tests
WORKERS ?= auto
# Reference traces beside the checkout, if they are there; BENCH takes further options of benchmarks/replay.py.
DATA ?= $(wildcard ../shared/data)
BENCH ?=
SEED ?= 1
CASES ?= 20000

# Containers often set it; the workers of pytest would compile all modules and rewrite all assertions in every run.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-ci test-all lint bench fuzz docs clean

run: $(VENV)/.run
	@$(BIN)/hdsim run platform=gaia agent=easy contention=threshold hydra.run.dir=$(RUN)
	@$(BIN)/hdsim report $(RUN)

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(TESTS)

test-ci: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --durations 60 --ci $(TESTS)

test-all: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --durations 60 --all $(TESTS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/replay.py $(if $(DATA),--data $(DATA)) $(BENCH)
	$(BIN)/python benchmarks/network.py
	$(BIN)/python benchmarks/bsp.py
	$(BIN)/python benchmarks/sites.py

fuzz: $(VENV)/.dev
	PYTHONPATH=.:tests $(BIN)/python -m fuzz --seed $(SEED) --cases $(CASES)

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# A stamp is made anew when the dependencies change; the sources are used in place.
$(VENV)/.run: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.run

$(BIN)/python:
	@test -n '$(PYTHON)' || { echo 'hdsim needs Python 3.11, 3.12 or 3.13 with venv on PATH, or PYTHON=/path/to/python' >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

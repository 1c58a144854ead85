# Every target sets up what it needs in .venv. Works with GNU make 3.81 and later.

# The interpreter that the virtual environment is made from: python3.11 if it runs, else python3.
PYTHON ?= $(shell python3.11 -c '' >/dev/null 2>&1 && echo python3.11 || echo python3)
# More arguments for pytest, for example: make test PYTEST_ARGS="-n 0 -k ordered"
PYTEST_ARGS ?=
# More arguments for the benchmarks, for example: make bench BENCH_ARGS="--only postgres_drain"
BENCH_ARGS ?=
# The interpreter for the other libraries, of which one needs 3.12: that or a later one if it is found, else PYTHON.
PEERS_PYTHON ?= $(shell for each in python3.13 python3.12 $(wildcard $(HOME)/.pyenv/versions/3.1[2-4]*/bin/python3); do \
  $$each -c '' >/dev/null 2>&1 && echo $$each && exit; done; echo $(PYTHON))

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -qq

# One stamp per set of packages; a stamp is renewed when pyproject.toml is newer.
MADE := $(VENV)/.made
CORE := $(VENV)/.installed-core
DEV := $(VENV)/.installed-dev
BENCH := $(VENV)/.installed-bench
PEERS_VENV := .venv-peers
PEERS := $(PEERS_VENV)/.installed
PEER_PACKAGES := txoutbox[postgres] pgqueuer[asyncpg] faststream-outbox[asyncpg] procrastinate oban

.PHONY: help venv demo test suite soak check lint types bench bench-short bench-long bench-peers bench-pages options format clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

venv: $(DEV) ## Make .venv with the package (editable) and all development tools
	@echo "Ready: $(BIN)/python"

demo: $(CORE) ## Run the demo; needs only the package itself
	@$(BIN)/python -m aftercommit.demo

# Types are checked beside the tests, which leave a core alone now and then. Bytecode is kept whatever the environment says:
# the tests start many interpreters. On a fresh checkout one process makes it; else each of the five would make all of it.
test: $(DEV) ## Check, then run the tests (PYTEST_ARGS="..." for more)
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory -j 2 types suite

suite: $(DEV)
	@[ -d tests/__pycache__ ] || PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || true
	@MAKEFLAGS= PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 5 --dist worksteal -m "not slow" $(PYTEST_ARGS)

soak: $(DEV) ## Run the long forms of the tests: more rows, more kills, more time
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal -m "slow or hypothesis" --hypothesis-profile soak --timeout 1800 $(PYTEST_ARGS)

check: lint types ## Lint, formatting, types and the layers of the package

lint: $(DEV)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "Formatting differs: run make format"; exit 1; }

types: $(DEV)
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: $(BENCH) ## Measure beside hand-written SQL, in ten minutes (BENCH_ARGS="..." for more)
	@$(BIN)/python -m bench $(BENCH_ARGS)

bench-short: $(BENCH) ## See in two minutes that all measures run
	@$(BIN)/python -m bench --quick $(BENCH_ARGS)

bench-long: $(BENCH) ## Measure with all sizes, without regard to time
	@$(BIN)/python -m bench --long $(BENCH_ARGS)

bench-peers: $(PEERS) ## Measure beside other libraries, in an environment of its own
	@$(PEERS_VENV)/bin/python -m bench --peers $(BENCH_ARGS)

bench-pages: $(BENCH) ## Write the pages of docs/performance anew from the saved results
	@$(BIN)/python -m bench.pages

options: $(CORE) ## Write the tables of docs/options.md from the declarations
	@$(BIN)/python docs/make_options.py

format: $(DEV) ## Format the code and mend what the linter can mend
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

clean: ## Remove .venv, caches and build results
	@rm -rf $(VENV) $(PEERS_VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(MADE):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "aftercommit needs Python 3.11 or later, and $(PYTHON) is not that."; \
	  echo "Name one that is: make PYTHON=/path/to/python3.11 ..."; \
	  exit 1; }
	@echo "Making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(CORE): pyproject.toml $(MADE)
	@echo "Installing the package"
	@$(PIP) -e .
	@touch $@

$(DEV): pyproject.toml $(MADE)
	@echo "Installing the package and the development tools"
	@$(PIP) -e '.[dev]'
	@touch $@

$(BENCH): pyproject.toml $(MADE)
	@echo "Installing the package and what the benchmarks need"
	@$(PIP) -e '.[bench]'
	@touch $@

# One by one: a library that cannot be installed is left out, and the run says so.
$(PEERS): pyproject.toml
	@echo "Making $(PEERS_VENV) with $(PEERS_PYTHON)"
	@$(PEERS_PYTHON) -m venv $(PEERS_VENV)
	@$(PEERS_VENV)/bin/python -m pip install --disable-pip-version-check -qq -e '.[bench]'
	@for each in $(PEER_PACKAGES); do \
	  $(PEERS_VENV)/bin/python -m pip install --disable-pip-version-check -qq "$$each" || echo "Not installed: $$each"; \
	done
	@touch $@

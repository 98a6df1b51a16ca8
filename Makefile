# One command for each purpose, the same for people and for CI. Each sets up what it needs in .venv;
# Python 3.11 or later and make are enough:
#
#   make demo     a worker, an environment variable and jobs in front of your eyes
#   make test     every ring of tests, on every server that is installed
#   make check    format, lint, types, import contracts
#   make methods  the contract of variables with each way of starting executors, and with --isolate
#   make compat   RQ's own tests, with envq's classes in place of RQ's
#   make chaos    20,000 jobs in a storm of kills, restarts and cuts; about 5 minutes (SEED=, JOBS=)
#   make bench    every figure of docs/performance.md, beside other queues
#   make clean    remove everything that these made

VENV := .venv
BIN := $(VENV)/bin
SUITABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for candidate in python3.13 python3.12 python3.11 python3; do \
	$$candidate -c '$(SUITABLE)' >/dev/null 2>&1 && { command -v $$candidate; break; }; done)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := $(BIN)/pytest --numprocesses auto --dist worksteal
# Where it matters how executors start. `make methods` runs all of it in each way.
VARIABLES := tests/contract/variables
# Where it matters which server answers.
SERVER_RINGS := tests/integration

.PHONY: demo test check methods compat chaos bench clean

demo: $(VENV)/.demo
	$(BIN)/envq demo

test: $(VENV)/.dev
	$(PYTEST) -m ''
	$(PYTEST) -m '' --worker=--isolate $(VARIABLES)
	$(PYTEST) -m '' --worker='--start-method forkserver' $(VARIABLES)/test_c0*
	$(PYTEST) -m '' --server redis62 $(SERVER_RINGS)
	$(PYTEST) -m '' --server redis70 $(SERVER_RINGS)

methods: $(VENV)/.dev
	$(PYTEST) -m '' --worker='--start-method spawn' $(VARIABLES)
	$(PYTEST) -m '' --worker='--start-method forkserver' $(VARIABLES)
	$(PYTEST) -m '' --worker=--isolate $(VARIABLES)

# workers/ and cli/ are installed inside envq. build/tree shows them there, for tools that read files and do not import.
check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@rm -rf build/tree && mkdir -p build/tree/envq
	@ln -s $(CURDIR)/envq/* $(CURDIR)/workers $(CURDIR)/cli build/tree/envq/
	$(BIN)/pyright --pythonpath $(BIN)/python
	cd build/tree && $(CURDIR)/$(BIN)/lint-imports ../../pyproject.toml --no-cache

# What must not pass, and why, is in tests/compat/expected.toml.
compat: $(VENV)/.dev
	$(BIN)/python tests/compat/run_rq_suite.py

# The same seed makes the same plan; PUBLISH=1 writes the figures into docs/guarantees.md.
chaos: SEED ?= 1
chaos: JOBS ?= 20000
chaos: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m chaos.storm.run --seed $(SEED) --jobs $(JOBS) $(if $(PUBLISH),--publish)

# Each queue is measured in an environment of its own, envq as this checkout has it.
bench: export PEERS_VENVS ?= $(CURDIR)/build/peers
bench: $(VENV)/.bench
	PYTHON=$(BIN)/python sh benchmarks/peers/make_venvs.sh
	$(BIN)/python benchmarks/run.py $(BENCH)
	$(BIN)/python benchmarks/plot.py
	$(BIN)/python benchmarks/report.py

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A changed pyproject.toml installs again; otherwise a second run starts at once.
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "installing envq and what the demo needs into $(VENV)"
	@$(INSTALL) --editable '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing envq and the development tools into $(VENV)"
	@$(INSTALL) --editable '.[dev]'
	@touch $@

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	@echo "installing envq and what plots need into $(VENV)"
	@$(INSTALL) --editable '.[bench]'
	@touch $@

$(BIN)/python:
	@'$(PYTHON)' -c '$(SUITABLE)' 2>/dev/null || { \
		echo "envq needs Python 3.11 or later with its venv module; install one or name it: make PYTHON=/path/to/python3" >&2; \
		exit 1; }
	@echo "making $(VENV) with $(PYTHON)"
	@'$(PYTHON)' -m venv --clear $(VENV)

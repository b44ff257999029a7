# `make demo` and `make test` do all the set-up on a Debian that has the packages which the README names.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
PY := $(BIN)/python
INSTALLED := .venv/.installed
STUBS := $(patsubst proto/%,admin/stubs/%,$(shell find proto -name '*.proto'))
COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate
PROTOC := $(PY) -m grpc_tools.protoc -Iadmin/stubs=proto
.DEFAULT_GOAL := help
.PHONY: help setup demo test soak failover versions chaos simulate check fix proto bench lock clean

help:  ## What can be made here
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 12

setup: $(INSTALLED)  ## Create .venv with the locked dependencies and make sure of a JDK and a mongod
	@devstack/ensure-jdk
	@devstack/ensure-libcurl
	@$(PY) -m devstack fetch > /dev/null

$(INSTALLED): requirements.lock pyproject.toml
	@test -x $(PY) || $(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup  ## See it work: a small shop is replicated while its schema changes, then both sides are compared
	@$(PY) -m devstack demo

test: setup  ## All tests; starts the services it needs
	$(PY) -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

soak: setup  ## The tests that take minutes each
	$(PY) -m pytest -m soak

failover: setup  ## All 140 cases of the failover matrix: each kind of DDL, each victim of kill -9, each moment
	$(PY) -m pytest -m failover tests/e2e/failover

versions: setup  ## The component tests on each version of MongoDB, then each pair of versions; PART=pairs NAMES=4.4.2:6.0.27 for some
	$(PY) -m tests.versions $(PART) $(NAMES)

chaos: setup  ## Three nodes under a workload while everything breaks, MINUTES=20 SEED=7; ends with a comparison and a bank's balance
	$(PY) -m tests.e2e.chaos --minutes $(or $(MINUTES),20) $(if $(SEED),--seed $(SEED))

simulate: $(INSTALLED)  ## The whole cluster in one thread, SEEDS=1000 times, each with other accidents
	$(PY) -m tests.simulation.run --seeds $(or $(SEEDS),1000) --first $(or $(FIRST),0)

check: $(INSTALLED)  ## Format, lint, types, import contracts, generated code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT \
	  && $(PROTOC) --python_out=$$fresh --pyi_out=$$fresh --grpc_python_out=$$fresh $(STUBS) \
	  && diff -r --exclude=__pycache__ $$fresh/admin/stubs admin/stubs || { echo "The stubs are not those of proto/: run make proto"; exit 1; }

fix: $(INSTALLED)  ## Format, and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(INSTALLED)  ## Generate the stubs of the admin API
	rm -rf admin/stubs && mkdir -p admin/stubs
	$(PROTOC) --python_out=. --pyi_out=. --grpc_python_out=. $(STUBS)

bench: setup  ## Measurements, each beside a baseline of the same run
	$(PY) -m bench

lock: $(INSTALLED)  ## Resolve the dependencies anew
	$(COMPILE) --all-extras --upgrade --output-file requirements.lock pyproject.toml
	$(COMPILE) --constraint requirements.lock --output-file container/runtime.lock pyproject.toml
	echo 'setuptools>=77' | $(COMPILE) --constraint requirements.lock --output-file container/build.lock -

clean:  ## Remove what the commands above made
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# Each command does its own set-up, on a Debian that has the packages listed in the README.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
PY := $(BIN)/python
INSTALLED := .venv/.installed
STUBS := $(patsubst proto/%,admin/stubs/%,$(shell find proto -name '*.proto'))
COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate
PROTOC := $(PY) -m grpc_tools.protoc -Iadmin/stubs=proto
.DEFAULT_GOAL := help
# A test run starts hundreds of Python processes; without bytecode each of them compiles our modules again.
export PYTHONDONTWRITEBYTECODE :=
SPARK_CLASSES := .venv/spark-classes.jsa
BY_TWO := --numprocesses 2 --dist loadfile --no-loadscope-reorder
# Each node of a test starts a JVM for Spark, which needs a third of the CPU with its classes ready to be mapped.
test soak failover sinks versions chaos bench: export SPARK_SUBMIT_OPTS := -XX:SharedArchiveFile=$(CURDIR)/$(SPARK_CLASSES)
.PHONY: help setup demo demo-files demo-kafka demo-spark demo-return test soak failover sinks kubernetes chart versions chaos planted mutants nightly spark-classes simulate check docs fix proto scale bench lock clean browser

help:  ## List the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

setup: $(INSTALLED)  ## Create .venv with the locked dependencies; check or fetch a JDK, libcurl and a mongod
	@devstack/ensure-jdk
	@devstack/ensure-libcurl
	@$(PY) -m devstack fetch > /dev/null

$(INSTALLED): requirements.lock pyproject.toml
	@test -x $(PY) || $(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup  ## Three nodes replicate a small shop while its schema changes; the owner is killed; both sides are compared
	@$(PY) -m devstack demo

demo-files: setup  ## The same through files: changes and DDL as messages, from which another MongoDB is made and compared; CLUSTER=1: from two shards
	@$(PY) -m devstack demo --files $(if $(CLUSTER),--cluster)

demo-kafka: setup  ## The same through topics of a real Kafka broker
	@$(PY) -m devstack demo --kafka

browser:
	@devstack/ensure-chromium

demo-spark: setup  ## The same into files that Spark reads as a stream, whose tables are compared
	@$(PY) -m devstack demo --spark

demo-return: setup  ## A migration with a way back: users move to the target, write there, and return
	@$(PY) -m devstack demo --return

spark-classes: setup
	@-$(PY) -m processor.spark.class_archive $(SPARK_CLASSES)

test: spark-classes browser  ## Run all tests but those of `make nightly`; starts the services that it needs. ROOM=sink: only what can notice a change there
	@files="$$($(if $(ROOM),$(PY) -m tests.rooms $(ROOM),true))" && $(PY) -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder $$files

nightly: setup  ## Run all that takes long, a row each, with a table at the end; goes on where it was ended. ROWS="soak chaos": these
	$(PY) -m tests.nightly $(ROWS)

soak: spark-classes  ## Run the tests that take minutes each
	$(PY) -m pytest -m soak $(BY_TWO)

failover: spark-classes  ## Run all 140 cases of the failover matrix: each kind of DDL, each victim of kill -9, each moment
	$(PY) -m pytest -m failover tests/e2e/failover

sinks: spark-classes  ## Kill tasks, nodes and stores of sinks of messages between each two steps; builds versitygw, an S3 server, at the first run; some only: PART=steps
	$(PY) -m pytest -m sinks --numprocesses 2 tests/e2e/sinks/test_$(or $(PART),*).py

kubernetes: setup  ## Try the chart in the real helm and a Kubernetes API server, its alerts in promtool, and the built image; builds them all
	$(PY) -m pytest -m kubernetes tests/deployment

chart: setup  ## Record what the real helm makes of the chart, after a change of it; the first run builds helm
	SLUICE_RECORD_CHART=1 $(PY) -m pytest -m kubernetes tests/deployment/test_chart.py tests/deployment/test_monitoring.py

versions: spark-classes  ## Run the component tests on each version of MongoDB, then each pair of versions; some only: PART=pairs NAMES=4.4.2:6.0.27
	$(PY) -m tests.versions $(PART) $(NAMES)

chaos: spark-classes  ## Run three nodes under a workload with faults, MINUTES=20 SEED=7; compares both sides and a bank's balance at the end
	$(PY) -m tests.e2e.chaos --minutes $(or $(MINUTES),20) $(if $(SEED),--seed $(SEED))

simulate: $(INSTALLED)  ## Simulate the whole cluster in one thread, SEEDS=1000 times from FIRST=0, each time with other faults
	$(PY) -m tests.simulation.run --seeds $(or $(SEEDS),1000) --first $(or $(FIRST),0)

planted: $(INSTALLED)  ## Look for each planted bug by the simulation; takes most of an hour
	$(PY) -m pytest -m planted tests/simulation/test_planted_bugs.py

mutants: setup  ## Put faults into a copy of the product, one at a time, and say which tests see each; some only: ROOMS="owner sink"
	$(PY) -m tests.mutants $(ROOMS)

check: $(INSTALLED)  ## Check format, lint, types, import contracts, the handbook's links, generated code (pyproject.toml says what each is for)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PY) -m tests.house
	$(PY) -m tests.handbook
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT \
	  && $(PROTOC) --python_out=$$fresh --pyi_out=$$fresh --grpc_python_out=$$fresh $(STUBS) \
	  && diff -r --exclude=__pycache__ $$fresh/admin/stubs admin/stubs || { echo "admin/stubs differs from what proto/ generates: run make proto"; exit 1; }

fix: $(INSTALLED)  ## Format, and fix what the linter can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(INSTALLED)  ## Build the handbook as pages with search, in build/docs
	$(BIN)/mkdocs build --strict

proto: $(INSTALLED)  ## Generate the stubs of the admin API from proto/
	rm -rf admin/stubs && mkdir -p admin/stubs
	$(PROTOC) --python_out=. --pyi_out=. --grpc_python_out=. $(STUBS)

scale: $(INSTALLED)  ## Run the owner's decisions for far more nodes and tables than one machine has, NODES=1000 TABLES=1000000; model executors
	$(PY) -m bench.scale --nodes $(or $(NODES),1000) --tables $(or $(TABLES),1000000)
	$(PY) -m bench.executors

bench: spark-classes  ## Measure, each figure beside a baseline of the same run; some only: FIGURES="catch_up lag"
	$(PY) -m bench $(FIGURES)

lock: $(INSTALLED)  ## Resolve the dependencies again and write the lock files
	$(COMPILE) --all-extras --upgrade --output-file requirements.lock pyproject.toml
	$(COMPILE) --constraint requirements.lock --output-file container/runtime.lock pyproject.toml
	echo 'setuptools>=77' | $(COMPILE) --constraint requirements.lock --output-file container/build.lock -

clean:  ## Remove .venv, builds and caches; .mongod and bench/results stay
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

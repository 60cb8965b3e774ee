# coldstream: `make help` lists what there is. Every target does its own set-up.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup tools pin sbom wheel broker newer-brokers sam docker lambda-image emulators demo check test test-spark40 test-localstack soak lint format bench generate sam-build sam-local localstack java spark-package spark-local clean

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3.11
export PYTHONPATH := layers/coldstream/python:.

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The virtual environment, again whenever the pins change.
$(VENV)/.ready: requirements-dev.txt pyproject.toml
	@scripts/make-venv "$(PYTHON)" "$(VENV)"
	@touch $@

setup: $(VENV)/.ready  ## Make the virtual environment in .venv

broker:  ## Install Debian's rabbitmq-server where that may be done
	@scripts/install-broker

newer-brokers:  ## Put RabbitMQ 4.0 and 4.3 into .cache/brokers, for tests, where that may be done
	@scripts/install-newer-brokers

.venv-%/.ready: requirements-%.txt
	@scripts/make-venv "$(PYTHON)" "$(@D)" "$<"
	@touch $@

sam: .venv-sam/.ready  ## Put SAM CLI into .venv-sam

tools: .venv-tools/.ready  ## Put uv and cyclonedx-py into .venv-tools

pin: tools  ## Write the requirements again, with hashes: UPGRADE=1 for the newest versions, FILES="…" for some
	@scripts/pin $(if $(UPGRADE),--upgrade) $(FILES)

emulators: .venv-localstack/.ready  ## Put LocalStack into .venv-localstack, and fetch DynamoDB Local
	@scripts/dynamodb-local/fetch

docker:  ## Install Debian's Docker engine where that may be done and none answers
	@scripts/install-docker

lambda-image: sam docker  ## Have the functions' base image in Docker: AWS's own, or a stand-in where that cannot be pulled
	@scripts/build-lambda-image .venv-sam/bin/python

java:  ## Install Debian's Java where that may be done
	@scripts/install-java

demo: setup broker  ## A real broker, its segments archived and every message read back
	@$(BIN)/python scripts/demo.py

# What needs no server, for the loop of changing and looking. Slower than that is only what `make test` is for.
check: lint  ## Lint, and the tests that need no server: for every change
	@$(BIN)/python -m pytest -q -n $(JOBS) -m "not server and not slow"

# Processes for the tests: more than cores, for most of them wait for a broker, for Docker or for Spark.
JOBS ?= 4

# What is also tried with the oldest Spark: tests/spark in all of it takes minutes more, and says the same.
SPARK40_TESTS := $(addprefix tests/spark/test_,registration.py replay_job.py source_in_spark.py)
LOCALSTACK_TESTS := tests/conformance $(addprefix tests/store/test_,object_store.py manifest_table.py conditions.py)

test: setup tools .venv-spark40/.ready broker newer-brokers java sam docker emulators  ## Run the tests; COLDSTREAM_REQUIRE=all makes a missing real part a failure
	@$(BIN)/python -m pytest -n $(JOBS)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-spark40 test-localstack

test-spark40:
	@.venv-spark40/bin/python -m pytest $(SPARK40_TESTS)

test-localstack:
	@COLDSTREAM_CONFORMANCE=localstack $(BIN)/python -m pytest $(LOCALSTACK_TESTS) -k "not memory and not settled"

soak: setup broker  ## Run everything under fire: MINUTES=10, SEED of the first run; before it HISTORIES=20000 of writers
	@COLDSTREAM_HISTORIES=$(or $(HISTORIES),20000) COLDSTREAM_FIRST_SEED=$(or $(SEED),0) $(BIN)/python -m pytest -q tests/archive/test_histories.py --timeout 0
	@$(BIN)/python -m tests.chaos.soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

lint: setup  ## ruff and mypy, both strict
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: setup  ## Let ruff format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup broker java  ## Measure speed and memory, and write docs/benchmarks.md
	@$(BIN)/python -m bench

sam-build: setup tools sam  ## Check the template and build it, with the layer's bill of materials, for sam deploy
	@SAM_CLI_TELEMETRY=0 .venv-sam/bin/sam validate --lint --region us-east-1
	@SAM_CLI_TELEMETRY=0 PATH="$(CURDIR)/.venv-sam/bin:$$PATH" sam build
	@$(BIN)/python scripts/sbom.py layer --to .aws-sam/build/Layer/sbom.cdx.json

sam-local: setup sam docker  ## The functions in Docker as Lambda runs them, with commands to paste
	@$(BIN)/python scripts/sam_local.py

localstack: setup emulators  ## Everything on LocalStack and DynamoDB Local, with commands to paste
	@$(BIN)/python scripts/localstack.py

spark-package: setup tools  ## What spark-submit and EMR Serverless need, into build/spark: ARCHITECTURE=x86_64 or aarch64
	@$(BIN)/python scripts/spark_package.py --architecture $(or $(ARCHITECTURE),x86_64)

spark-local: setup java  ## Compaction and replay by spark-submit on an archive of this machine, with commands to paste
	@$(BIN)/python scripts/spark_local.py

wheel: setup tools  ## The wheel of coldstream into dist, and what the agent's installation consists of
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@$(BIN)/python scripts/sbom.py agent --to dist/agent.cdx.json

sbom: setup tools  ## What layer, agent and Spark jobs consist of, by version and hash, as CycloneDX into build/sbom
	@$(BIN)/python scripts/sbom.py

generate: setup  ## Write again what is generated from the code: docs/openapi.json, docs/*.schema.json
	@$(BIN)/python scripts/generate.py

clean:  ## Remove what these targets made
	rm -rf $(VENV) .venv-* .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .aws-sam build dist

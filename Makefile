# coldstream: `make help` lists the targets. Each of them does its own set-up.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup tools pin sbom wheel broker newer-brokers sam docker lambda-image emulators stream-client gateway-clients history-checker tlc durable-streams browser demo demo-console demo-gateway axe screenshots check test test-parts test-oldest-spark test-localstack soak prove lint format bench generate layer-native sam-build sam-local localstack java spark-package native-wheel spark-local clean

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3.11
export PYTHONPATH := layers/coldstream/python:.

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The virtual environment is created again whenever the pins change.
$(VENV)/.ready: requirements-dev.txt pyproject.toml
	@scripts/make-venv "$(PYTHON)" "$(VENV)"
	@touch $@

# Without Rust there is no native module, and no .native: it is looked for again.
$(VENV)/.native: $(VENV)/.ready native/Cargo.toml native/Cargo.lock $(shell find native/src -name '*.rs')
	@scripts/build-native $(VENV)

setup: $(VENV)/.ready $(VENV)/.native  ## Create the virtual environment in .venv, and build the native module if Rust is here

broker:  ## Install Debian's rabbitmq-server, if that is possible here
	@scripts/install-broker

newer-brokers:  ## Install RabbitMQ 4.0 and 4.3 into .cache/brokers for tests, if that is possible here
	@scripts/install-newer-brokers

.venv-%/.ready: requirements-%.txt
	@scripts/make-venv "$(PYTHON)" "$(@D)" "$<"
	@touch $@

sam: .venv-sam/.ready  ## Install SAM CLI into .venv-sam

tools: .venv-tools/.ready  ## Install uv and cyclonedx-py into .venv-tools

pin: tools  ## Pin the requirements by hash: UPGRADE=1 for the newest versions, FILES="…" for some files
	@scripts/pin $(if $(UPGRADE),--upgrade) $(FILES)

emulators: .venv-localstack/.ready  ## Install LocalStack into .venv-localstack, and fetch DynamoDB Local
	@scripts/dynamodb-local/fetch

stream-client: java  ## Fetch RabbitMQ's stream client for Java, whose producers tests use
	@scripts/stream-client/fetch

gateway-clients: stream-client  ## Build or fetch the stock clients for Go, Rust and JavaScript, and their own tests, that the gateway is held against
	@scripts/gateway-clients/build

history-checker:  ## Build the checker of histories, which is Porcupine, with Go
	@scripts/history-checker/build

tlc: java  ## Fetch TLC, which checks the model of a stream's life
	@scripts/tlc/fetch

durable-streams:  ## Fetch the conformance suite of the protocol that coldstream serve speaks
	@scripts/fetch-durable-streams

browser:  ## Install Debian's Chromium, if that is possible here
	@scripts/install-browser

axe:  ## Fetch axe-core, with which tests check that everybody can use the console's pages
	@scripts/fetch-axe

docker:  ## Install Debian's Docker engine if none answers and that is possible here
	@scripts/install-docker

lambda-image: sam docker  ## Put the functions' base image into Docker: AWS's own, or a stand-in if that cannot be pulled
	@scripts/build-lambda-image .venv-sam/bin/python

java:  ## Install Debian's Java, if that is possible here
	@scripts/install-java

demo: setup broker  ## Archive a real broker's stream and read every message back
	@$(BIN)/python scripts/demo.py

demo-console: setup broker  ## Archive a real broker's streams, live, and show them in the console until Ctrl-C
	@$(BIN)/python scripts/demo_console.py

demo-gateway: setup broker  ## Let a stock client read what a real broker has deleted, through the gateway
	@$(BIN)/python scripts/demo_gateway.py

screenshots: setup browser  ## Make the pictures of docs/console.md again
	@COLDSTREAM_SCREENSHOTS=1 $(BIN)/python -m pytest -q tests/console/test_browser.py -k picture

# For the loop of change and test. `make test` has the rest.
check: lint  ## Lint, and run the tests that need no server
	@$(BIN)/python -m pytest -q -n 3 -m "not server and not slow"

# Test processes. There are more of them than cores, because most tests wait: for a broker, Docker or Spark.
JOBS ?= 4

# These also run with the oldest Spark. All of tests/spark would take minutes longer, and show nothing more.
SPARK40_TESTS := $(addprefix tests/spark/test_,registration.py replay_job.py source_in_spark.py)
LOCALSTACK_TESTS := tests/conformance $(addprefix tests/store/test_,object_store.py listings.py deletes.py locks.py classes.py manifest_table.py conditions.py)

# Compilers go on beside what is fetched and installed. Both need Java, and two installations at once wait for each other.
test-parts: java
	@$(MAKE) --no-print-directory history-checker gateway-clients & compiling=$$!; trap 'kill $$compiling 2>/dev/null || true' EXIT; \
	$(MAKE) --no-print-directory setup tools layer-native .venv-spark40/.ready .venv-fuzz/.ready broker newer-brokers sam docker emulators tlc durable-streams browser axe; \
	wait $$compiling

test: test-parts  ## Run the tests; with COLDSTREAM_REQUIRE=all, a missing real part is a failure
	@$(BIN)/python -m pytest -n $(JOBS)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target test-oldest-spark test-localstack

test-oldest-spark: .venv-spark40/.ready java
	@.venv-spark40/bin/python -m pytest $(SPARK40_TESTS)

test-localstack: setup java emulators
	@COLDSTREAM_CONFORMANCE=localstack $(BIN)/python -m pytest $(LOCALSTACK_TESTS) -k "not memory and not settled"

soak: setup broker newer-brokers stream-client gateway-clients emulators  ## Run everything while parts are killed and fail: MINUTES=10, GROWTH=10 minutes of sharded streams, SEED of the first run, HISTORIES=20000, KILLS=100 of writers of direct streams, and of workers, WEEKS=20 of reconnects through the gateway, MOVES=5 minutes of leaders that move for each RabbitMQ
	@COLDSTREAM_SUITES=all $(BIN)/python -m pytest -q tests/gateway/suites/test_suites.py --timeout 0
	@COLDSTREAM_HISTORIES=$(or $(HISTORIES),20000) COLDSTREAM_FIRST_SEED=$(or $(SEED),0) $(BIN)/python -m pytest -q tests/archive/test_histories.py --timeout 0
	@$(BIN)/python -m tests.chaos.soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.growth.soak --minutes $(or $(GROWTH),10) $(if $(SEED),--seed $(SEED))
	@COLDSTREAM_KILLS=$(or $(KILLS),100) COLDSTREAM_FIRST_SEED=$(or $(SEED),0) $(BIN)/python -m pytest -q -s tests/streams/test_kill_nine.py --timeout 0
	@COLDSTREAM_KILLS=$(or $(KILLS),100) COLDSTREAM_FIRST_SEED=$(or $(SEED),1) $(BIN)/python -m pytest -q -s tests/worker/test_killed_workers.py --timeout 0
	@$(BIN)/python -m tests.gateway.faults.soak --weeks $(or $(WEEKS),20) $(if $(SEED),--seed $(SEED))
	@for release in host 4.0 4.3; do $(BIN)/python -m tests.gateway.faults.moving_soak --release $$release --minutes $(or $(MOVES),5) $(if $(SEED),--seed $(SEED)) || exit 1; done

prove: setup history-checker tlc .venv-fuzz/.ready  ## Run all long checks for HOURS=8 in all, or PARTS="explorer parsers", from SEED on; their figures go to docs/proof.md
	@$(BIN)/python -m tests.prove $(PARTS) --hours $(or $(HOURS),8) $(if $(SEED),--seed $(SEED))

lint: setup  ## Check with ruff and mypy, both strict
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: setup  ## Format the code with ruff
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup broker java  ## Measure speed and memory, and write docs/benchmarks.md
	@$(BIN)/python -m bench

layer-native:  ## Build the native module for the Lambda layer, if Rust is here
	@scripts/layer-native

sam-build: setup tools sam layer-native  ## Check and build the template for sam deploy, with the layer's bill of materials
	@SAM_CLI_TELEMETRY=0 .venv-sam/bin/sam validate --lint --region us-east-1
	@SAM_CLI_TELEMETRY=0 PATH="$(CURDIR)/.venv-sam/bin:$$PATH" sam build
	@$(BIN)/python scripts/sbom.py layer --to .aws-sam/build/Layer/sbom.cdx.json

sam-local: setup sam docker  ## Run the functions in Docker as Lambda does, and print commands to paste
	@$(BIN)/python scripts/sam_local.py

localstack: setup emulators  ## Run everything on LocalStack and DynamoDB Local, and print commands to paste
	@$(BIN)/python scripts/localstack.py

spark-package: setup tools  ## Package the jobs for spark-submit and EMR Serverless into build/spark: ARCHITECTURE=x86_64 or aarch64, NATIVE=FILE for the native module
	@$(BIN)/python scripts/spark_package.py --architecture $(or $(ARCHITECTURE),x86_64) $(if $(NATIVE),--native $(NATIVE))

native-wheel: setup  ## Build wheels of the native module into build/native, for x86_64 and aarch64: ARCHITECTURE= for one of them
	@$(BIN)/python -m scripts.native_wheel $(ARCHITECTURE)

spark-local: setup java  ## Run compaction and replay by spark-submit on a local archive, and print commands to paste
	@$(BIN)/python scripts/spark_local.py

wheel: setup tools  ## Build the wheel into dist, with the agent's bill of materials
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@$(BIN)/python scripts/sbom.py agent --to dist/agent.cdx.json

sbom: setup tools  ## Write the bills of materials of layer, agent, gateway and Spark jobs into build/sbom (CycloneDX)
	@$(BIN)/python scripts/sbom.py

generate: setup  ## Generate docs/openapi*.json and docs/*.schema.json from the code
	@$(BIN)/python scripts/generate.py

clean:  ## Remove everything that these targets created
	rm -rf $(VENV) .venv-* .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .aws-sam build dist

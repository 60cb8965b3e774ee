# coldstream: `make help` lists what there is. Every target does its own set-up.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup broker demo test soak lint format bench generate clean

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3.11
export PYTHONPATH := layers/coldstream/python:.

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The virtual environment, again whenever the pins change.
$(VENV)/.ready: requirements-dev.txt pyproject.toml
	@scripts/make-venv "$(PYTHON)" "$(VENV)"
	@touch $@

setup: $(VENV)/.ready  ## Make the virtual environment in .venv

broker:  ## Install Debian's rabbitmq-server where that may be done
	@scripts/install-broker

demo: setup broker  ## A real broker, its segments archived and every message read back
	@$(BIN)/python scripts/demo.py

test: setup broker  ## Run the tests; COLDSTREAM_REQUIRE=all makes a missing real part a failure
	@$(BIN)/python -m pytest

soak: setup broker  ## Run everything under fire: MINUTES=10, SEED of the first run
	@$(BIN)/python -m tests.chaos.soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

lint: setup  ## ruff and mypy, both strict
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: setup  ## Let ruff format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup  ## Measure speed and memory, and write docs/benchmarks.md
	@$(BIN)/python -m bench

generate: setup  ## Write again what is generated from the code: docs/openapi.json, docs/*.schema.json
	@$(BIN)/python scripts/generate.py

clean:  ## Remove what these targets made
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .aws-sam

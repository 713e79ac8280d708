# Headrace. `make` lists the targets; ARGS is handed on: make test ARGS="-k contract_"

PY  := .venv/bin/python
BIN := .venv/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format bench reproduce soak clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv with all that is needed, and find or install Java 17+
	@scripts/setup

WORKERS ?= 2
test: setup ## run the tests
	@scripts/postgresql
	@scripts/kafka
	@scripts/chromium
	$(BIN)/pytest -n $(WORKERS) --dist loadfile $(ARGS)

check: setup ## lint, format, types, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: setup ## let ruff fix and format what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## compare with what one would use instead
	$(PY) -m benchmarks $(ARGS)

demo: setup ## a retail warehouse fed by a bursty stream, proved in about a minute
	$(BIN)/headrace demo $(ARGS)

PAPER ?= mesh
reproduce: setup ## the figures of a paper: PAPER=mesh|def|ssij|xhj|models|pqp CHAPTER=4|5|6|7|8|9|A|D FIGURE=10b SCALE=full CLOCK=real (pqp); CHECK=all|ssij|ssij-13 compares verdicts with the pages
	@$(if $(CHECK)$(filter ssij,$(PAPER)),scripts/postgresql)
	$(PY) -m reproduction $(if $(CHECK),--check $(CHECK),$(PAPER)) $(if $(CHAPTER),--chapter $(CHAPTER)) $(if $(FIGURE),--figure $(FIGURE)) $(if $(SCALE),--scale $(SCALE)) $(if $(CLOCK),--clock $(CLOCK)) $(ARGS)

soak: setup ## kill -9 at random, fifty times, a burst, a promised delay, and the long tests (some twenty minutes)
	@scripts/postgresql
	@scripts/chromium
	$(PY) -m soak $(ARGS)

clean: ## remove caches and build output; benchmark results are kept
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./.venv -prune -o -path ./.git -prune -o \
	  \( -name __pycache__ -o -name '*.egg-info' \) -type d -print | xargs -r rm -rf

distclean: clean ## the same, and .venv
	rm -rf .venv

# Headrace. `make` lists the targets; ARGS is handed on: make test ARGS="-k contract_"

PY  := .venv/bin/python
BIN := .venv/bin
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup pins sbom demo test test-python check docs format bench reproduce soak clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv with all that is needed, and find or install Java 17+
	@scripts/setup

pins: ## write constraints.txt anew, with checksums: the newest versions inside the ranges of pyproject.toml
	@scripts/pins

sbom: setup ## a software bill of materials in CycloneDX's JSON, in build/headrace.cdx.json
	$(PY) scripts/sbom.py build/headrace.cdx.json

WORKERS ?= 2
test: setup ## run the tests
	@scripts/postgresql
	@scripts/kafka
	@scripts/chromium
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-python: ## run the quick tests, and a few on Spark, with another Python: PYTHON=/path/to/python3.13
	@scripts/test-python $(PYTHON) $(ARGS)

check: setup ## lint, format, types, import layers, links
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(PY) scripts/check_links.py
	$(PY) scripts/check_files.py

docs: setup ## the documentation site, in build/site; SERVE=8000 shows it on that port
	$(PY) -m sphinx --fail-on-warning --keep-going --quiet --jobs auto -c docs/site -d build/doctrees docs build/site
	@echo "docs: build/site/index.html"
	@$(if $(SERVE),$(PY) -m http.server --bind 127.0.0.1 --directory build/site $(SERVE))

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

soak: setup ## kill -9 at random, fifty times, a burst, a promised delay, the long tests and more; KILLS=1000 kills alone, so often (docs/soak.md)
	@scripts/postgresql
	@scripts/kafka
	@scripts/chromium
	$(PY) -m soak $(if $(KILLS),chaos --kills $(KILLS)) $(ARGS)

clean: ## remove caches and build output; benchmark results are kept
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./.venv -prune -o -path ./.git -prune -o \
	  \( -name __pycache__ -o -name '*.egg-info' \) -type d -print | xargs -r rm -rf

distclean: clean ## the same, and .venv
	rm -rf .venv

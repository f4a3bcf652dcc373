# `make` alone lists the targets. Everything runs from .venv, which `make setup` creates.

PYTHON := .venv/bin/python
NPM    := PATH="$(CURDIR)/.venv/bin:$$PATH" npm --prefix web --silent
PYTEST := $(PYTHON) -m pytest
CODE   := src tests scripts examples packages deploy hatch_build.py $(wildcard bench)
UV     := 0.13.7

# What the gate leaves out, by marks.
GATE := not long and not race and not crash and not real and not redteam and not root and not deploy

# One file per subject: the gate, commits, durable runs, undo.
CORE_TESTS := $(addprefix tests/integration/,gate/test_gate.py gate/test_commit.py runs/test_durable.py workspace/test_undo.py)
# Unit tests that take seconds each; the gate runs them.
SLOW_UNITS := test_wheel.py test_patterns_are_literal.py tools/test_modules.py policy/test_patterns.py providers/test_cuts.py

.DEFAULT_GOAL := help
.PHONY: help setup venv check static format format-check lint types layers docs docs-site web web-check web-types screens test \
        test-fast durations clients campaigns planted planted-coverage bench trace lock release release-tools release-check clean

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Prepare this machine: system packages (as root), PostgreSQL, the virtualenv
	@scripts/setup

venv: ## Create or refresh .venv from the lock files
	@scripts/setup venv

check: ## Run all checks: format, lint, types, layers, docs, web, paths of calls, tests
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target static
	@$(MAKE) --no-print-directory test

# The longest first.
static: types web-check trace layers lint format-check docs

format: ## Format the code and sort the imports
	$(PYTHON) -m ruff check --quiet --select I --fix $(CODE)
	$(PYTHON) -m ruff format $(CODE)
	$(NPM) run format

format-check:
	$(PYTHON) -m ruff format --check $(CODE)

lint: ## Lint
	$(PYTHON) -m ruff check $(CODE)

types: ## Check the types
	$(PYTHON) -m mypy $(CODE)

layers: ## Check that imports point down the layers
	.venv/bin/lint-imports --no-logo --cache-dir .cache/import-linter

docs: ## Check the links in the docs
	$(PYTHON) scripts/doclinks.py

web: ## Build the web UI into the package
	@scripts/setup web

web-check: ## Check the web UI: types, lint, unit tests
	$(NPM) run check

screens: ## Renew the pictures of the web UI in the documentation
	TOOLCRIB_SCREENS=1 $(PYTEST) -m "not long and not race and not crash" tests/web
	mkdir -p docs/images/web && cp .cache/screens/*-light.png docs/images/web/

web-types: ## Generate the web UI's types from the OpenAPI document
	$(PYTHON) scripts/api_types.py

docs-site: ## Build the documentation site into build/site
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet

test: ## Run the tests of the gate
	@PYTHON="$(PYTHON)" PYTEST="$(PYTEST)" scripts/run_tests --durations 25 --durations-min 5 -m "$(GATE)"

durations: ## Print how long each test and fixture of the last run of the gate took, by file and by fixture
	@$(PYTHON) -m scripts.durations

test-fast: ## Run the unit tests and the core integration tests
	$(PYTEST) -n 2 --dist loadgroup -m "not long" --hypothesis-profile quick \
	    $(SLOW_UNITS:%=--ignore tests/unit/%) tests/unit $(CORE_TESTS)

clients: ## Run the four clients' tables against a server and print the results
	@$(PYTHON) -m tests.clients

campaigns: ## Run all that takes too long for the gate, in three hours at most (ONLY="kills nodes", SKIP=…, FLAGS=… of one)
	@$(PYTHON) -m scripts.campaigns $(if $(ONLY),--only $(ONLY)) $(if $(SKIP),--skip $(SKIP)) $(if $(FLAGS),-- $(FLAGS))

planted-coverage: ## Record which lines each test of the gate runs, in all its processes (PATHS="tests/unit" for some)
	$(PYTHON) -m scripts.planted record $(FLAGS) -- -q -m "$(GATE)" $(PATHS)

planted: ## Plant defects, one at a time, and see which tests find them (ONLY=name; FLAGS="--keep --anew --seconds 240")
	$(PYTHON) -m scripts.planted run $(if $(ONLY),--only "$(ONLY)") $(FLAGS)

bench: ## Run the benchmarks against the bare baseline
	$(PYTHON) -m bench

trace: ## Count the files that one call crosses; fails above the ceilings (FLAGS="--list --moves" shows them)
	$(PYTHON) -m scripts.trace_call --check $(FLAGS)

release: web ## Build sdist, wheels, SBOM, notes and checksums into build/release; uploads nothing
	@scripts/release

release-tools: ## Install the locked tools of a release into .local/release
	@scripts/release tools

release-check: release ## Install and start the release in every form that this machine can, with one smoke test (as root; scripts/setup release)
	$(PYTHON) -m scripts.release_check $(FLAGS)

lock: ## Renew the lock files of the Python packages (UPGRADE=1 takes newer versions)
	@test -x .local/lock/bin/uv || /usr/bin/python3 -m venv .local/lock
	@.local/lock/bin/python -m pip install -qq uv==$(UV)
	$(call compile,requirements/runtime.txt)
	$(call compile,requirements/server.txt,--extra embedded --extra otel --extra server --extra redis --extra web)
	$(call compile,requirements/dev.txt,--extra dev)
	$(call compile,requirements/release.txt,,requirements/release.in)
	$(call compile,tests/peers/requirements.txt,,tests/peers/requirements.in)
	@! grep -nE '://|^-' requirements/*.txt tests/peers/requirements.txt || { echo "A lock file contains a URL or an option."; exit 1; }

define compile
	@.local/lock/bin/uv pip compile --quiet --python-version 3.11 --python-platform linux --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --no-header $(if $(UPGRADE),--upgrade) $(2) $(or $(3),pyproject.toml) -o $(1)
	@echo "$(1): $$(grep -c '^[a-z]' $(1)) packages"
endef

clean: ## Remove generated files, except the virtualenv and the database
	rm -rf .cache .hypothesis .ruff_cache .local/lock build dist
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

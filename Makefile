# `make` alone lists the targets. Everything runs from .venv, which `make setup` creates.

PYTHON := .venv/bin/python
NPM    := PATH="$(CURDIR)/.venv/bin:$$PATH" npm --prefix web --silent
PYTEST := $(PYTHON) -m pytest
CODE   := src tests scripts examples packages deploy hatch_build.py $(wildcard bench)
UV     := 0.13.7

# One file per subject: the gate, commits, durable runs, undo.
CORE_TESTS := $(addprefix tests/integration/,gate/test_gate.py gate/test_commit.py runs/test_durable.py workspace/test_undo.py)
# Unit tests that take seconds each; the gate runs them.
SLOW_UNITS := test_wheel.py test_patterns_are_literal.py tools/test_modules.py policy/test_patterns.py providers/test_cuts.py

.DEFAULT_GOAL := help
.PHONY: help setup venv check format format-check lint types layers docs docs-site web web-check web-types screens fixtures test \
        test-fast clients check-long race crash kills nodes db-faults git-undo undo-scale rendering sessions redteam \
        redteam-root restore-drill test-real first-minute bench engine trace reqs lock \
        release release-tools release-check deploy-check clean

help: ## Show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Prepare this machine: system packages (as root), PostgreSQL, the virtualenv
	@scripts/setup

venv: ## Create or refresh .venv from the lock files
	@scripts/setup venv

check: format-check lint types layers docs web-check fixtures test ## Run all checks: format, lint, types, layers, docs, web, tests

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

docs: ## Check the links in the docs and the requirement ids in the tests
	$(PYTHON) scripts/doclinks.py
	$(PYTHON) scripts/reqs.py --quiet

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

fixtures: ## Check that every test finds its fixtures, without running it: a gate ends after seconds, not at its end
	@mkdir -p .cache
	@$(PYTEST) --setup-plan > .cache/fixtures.txt || { grep -E "^E  |^(ERROR|FAILED)" .cache/fixtures.txt; exit 1; }

test: ## Run the tests of the gate
	@PYTHON="$(PYTHON)" PYTEST="$(PYTEST)" scripts/run_tests --durations 25 --durations-min 5 -m "not long and not race and not crash and not real and not redteam and not root and not deploy"

test-fast: ## Run the unit tests and the core integration tests
	$(PYTEST) -n 2 --dist loadgroup -m "not long" --hypothesis-profile quick \
	    $(SLOW_UNITS:%=--ignore tests/unit/%) tests/unit $(CORE_TESTS)

clients: ## Run the four clients' tables against a server and print the results
	@$(PYTHON) -m tests.clients

check-long: ## Run the long tests (minutes)
	$(PYTEST) -m long tests

race: ## Run the long races against the file access code
	$(PYTEST) -m race tests/adversarial

crash: ## Kill servers several hundred times and check the result
	$(PYTEST) -m crash tests

kills: ## Kill and stop two servers 100 times under runs, with runs that kill their server (minutes)
	$(PYTEST) -n 0 -m "crash or not crash" tests/faults/test_run_kills.py tests/faults/test_run_zombie.py \
	    tests/redteam/test_poison_pills.py
	$(PYTHON) -m bench kill_resume --kills 100

nodes: ## Kill, freeze, cut off and empty three nodes 200 times under load (FLAGS="--seed N" repeats one; half an hour)
	$(PYTHON) -m tests.faults.nodes_campaign --faults 200 --forwarding $(FLAGS)

db-faults: ## Stop, kill and cut off the database 100 times under 12 runs and check what models were told
	$(PYTEST) -n 0 -s -m crash tests/faults/test_database_faults.py

git-undo: ## Undo generated git work of an agent and a person, 500 times (minutes)
	TOOLCRIB_GIT_INTERLEAVINGS=500 $(PYTEST) -n 2 tests/integration/tools/shell/test_git_interleavings.py
	$(PYTEST) -n 2 -m "long or not long" tests/integration/tools/shell/test_git_undo.py

undo-scale: ## Undo and redo changes of up to 100,000 files, and print what they cost (minutes)
	$(PYTEST) -m long tests/integration/tools/shell/test_undo_scale.py

rendering: ## Show 200 generated change sets in the browser and in a terminal, and look for every line (minutes)
	$(PYTEST) -n 2 -m "long or not long" tests/web/test_rendering.py

sessions: ## Play realistic sessions with git, pip, npm and make; count questions, undo, redo (minutes)
	$(PYTEST) -n 2 -m "long or not long" tests/sessions

restore-drill: ## Restore the database of 1,000 workspaces without their disk, and read every file (minutes)
	$(PYTEST) -n 0 -m "long or not long" tests/acceptance/test_restore_drill.py

redteam: ## Run every attack (minutes); fails if one succeeds
	$(PYTEST) -n 2 --dist loadgroup -m "not root" tests/redteam tests/adversarial

redteam-root: ## Run the attacks that need root and a second user of the machine
	$(PYTEST) -n 0 -m root tests/redteam

first-minute: ## Play a new user's first minute, from the wheel to undo, with times
	$(PYTHON) -m scripts.first_minute

test-real: ## Build a real, small model once (12 minutes), and run its tests
	scripts/real_model
	$(PYTEST) -m real tests/real

bench: ## Run the benchmarks against the bare baseline
	$(PYTHON) -m bench

engine: ## Measure the durable queue with two processes; fails if a goal is missed (FLAGS=--quick is short)
	$(PYTHON) -m bench engine $(FLAGS)

trace: ## Count the files that one call crosses; fails above the targets (FLAGS=--list shows them)
	$(PYTHON) -m scripts.trace_call --check $(FLAGS)

reqs: ## List which tests cover which requirement; NEED="WS-1 WS-2" requires some
	@$(PYTHON) scripts/reqs.py $(NEED)

release: web ## Build sdist, wheels, SBOM, notes and checksums into build/release; uploads nothing
	@scripts/release

release-tools: ## Install the locked tools of a release into .local/release
	@scripts/release tools

deploy-check: release-tools ## Check the image's files, compose file, chart, unit and proxies with their own tools
	$(PYTEST) -n 0 -m deploy tests/deploy

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

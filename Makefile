# The project's verbs. `make` alone lists them; each makes the environment it needs, and touches it again only
# when pyproject.toml has changed.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV ?= .venv
PORT ?= 8000
REPOSITORY ?= demo-repository
# Not taken from the environment: some shells export a HOST that names the machine.
HOST := http://127.0.0.1:$(PORT)
USERS ?= 16
DURATION ?= 30s
TESTS ?= not gpu
PYTEST_ARGS ?=

BIN := $(VENV)/bin
CREATED := $(VENV)/.created
INSTALLED := $(VENV)/.installed-

.PHONY: help
help: ## List the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: serve
serve: $(INSTALLED)demo ## Serve REPOSITORY (the demo, laid out if absent) on PORT
	@[[ -e "$(REPOSITORY)" ]] || $(BIN)/inferlane demo "$(REPOSITORY)"
	@exec $(BIN)/inferlane serve --repository "$(REPOSITORY)" --port "$(PORT)"

.PHONY: demo
demo: $(INSTALLED)demo ## Lay out the demo repository in REPOSITORY
	@exec $(BIN)/inferlane demo "$(REPOSITORY)"

.PHONY: test
test: $(INSTALLED)test ## Run every test that needs no GPU
	$(BIN)/python -m pytest -m "$(TESTS)" $(PYTEST_ARGS)

.PHONY: test-gpu
test-gpu: $(INSTALLED)test-gpu ## Run the tests that need an NVIDIA GPU
	@[[ -d tests/gpu ]] || { echo "tests/gpu does not exist in this version: there is no GPU test to run." >&2; exit 1; }
	$(BIN)/python -m pytest -m gpu tests/gpu $(PYTEST_ARGS)

.PHONY: check
check: $(INSTALLED)dev ## Lint, types, import contracts, module sizes, deployment files
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_architecture.py
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/ci.yml

.PHONY: bench
bench: $(INSTALLED)dev ## Measure the speed bars of docs/measurements.md, as ratios inside one run
	$(BIN)/python -m loadtest.speed

.PHONY: load
load: $(INSTALLED)loadtest ## Load HOST with USERS locust users for DURATION
	$(BIN)/locust -f loadtest/locustfile.py --headless --host "$(HOST)" \
	    --users "$(USERS)" --spawn-rate "$(USERS)" --run-time "$(DURATION)"

# Editable, so that an installed environment always runs the tree as it is.
$(INSTALLED)%: pyproject.toml $(CREATED)
	@echo "Installing inferlane[$*] into $(VENV) (a minute or two the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

$(CREATED):
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(not (3, 10) <= v[:2] <= (3, 13) and \
	    "$(PYTHON) is Python %d.%d; Inferlane runs on CPython 3.10 to 3.13. Name one: make PYTHON=python3.12 ..." % v[:2])'
	@$(PYTHON) -m venv "$(VENV)"
	@touch $@

# Everything here works from a fresh clone: each target sets up what it needs.
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# What the demonstration needs is installed by itself: whoever looks for the first time does not wait for tools.
RUNS := $(VENV)/.runs
STAMP := $(VENV)/.installed

# The first interpreter found that is new enough. Override: make test PYTHON=python3.13
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; \
	done)

.DEFAULT_GOAL := help
# The tests start some thousand processes: each would compile all of Holdfast anew.
export PYTHONDONTWRITEBYTECODE :=
# Tests that wait for browsers and worker processes run beside those that compute. A browser is driven by
# an event loop that goes on between the tests: those of asyncio need a process without one.
WAITING := tests/crash/ tests/worker/ tests/browser/ tests/examples/
# A test that hangs ends its process and the run. How tests are distributed: tests/support/xdist_scheduler.py
SHARED := $(BIN)/python -m pytest --dist loadgroup --max-worker-restart 0
# Where there is room in memory, the tests' databases are in it: a commit then does not wait for a disk.
MEMORY := $(shell [ "$$(df -Pk /dev/shm 2>/dev/null | awk 'END { print $$4 }')" -gt 4000000 ] 2>/dev/null \
	&& echo /dev/shm)
EXAMPLES := podcasts videos weather feeds media_manager
# The dashboard's third-party JavaScript: made again when the lock changes.
ASSETS := src/holdfast/web/static/vendor/lock.sha256
AXE := tests/browser/vendor/lock.sha256
.PHONY: help setup assets check budgets format test test-rooms test-processes prove bench demo docs examples pictures clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) $(ASSETS) ## Create .venv and install Holdfast with its tools

$(RUNS): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Holdfast needs Python 3.11 or newer on the PATH." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[postgres,web]'
	@touch $@

$(STAMP): $(RUNS)
	$(PIP) -e '.[all,dev]'
	@touch $@

assets: $(RUNS) ## Fetch the dashboard's third-party JavaScript (npm registry, checked by hash)
	$(BIN)/python tools/assets.py

$(ASSETS): src/holdfast/web/assets.lock.json | $(RUNS)
	$(BIN)/python tools/assets.py
	@touch $@

$(AXE): tests/browser/assets.lock.json | $(RUNS)
	$(BIN)/python tools/assets.py --tests
	@touch $@

check: $(STAMP) ## Check style, types, layers and budgets
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory budgets

budgets: $(STAMP) ## Check the size of files, functions and the public API
	$(BIN)/python -m pytest -q tests/project/test_budgets.py

format: $(STAMP) ## Format the code and apply the safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: export TMPDIR := $(or $(MEMORY),$(TMPDIR),/tmp)
test: $(STAMP) $(ASSETS) $(AXE) ## Run the tests, on SQLite and on a real PostgreSQL (ARGS='-k name -x')
	@$(BIN)/python tools/programs.py chromium ffmpeg pgbouncer haproxy faketime >/dev/null || true
ifdef ARGS
	$(BIN)/python -m pytest $(ARGS)
else
	@$(MAKE) --no-print-directory --jobs 2 test-rooms test-processes
endif

test-rooms:
	$(SHARED) -n 3 $(filter-out $(WAITING),$(sort $(dir $(wildcard tests/*/__init__.py))))

# Each part is printed when it has ended: the progress of the tests beside it is shown meanwhile.
test-processes:
	@failed=0; for part in tests/browser/ 'tests/worker/ tests/examples/' tests/crash/; do \
		$(SHARED) -n 2 $$part > $(VENV)/.part.log 2>&1 || failed=1; \
		echo; echo "$$part"; cat $(VENV)/.part.log; \
	done; exit $$failed

prove: $(STAMP) ## Run the long crash tests: kills, freezes, restarts (ARGS='kills sqlite --kills 50')
	$(BIN)/python -m tests.crash $(or $(ARGS),all)

bench: $(STAMP) ## Run the benchmarks (ARGS='--help')
	$(BIN)/python -m bench $(ARGS)

demo: $(RUNS) $(ASSETS) ## Run the demonstration on SQLite, with its dashboard, until Ctrl-C
	$(BIN)/holdfast demo $(ARGS)

examples: $(STAMP) $(ASSETS) ## Run the five example applications, end to end (ARGS='podcasts videos')
	@$(BIN)/python tools/programs.py ffmpeg >/dev/null
	@set -e; for name in $(or $(ARGS),$(EXAMPLES)); do $(BIN)/python -m examples.$$name; done

docs: $(STAMP) $(ASSETS) ## Build the documentation's site into site/, with the reference made from the code
	$(BIN)/python -m tools.site

pictures: $(STAMP) $(ASSETS) ## Take pictures of the dashboard's pages for the documentation
	$(BIN)/python -m tests.browser.pictures

clean: ## Remove .venv, caches and build results
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

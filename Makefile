.PHONY: coverage demo dist docs soak test test-browser test-clients test-engines test-long test-package check lock

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled once, and not again by each of the hundreds of processes that tests start, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=

# One environment for the demo, the tests and the checks, made from the lock alone.
$(VENV)/installed: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

demo: $(VENV)/installed
	$(BIN)/python evals/demo.py

# What runs in this environment alone. Tests in folders of HEAVY start processes, which coverage does not see.
APART := not engines and not browser and not package
SUITE := $(BIN)/python -m pytest -n 2 -m "$(APART) and not long"
HEAVY := e2e evals deploy docs fuzz

test: $(VENV)/installed
	$(SUITE)

test-long: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 -m "$(APART) and long"

coverage: $(VENV)/installed
	$(SUITE) $(HEAVY:%=--ignore=tests/%) --cov --cov-report=term-missing:skip-covered --cov-fail-under=95

test-browser: $(VENV)/installed
	scripts/browser
	$(BIN)/python -m pytest -m browser tests/browser

test-clients: $(VENV)/installed
	scripts/clients install
	$(BIN)/python -m pytest tests/clients

test-package: $(VENV)/installed
	$(BIN)/python -m pytest -m package tests/package

test-engines: $(VENV)/installed
	scripts/engines install
	$(BIN)/python -m pytest -m engines tests/engines

# The wheel, the archive of the sources, and the bill of materials of what the image installs.
dist: $(VENV)/installed
	$(BIN)/python -m build --no-isolation --outdir dist
	scripts/sbom dist/cascade-rerank.cdx.json

# The documentation as a site, into build/site. Whatever mkdocs warns of fails it.
docs: $(VENV)/installed
	$(BIN)/mkdocs build --strict

# Ten minutes, ten more, and one or two.
soak: $(VENV)/installed
	$(BIN)/python -m evals.soak --seconds 600 --faults 10000 --seed 1
	$(BIN)/python -m evals.soak --seconds 600 --faults 10000 --seed 2 --cache memory
	$(BIN)/python -m evals.soak.activations --activations 1000 --rate 200 --seed 1

check: $(VENV)/installed
	scripts/check

lock:
	scripts/lock

# On a fresh machine: `make demo` and `make test` do their own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup setup-slow demo test test-slow lint docs bench lock wheel newest clean

help:
	@echo "make demo       simulate a programme, build its bank, compare with the pooled fit, write the report"
	@echo "make test       the test suite           make test-slow  the long statistical checks"
	@echo "make lint       ruff, mypy and biome     make docs       the documentation, warnings are errors"
	@echo "make bench      the benchmarks           make lock       renew constraints.txt from this environment"
	@echo "make wheel      the wheel, tried alone   make newest     the tests with the newest numba and polars"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

setup-slow: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,slow]'

demo:
	@start=$$(date +%s); $(MAKE) --no-print-directory setup; echo "set-up took $$(($$(date +%s) - start)) s"
	$(BIN)/concal demo --to concal-demo

test: setup
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

test-slow: setup-slow
	$(BIN)/python -m pytest -m slow

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/biome ci --error-on-warnings --colors=off

docs: setup
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html

bench: setup
	$(BIN)/python benchmarks/run_all.py

wheel:
	PYTHON=$(PYTHON) .ci/wheel

newest:
	PYTHON=$(PYTHON) .ci/newest

lock: setup-slow
	$(BIN)/python -m pip freeze --exclude-editable > constraints.txt

clean:
	rm -rf $(VENV) concal-demo docs/_build artefacts

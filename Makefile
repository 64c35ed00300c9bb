# Everything runs in a virtual environment of its own; python3, make and a network are all that is needed.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench docs lock clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(STAMP)  ## create the virtual environment and install the project into it

$(STAMP): pyproject.toml requirements.lock setup.py
	@echo "Setting up $(VENV) (once; a minute or two)"
	@echo "1/3 a virtual environment"
	@$(PYTHON) -m venv $(VENV)
	@echo "2/3 the libraries of requirements.lock"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@echo "3/3 the planner, its engine compiled where there is a compiler"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup  ## search the quickstart space and show the answer
	@$(BIN)/planner search search_spaces/quickstart.yaml --out results/quickstart --overwrite
	@echo 'So that your shell finds planner: export PATH="$(CURDIR)/$(BIN):$$PATH"'

test: setup lint  ## lint, type check and run the test suite
	@$(BIN)/python -m pytest -n 2 --dist loadfile

lint: setup  ## lint and type check
	@$(BIN)/ruff check .
	@$(BIN)/mypy

bench: setup  ## the longer benchmarks: the engine, its scaling, the router, screening, the optimisers, workers, a large space
	@$(BIN)/python benchmarks/engine.py
	@$(BIN)/python benchmarks/engine.py --scale
	@$(BIN)/python benchmarks/routing.py
	@$(BIN)/python benchmarks/mooncake.py
	@$(BIN)/python benchmarks/bounds_tightness.py
	@$(BIN)/python benchmarks/screening.py
	@$(BIN)/python benchmarks/optimisers.py
	@$(BIN)/python benchmarks/scaling.py
	@$(BIN)/python benchmarks/large_space.py

docs: setup  ## build the documentation site into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo build/site/index.html

lock: setup  ## resolve requirements.lock again from pyproject.toml
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-emit-find-links --extra dev pyproject.toml -o requirements.lock

clean:  ## remove the virtual environment and everything built
	rm -rf $(VENV) build *.egg-info
	find sim -name '*.so' -delete

# `make demo` shows a live minute; `make test` proves everything. Both work on a fresh machine with Python 3.11 to 3.13.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help venv dev demo check format test bench requirements docs clean

help:
	@echo "make demo          a live minute over real processes on this machine"
	@echo "make test          everything: checks, unit tests, tests against real servers"
	@echo "make check         format, lint, types, import contracts, unit tests (under 90 s)"
	@echo "make bench         the measured promises, as ratios within one run"
	@echo "make docs          write the generated parts of README and docs anew"
	@echo "make requirements  pin and hash the dependencies of pyproject.toml anew"

$(VENV)/run.stamp: requirements/run.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python 3.11, 3.12 or 3.13 found; name one: make PYTHON=/path/to/python3.12 …" >&2; exit 1; }
	@echo "setting up $(VENV) (once; about a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --progress-bar off --require-hashes --requirement requirements/run.txt
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --progress-bar off --require-hashes --requirement requirements/dev.txt
	@touch $@

# A server of its own in an environment of its own: what it needs must not bend what we run with.
$(VENV)/s3-server.stamp: $(VENV)/run.stamp requirements/s3-server.txt
	@$(BIN)/python -m venv --clear $(VENV)/s3-server
	@$(VENV)/s3-server/bin/python -m pip install --quiet --progress-bar off --require-hashes --requirement requirements/s3-server.txt
	@touch $@

venv: $(VENV)/run.stamp
dev: $(VENV)/dev.stamp

demo: venv
	@$(BIN)/supervisorctl demo

check: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy supervisor
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -n 2 -m "not lab and not slow" -p no:cacheprovider

format: dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: check $(VENV)/s3-server.stamp
	deploy/lab/packages
	$(BIN)/python -m pytest -q -m "lab or slow" --cache-clear || { \
		echo "once more, what failed: real servers on a busy machine may need a second try"; \
		$(BIN)/python -m pytest -q -m "lab or slow" --last-failed --last-failed-no-failures none; }

bench: dev
	$(BIN)/python -m bench

docs: dev
	$(BIN)/python docs/generate.py

requirements: dev
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-annotate --no-header -q --python-version 3.11 \
		--group build --extra stores pyproject.toml -o requirements/run.txt
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-annotate --no-header -q --python-version 3.11 \
		--group build --group dev --extra stores pyproject.toml -o requirements/dev.txt
	$(BIN)/uv pip compile --universal --generate-hashes --no-emit-index-url --no-annotate --no-header -q --python-version 3.11 \
		--group pyproject.toml:s3-server -o requirements/s3-server.txt

clean:
	rm -rf $(VENV) .demo .mypy_cache .ruff_cache .pytest_cache build *.egg-info

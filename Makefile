# `make demo` and `make test` set everything up by themselves; the second call is quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test browser docs dist fuzz soak bench results lint format clean

# Installs again only when what it installs from has changed.
# Everything but torch by hash: see tools/hashes.py.
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
$(VENV)/installed: pyproject.toml constraints.txt hashes.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --no-deps --require-hashes -r hashes.txt
	$(PIP) install -c constraints.txt torch
	$(PIP) install --no-deps --no-build-isolation -e .
	$(PIP) check
	touch $@

demo: $(VENV)/installed
	$(BIN)/python examples/digits.py --out build/demo

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# cclp lab is tested in a browser: Debian's, fetched if that is possible here.
browser:
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && apt-get update -qq \
		&& apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
		|| echo "No Chromium here, and it cannot be installed: cclp lab will not be tested in a browser."

# Every core has a process with one thread of its own: most tests wait for other programs anyway.
test: lint browser
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal

docs: $(VENV)/installed
	$(BIN)/mkdocs build --quiet
	@echo "build/site/index.html; with search: python3 -m http.server -d build/site"

# A source archive and a wheel, in dist/, and what the wheel needs, as CycloneDX.
dist: $(VENV)/installed
	$(BIN)/hatchling build
	$(BIN)/python -m tools.sbom "$$(ls -t dist/*.whl | head -n 1)"

# Some minutes: 10,000 damaged files of each kind. make test reads 300 of each.
fuzz: $(VENV)/installed
	$(BIN)/python -m tests.fuzz --docs docs/reliability.md

# Some minutes: whether a long training grows.
soak: $(VENV)/installed
	$(BIN)/python -m benchmarks.soak --docs docs/reliability.md

bench: $(VENV)/installed browser
	$(BIN)/python benchmarks/loss.py --out results/loss-benchmark.json --docs docs/performance.md
	$(BIN)/python benchmarks/training.py --out results/training-benchmark.json
	$(BIN)/python benchmarks/threads.py --out results/threads-benchmark.json
	$(BIN)/python -m benchmarks.startup --out results/startup-benchmark.json --docs docs/performance.md
	$(BIN)/python benchmarks/estimator.py --docs docs/estimator.md
	$(BIN)/python benchmarks/scaling.py --out results/scaling-benchmark.json --docs docs/processes.md
	$(BIN)/python -m benchmarks.lab --out results/lab-benchmark.json --docs docs/lab.md

# Finishes what is missing but for the sweeps, which take hours (cclp reproduce table1 --out
# results/table1 …), draws the figures again, and puts all of it into docs/.
results: $(VENV)/installed
	$(BIN)/cclp reproduce circles --out results/circles
	$(BIN)/cclp reproduce moons --out results/moons
	$(BIN)/cclp reproduce overhead --out results/overhead
	$(BIN)/cclp report results/table1
	$(BIN)/cclp report results/table1-fast
	$(BIN)/cclp report results/table1-peers
	$(BIN)/cclp report results/ablation
	$(BIN)/python -m tools.results

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

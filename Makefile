# make setup · run · test · check · lint · bench [NAME=…]
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1

FRONTEND_SOURCES := $(shell find frontend/src frontend/index.html frontend/vite.config.ts -type f 2>/dev/null)
KERNEL_SOURCES := $(shell find accelsim search -name '*.py' 2>/dev/null)

.PHONY: setup setup-dev run test check lint bench clean

.venv/.installed: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
		{ echo "Graphsmith needs Python 3.11; set PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

.venv/.installed-dev: .venv/.installed requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

frontend/node_modules/.installed: frontend/package-lock.json
	@command -v npm >/dev/null || { echo "Graphsmith needs Node 20 with npm"; exit 1; }
	cd frontend && npm ci --no-audit --no-fund
	touch $@

frontend/dist/.built: frontend/node_modules/.installed $(FRONTEND_SOURCES)
	cd frontend && npm run build
	touch $@

# numba compiles the search's inner loops on their first use; doing it here keeps the first search from waiting.
.venv/.compiled: .venv/.installed $(KERNEL_SOURCES)
	@echo "Compiling the search kernels: a minute or two, once a version"
	@$(BIN)/python -m search memory webapp/graphs/examples/14_maml_flax_train_step.hlo.gz --device tpu-v5e \
		--method annealing --evaluations 60 --out .venv/compiled >.venv/compile.log 2>&1 || { cat .venv/compile.log; exit 1; }
	@touch $@

setup: .venv/.installed .venv/.compiled frontend/dist/.built
	$(BIN)/python manage.py migrate --verbosity 0

setup-dev: setup .venv/.installed-dev

run: .venv/.installed .venv/.compiled frontend/dist/.built
	@exec $(BIN)/python manage.py up $(ARGS)

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run --verbosity 0
	cd frontend && npm run lint && npm run typecheck

check: setup-dev lint
	GRAPHSMITH_HOME=.venv/test-home $(BIN)/pytest -m "not slow and not chaos and not browser"
	cd frontend && npm test

test: setup-dev lint
	cd frontend && npm test
	GRAPHSMITH_HOME=.venv/test-home $(BIN)/pytest

bench: setup-dev
	$(BIN)/python -m tests.benchmarks $(NAME)

clean:
	rm -rf .venv frontend/node_modules frontend/dist

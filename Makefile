# gpusched: `make demo` and `make test` do all set-up on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One more than cores: some tests wait for processes and leases in real time, a minute and a half together.
WORKERS ?= 3
LONGEST ?= 10m
PURE := api topology placement session commit leader config lab/report plugins
.DEFAULT_GOAL := help
# Tests start a hundred processes, each of which would compile everything anew: a quarter of their CPU time.
export PYTHONDONTWRITEBYTECODE :=
.PHONY: help setup demo test quick chaos soak lint types imports unit bench experiments real real-binding check format chart lock clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

setup: $(STAMP) ## create .venv with everything pinned; .venv/bin/gpusched is then the command

$(STAMP): requirements.lock pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gpusched needs Python 3.11 or newer: make PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing pinned packages into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@rm -rf *.egg-info # of an older version, it would hide new plugins and actions
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@mkdir -p build/types && ln -sfn ../../plugins build/types/gpusched_plugins
	@$(BIN)/python -m compileall -q -j 2 gpusched plugins # no start compiles what runs, whatever PYTHONDONTWRITEBYTECODE says
	@touch $@

demo: setup ## an embedded cluster, the real daemon, three queues, gangs that start and gangs that wait
	@$(BIN)/gpusched demo

quick: setup ## the pure tests, without daemon, cluster and processes: seconds, while you type
	@$(BIN)/pytest -q -n 2 --dist worksteal -m "not long" $(PURE:%=tests/%) --ignore tests/placement/solver --ignore tests/plugins/host --ignore tests/plugins/outside

# Types take one processor for half a minute, in which tests use the other; lint and import rules take seconds.
test: setup ## lint, types, import rules and every test
	@$(MAKE) --no-print-directory lint imports
	@$(MAKE) --no-print-directory -j 2 types unit

lint: setup ## ruff: rules and format; oxlint: scripts of reports and of the page
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/oxlint --deny-warnings --ignore-pattern '**/vendor/**' gpusched/lab/report/pages/assets gpusched/io/serve/page

types: setup ## mypy --strict
	$(BIN)/mypy gpusched plugins benchmarks

imports: setup ## who may import whom
	$(BIN)/lint-imports

unit: setup ## the tests alone; at the end the slowest twenty
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal --durations=20 tests

chaos: setup ## the 200 chaos seeds, of which `make test` plays 20
	$(BIN)/gpusched chaos --seeds 0-199 --jobs 2

soak: setup ## every test with all seeds, lives and examples, of which `make test` plays a sample
	GPUSCHED_SOAK=1 $(BIN)/pytest -q -n $(WORKERS) --dist worksteal --durations=20 tests

# One after the other they leave a processor idle for half a minute; each one's output is kept together.
check: setup ## lint, types, import rules: everything but the tests
	@$(MAKE) --no-print-directory -j 3 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) lint types imports

bench: setup ## speed and memory, as ratios to this machine's raw limits
	$(BIN)/python -m benchmarks

experiments: setup ## M1 to M7, with their tables and plots, into docs/experiments.md
	$(BIN)/python -m benchmarks.experiments

real: setup ## the scenario library and the contract suite on the cluster KUBECONFIG names
	@$(BIN)/python -m benchmarks.real --longest $(LONGEST) $(if $(OTHERS),--others) $(if $(REPORT),--report $(REPORT)) $(foreach name,$(ONLY),--only $(name)) $(PATHS)

real-binding: setup ## pods bound a second on the cluster KUBECONFIG names, beside the bare client and OTHER="NAME=COMMAND"
	@$(BIN)/python -m benchmarks.real.binding $(if $(OTHER),--other "$(OTHER)") $(if $(TURNS),--turns $(TURNS))

chart: setup ## dashboards, rules and the Helm chart; with helm 3 on PATH also what it makes of the test cases
	$(BIN)/python .ci/monitoring.py
	$(BIN)/python .ci/chart.py $(if $(shell command -v helm),record)

format: setup ## let ruff format and fix
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --custom-compile-command "make lock"
ALL := pyproject.toml .ci/distributions/devcluster/pyproject.toml .ci/distributions/lab/pyproject.toml $(foreach name,gpusched gpusched-devcluster gpusched-lab,--no-emit-package $(name))
lock: ## pin again after editing dependencies (needs uv)
	$(COMPILE) --group dev $(ALL) -o requirements.lock
	$(COMPILE) --constraint requirements.lock pyproject.toml -o requirements-run.lock
	$(COMPILE) --constraint requirements.lock $(ALL) -o requirements-scenarios.lock

clean: ## forget everything that was installed or built
	rm -rf $(VENV) build *.egg-info .ci/distributions/*/build .ci/distributions/*/*.egg-info

# Two commands do everything on a fresh machine: `make demo` and `make test`. They need Python ≥ 3.11, make and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
K8S ?= 1.36
SEEDS ?= 1..1000
INPUTS ?= 1000000
# Processes for tests: auto is one per core. Labs at once: a lab waits most of the time.
N ?= auto
LABS ?= 4
export PYTHONDONTWRITEBYTECODE=

.DEFAULT_GOAL := help
.PHONY: help setup demo test e2e sim fuzz mutants audit bench lint format docs lock clean

help: ## Show what can be done here
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(VENV)/.done ## Create .venv with the locked dependencies (the others call it by themselves)

# uv if it is at hand or can be had, else plain venv + pip.
$(VENV)/.done: pyproject.toml uv.lock
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh .ci/setup
	@touch $@

demo: setup ## Play the scripted day in the sandbox; no cluster needed (SHORT=1: the short form)
	@$(BIN)/mooring demo $(if $(SHORT),--short,) $(DEMO)

test: setup ## All tests that need nothing but this machine and Python (T=path for some, N=0 in one process)
	@$(BIN)/pytest -n $(N) --dist worksteal $(T)

# Where these tests are: to look for them in all others takes a minute of the processors' time.
E2E = tests/e2e $$(grep -rl --include='*.py' 'mark\.e2e' tests | grep -v '^tests/e2e/' | sed 's,/conftest\.py$$,,' | sort)

e2e: setup ## Tests on a real control plane (built once with Go, or from MOORING_BIN_DIR; K8S=1.34|1.35|1.36)
	@MOORING_K8S=$(K8S) $(BIN)/mooring lab build --k8s $(K8S) --tools
	@MOORING_K8S=$(K8S) $(BIN)/pytest -m e2e -n $(LABS) --dist loadfile --no-loadscope-reorder $(or $(T),$(E2E))

sim: setup ## Simulated clusters with load, interference and faults (SEEDS=1..1000)
	@$(BIN)/mooring sim --seeds $(SEEDS) $(SIM)

fuzz: setup ## Malformed requests, answers, marks and files (INPUTS=1000000)
	@$(BIN)/python -m tests.fuzz --inputs $(INPUTS)

mutants: setup ## Change the code in small ways and count what no test notices (slow; for the night)
	@$(BIN)/python -m tests.mutants $(M)

audit: setup ## Known vulnerabilities of the locked dependencies (needs pypi.org; fails, and says so, where that is not reached)
	@sh .ci/setup uv-only; $(BIN)/python .ci/audit "$$(command -v uv || echo .tools/bin/uv)"

bench: setup ## Print the figures we claim (B=name for one of them)
	@$(BIN)/python -m bench $(B)

lint: setup ## ruff, mypy --strict, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: setup ## Let ruff put things right
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: setup ## Draw the diagrams and check the docs: links, commands, samples, settings, reasons, promises, spelling
	@$(BIN)/python docs/diagrams.py
	@$(BIN)/codespell --skip "*.svg,*.png" docs README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md
	@$(BIN)/pytest tests/docs

lock: ## Resolve the dependencies again: uv.lock, and .ci/requirements.txt for those without uv
	@sh .ci/setup uv-only; UV=$$(command -v uv || echo .tools/bin/uv); \
	$$UV lock && $$UV export -q --frozen --all-extras --no-emit-project --no-header -o .ci/requirements.txt

clean: ## Remove what the targets above made (not the control plane's cache)
	rm -rf $(VENV) .tools .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist .e2e-logs test-output

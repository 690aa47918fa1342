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
.PHONY: help setup demo test e2e sim nightly fuzz mutants audit bench dist lint format docs lock clean

help: ## Show what can be done here
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(VENV)/.done ## Create .venv with the locked dependencies (the others call it by themselves)

# uv if it is at hand or can be had, else plain venv + pip.
$(VENV)/.done: pyproject.toml src/mooring_lab/pyproject.toml uv.lock
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh .ci/setup
	@touch $@

demo: setup ## Play the scripted day in the sandbox; no cluster needed (SHORT=1: the short form)
	@$(BIN)/mooring demo $(if $(SHORT),--short,) $(DEMO)

test: setup ## All tests that need nothing but this machine and Python (T=path for some, N=0 in one process)
	@$(BIN)/pytest -n $(N) --dist worksteal $(or $(T),--ignore tests/e2e)

# Where these tests are: to look for them in all others takes a minute of the processors' time.
E2E = tests/e2e $$(grep -rl --include='*.py' 'mark\.e2e' tests | grep -v '^tests/e2e/' | sed 's,/conftest\.py$$,,' | sort)

e2e: setup ## Tests on a real control plane (built once with Go, or from MOORING_BIN_DIR; K8S=1.34|1.35|1.36|1.37)
	@MOORING_K8S=$(K8S) $(BIN)/mooring lab build --k8s $(K8S) --tools
	@MOORING_K8S=$(K8S) $(BIN)/pytest -m e2e -n $(LABS) --dist loadfile --no-loadscope-reorder $(or $(T),$(E2E))

sim: setup ## Simulated clusters with load, interference and faults (SEEDS=1..1000)
	@$(BIN)/mooring sim --seeds $(SEEDS) $(SIM)

# Other seeds every day, and the same for everybody on one day, so that a failure can be discussed.
TODAY = $(shell echo $$(( $$(date -u +%s) / 86400 * 1000 )))
nightly: setup ## The tests that take long, and 500 simulation seeds that are drawn by date
	@$(BIN)/pytest -m 'nightly and not e2e' -n $(N) --dist worksteal --ignore tests/e2e
	@$(BIN)/mooring sim --seeds $(TODAY)..$(shell echo $$(( $(TODAY) + 499 )))

fuzz: setup ## Malformed requests, answers, marks and files (INPUTS=1000000)
	@$(BIN)/python -m tests.fuzz --inputs $(INPUTS)

mutants: setup ## Change the code in small ways and count what no test notices (slow; for the night)
	@$(BIN)/python -m tests.mutants $(M)

audit: setup ## Known vulnerabilities of the locked dependencies (needs the public package index; fails, and says so, where that is not reached)
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

dist: setup ## What a release publishes, into dist/ (CHECK=1: build it twice and compare the bytes)
	@sh .ci/setup uv-only; $(BIN)/python .ci/dist "$$(command -v uv || echo .tools/bin/uv)" $(if $(CHECK),--check)

docs: setup ## Check the docs: links, commands, samples, settings, reasons, promises, spelling
	@$(BIN)/codespell --skip "*.svg,*.png" docs README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md
	@$(BIN)/pytest tests/docs

lock: ## Resolve the dependencies again: uv.lock, and .ci/requirements.txt for those without uv
	@sh .ci/setup uv-only; UV=$$(command -v uv || echo .tools/bin/uv); \
	$$UV lock && $$UV export -q --frozen --all-extras --no-emit-workspace --no-header -o .ci/requirements.txt && \
	{ echo "# The build backend and what it needs, for deploy/Containerfile: make lock writes it"; \
	  grep -o 'hatchling==[0-9.]*' pyproject.toml | $$UV pip compile -q --generate-hashes --universal --no-header --no-annotate --python-version 3.11 -; } > .ci/build.txt

clean: ## Remove what the targets above made (not the control plane's cache)
	rm -rf $(VENV) .venv-3.13 .tools .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist .e2e-logs test-output

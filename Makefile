.DEFAULT_GOAL := help
.PHONY: demo test check dashboard bench lock clean help set-up sandbox
BIN := .venv/bin
RUN ?= runs/demo
SPECIAL := docker or desktop or browser or ray or slow or train

demo: set-up ## the whole experiment on the demo's tasks; the same command resumes it
	@$(BIN)/evolver sandbox up
	@$(BIN)/evolver demo

test: set-up sandbox ## the fast tests, then every test that this machine can run; skips say why
	@$(BIN)/pytest -q -ra -m "not ($(SPECIAL))"
	@$(BIN)/pytest -q -ra -m "$(SPECIAL)"

check: set-up ## format, lint, types, import directions
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --strict harnesses devset evolver
	@$(BIN)/lint-imports --no-logo

dashboard: set-up ## the pages over a run: make dashboard RUN=runs/demo
	@$(BIN)/evolver dashboard $(RUN)

bench: $(patsubst tests/bench/%.py,bench-%,$(wildcard tests/bench/*.py)) ## every measurement with a goal (bench-NAME runs one)

bench-%: set-up
	@$(BIN)/python -m pip install -qq -c .ci/constraints.txt -e '.[bench]'
	@$(BIN)/python tests/bench/$*.py

lock: ## renews .ci/constraints.txt
	@.ci/lock

clean: ## removes what make built; runs/ stays
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

set-up: .venv/.stamp

.venv/.stamp: pyproject.toml .ci/constraints.txt .ci/setup
	@.ci/setup
	@touch $@

# Tests of a sandbox that can't be had here skip and say so.
sandbox:
	@$(BIN)/evolver sandbox up || [ $$? = 3 ]

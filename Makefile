# The commands of a checkout. Each makes its environment first (deploy/setup.sh), which is quick
# when nothing has changed. make itself ends with 2 whatever went wrong; where the exact code
# matters (3: something is absent), call `sh deploy/setup.sh demo` and `.venv/bin/farside demo`.

VENV ?= .venv
BIN := $(VENV)/bin
SETUP := @VENV=$(VENV) sh deploy/setup.sh
JOBS ?= 2
BENCHES := $(filter-out demo_seeds,$(patsubst bench/%.py,%,$(wildcard bench/*.py)))

# make demo SEED=7, make demo ARGS="--hard --no-act"
demo:
	$(SETUP) demo
	@$(BIN)/farside demo $(if $(SEED),--seed $(SEED)) $(ARGS)

# make test ARGS="tests/unit/runtime -x"
test:
	$(SETUP) dev
	@$(BIN)/python -m pytest -q -n $(JOBS) $(ARGS)

# those that take minutes or need the machine for themselves
test-long:
	$(SETUP) dev
	@$(BIN)/python -m pytest -q -m "long and not system" --timeout 900 $(ARGS) || [ $$? -eq 5 ]  # 5: there are none

# over a real Kafka, which is fetched once
system:
	$(SETUP) dev
	@$(BIN)/python -m pytest -q -n 0 -m "system and not long" --timeout 300 $(ARGS)

# a Kafka on loopback until Ctrl-C: make kafka ARGS="--dir ~/kafka --port 9092"
kafka:
	$(SETUP) dev
	@$(BIN)/python -m deploy.kafka.cluster $(ARGS)

# those of the system tests that take ten minutes each
nightly:
	$(SETUP) dev
	@$(BIN)/python -m pytest -q -n 0 -m "system and long" --timeout 3600 $(ARGS)

check:
	$(SETUP) dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m pytest -q -n 0 tests/architecture $(ARGS)

# figures, never a gate
bench:
	$(SETUP) dev
	@for one in $(BENCHES); do echo; echo "== bench.$$one"; $(BIN)/python -m bench.$$one || exit; done

# twenty runs of the demo, half of them --hard (half an hour)
demo-seeds:
	$(SETUP) dev
	@$(BIN)/python -m bench.demo_seeds $(ARGS)

# the pages of docs/reference that are made from the code
docs:
	$(SETUP) dev
	@$(BIN)/python docs/reference/make.py

LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --custom-compile-command "make lock" $(ARGS) pyproject.toml

# make lock ARGS=--upgrade
lock:
	$(SETUP) dev
	@$(BIN)/$(LOCK) --extra demo --group dev -o requirements/dev.txt
	@$(BIN)/$(LOCK) --extra demo --group build -c requirements/dev.txt -o requirements/demo.txt
	@$(BIN)/$(LOCK) -c requirements/dev.txt -o requirements/base.txt

clean:
	rm -rf $(VENV) build dist out .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: demo test test-long system nightly kafka check bench demo-seeds docs lock clean

# Every habit is one word. Each target makes its own virtual environment, and makes it anew when pyproject.toml changes.
# Another interpreter: make demo PYTHON=python3.13. With an NVIDIA GPU: make test EXTRAS=cuda13,test,dev (never both runtimes).

PYTHON ?= python3
WORKERS ?= auto
SEEDS ?= 1 2 3 4 5 6 7 8 9 10
VENV   := .venv
BIN    := $(VENV)/bin
PROTO  := ox/serve/grpc/proto
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_QUIET := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-seeds test-matrix test-all lint format types bench bench-serve soak conformance parity opinfo recipes docs proto clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "make %-12s %s\n", $$1, $$2}'

demo: $(VENV)/.installed-run ## train on real digits, export a proven file, serve it, ask it over HTTP
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash scripts/demo.sh

test: $(VENV)/.installed-dev ## the tests that take seconds, in random order (under 10 minutes on 2 cores); WORKERS=2
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --maxprocesses 4 --dist worksteal $(ARGS)

test-seeds: $(VENV)/.installed-dev ## the same in several orders: SEEDS="1 2 3"; what each took, passed and failed
	$(BIN)/python scripts/run_matrix.py --seeds $(SEEDS) --workers $(WORKERS) $(if $(ARGS),-- $(ARGS))

test-matrix: $(VENV)/.installed-dev ## the same on 1, 2 and 4 workers, without a home, right after boot, as an ordinary user (for root)
	$(BIN)/python scripts/run_matrix.py --variants all $(if $(ARGS),-- $(ARGS))

test-all: $(VENV)/.installed-dev ## every test (up to an hour)
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.installed-dev ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev ## rewrite the files as `make lint` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-dev ## mypy --strict over ox, ox_cli and ox_models
	$(BIN)/mypy

bench: $(VENV)/.installed-bench ## every measurement in benchmarks/, beside its peers
	@set -e; for page in $(filter-out benchmarks/bench_serve.py benchmarks/bench_serve_change.py,$(wildcard benchmarks/bench_*.py)); do echo "== $$page"; $(BIN)/python $$page; done

bench-serve: $(VENV)/.installed-run ## ox serve beside its peers, each in an environment of its own (needs wrk and h2load)
	$(BIN)/python benchmarks/bench_serve.py --out benchmarks/results/bench_serve.md $(ARGS)

soak: $(VENV)/.installed-dev ## ten minutes of load, reloads, damage and bad requests on the server; every request accounted for
	$(BIN)/python tests/serve/soak/soak.py $(ARGS)

conformance: $(VENV)/.installed-dev ## the scoreboard of ONNX's 1,884 node cases: ox, onnx.reference, ONNX Runtime
	$(BIN)/python tests/ops/conformance.py $(ARGS)

parity: $(VENV)/.installed-parity ## the comparisons with PyTorch, in an environment that has it
	$(BIN)/python -m pytest tests/parity -m "not slow" $(ARGS)

opinfo: $(VENV)/.installed-parity ## the scoreboard of PyTorch's own sample inputs (10 minutes); ARGS="add matmul" for some operations
	$(BIN)/python tests/parity/opinfo_score.py $(ARGS)

recipes: $(VENV)/.installed-dev ## every recipe trained, exported, proven, served, and held to its promise (an hour)
	$(BIN)/python scripts/recipes.py $(ARGS)

docs: $(VENV)/.installed-dev ## run every code block of README.md and docs/
	$(BIN)/python -m pytest tests/test_docs.py $(ARGS)

proto: $(VENV)/.installed-dev ## compile the .proto files of the gRPC services
	$(BIN)/python -W ignore -m grpc_tools.protoc -I$(PROTO) --descriptor_set_out=$(PROTO)/services.desc $(sort $(notdir $(wildcard $(PROTO)/*.proto)))

clean: ## remove what the targets made, the virtual environment too
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What each environment holds. `run` is what a user has; `dev` adds the tests; `parity` and `bench` add the peers.
$(VENV)/.installed-run: EXTRAS := cpu
$(VENV)/.installed-dev: EXTRAS := cpu,mpi,text,tables,photos,grpc,otel,test,files,dev
$(VENV)/.installed-parity: EXTRAS := cpu,mpi,text,tables,photos,grpc,otel,test,dev,parity
$(VENV)/.installed-bench: EXTRAS := cpu,mpi,text,tables,photos,test,dev,bench

$(VENV)/.installed-%: pyproject.toml
	@$(PYTHON) scripts/python_version.py
	@test -x $(BIN)/python || { echo "making $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; }
	@echo 'installing ox-onnx[$(EXTRAS)] into $(VENV) (once)'
	@$(BIN)/python -m pip install -e ".[$(EXTRAS)]"
	@touch $@

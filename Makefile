# Each target makes its own virtual environment, and makes it again when pyproject.toml changes.
# Another interpreter: make demo PYTHON=python3.13. With an NVIDIA GPU: make test EXTRAS=cuda13,test,dev (never cpu and cuda together).

PYTHON ?= python3
CORES   ?= $(shell getconf _NPROCESSORS_ONLN)
WORKERS ?= $(shell expr $(CORES) + 1)
MACHINE ?= $(shell uname -m)
SEEDS ?= 1 2 3 4 5 6 7 8 9 10
VENV   := .venv
BIN    := $(VENV)/bin
CUDA   := $(VENV)/cuda-packages
CLIENTS := $(VENV)/clients
# Where there is no environment yet, `make gpu` takes the packages of PYTHON
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
PROTO  := ox/serve/protocol/grpc/proto
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_QUIET := 1
unexport PYTHONDONTWRITEBYTECODE  # some CI sets it: each of hundreds of processes would compile all of ox

.DEFAULT_GOAL := help
.PHONY: help demo tiny test test-seeds test-matrix test-all clients hostcuda gpu lint format types bench bench-serve soak wheel conformance parity opinfo recipes docs embed proto clean

help: ## print this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "make %-12s %s\n", $$1, $$2}'

demo: $(VENV)/.installed-run ## train on real digits, export a verified file, serve it, send HTTP requests
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash scripts/demo.sh

tiny: $(VENV)/.installed-dev ## train, export, load, serve and one operator's tests, in under a minute
	$(BIN)/python scripts/tiny.py

test: $(VENV)/.installed-dev ## run the fast tests in random order (about 10 minutes on 2 cores); WORKERS=3
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --maxprocesses 4 --dist worksteal $(ARGS)

test-seeds: $(VENV)/.installed-dev ## make test in several orders: SEEDS="1 2 3"; prints time, passed and failed of each
	$(BIN)/python scripts/run_matrix.py --seeds $(SEEDS) --workers $(WORKERS) $(if $(ARGS),-- $(ARGS))

test-matrix: $(VENV)/.installed-dev ## make test in other environments: busy, one core, full disk, no network, no home (scripts/run_matrix.py lists them)
	$(BIN)/python scripts/run_matrix.py --variants all $(if $(ARGS),-- $(ARGS))

# In processes beside pytest's own: if one crashes, that is a failed test with a name, and the others run.
test-all: $(VENV)/.installed-dev $(CUDA)/.installed $(CLIENTS)/.installed ## run all tests (up to an hour)
	$(BIN)/python -m pytest -n $(CORES) --maxprocesses 4 --dist worksteal $(ARGS)

clients: $(VENV)/.installed-dev $(CLIENTS)/.installed ## run the server's tests with real clients: OpenAI's packages, LangChain, LiteLLM ...
	$(BIN)/python -m pytest tests/serve/clients $(ARGS)

hostcuda: $(VENV)/.installed-dev $(CUDA)/.installed ## run the tests marked gpu with the real CuPy, its kernels on this CPU; ARGS="tests/amp" runs some
ifdef ARGS
	PYTHONPATH=$(CURDIR)/tests/cuda:$(CURDIR)/$(CUDA) $(BIN)/python -m pytest -p on_host_cuda -p no:randomly -m gpu $(ARGS)
else
	OX_ARCHITECTURES="sm_80 sm_90 sm_100" $(BIN)/python -m pytest tests/cuda/test_host_cuda.py
endif

gpu: ## run all that needs an NVIDIA GPU, in ten minutes: tests, sanitizer, benchmarks, profile; docs/gpu.md says how
	@$(GPU_PYTHON) scripts/python_version.py
	$(GPU_PYTHON) scripts/gpu.py $(if $(STAND_IN),--stand-in $(STAND_IN)) $(if $(GPU_WHEELS),--wheels $(GPU_WHEELS)) $(ARGS)

lint: $(VENV)/.installed-dev ## check code with ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev ## format the code and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.installed-dev ## check types with mypy --strict in ox, ox_cli and ox_models
	$(BIN)/mypy

# performance_page.py runs bench_eager.py and bench_first_step.py; it comes last, because a regression ends it with an error.
bench: $(VENV)/.installed-bench ## run the benchmarks, compared with other libraries; write docs/performance.md
	@set -e; for page in $(filter-out $(addprefix benchmarks/bench_,serve.py serve_change.py eager.py first_step.py gpu.py),$(wildcard benchmarks/bench_*.py)); do echo "== $$page"; $(BIN)/python $$page; done
	$(BIN)/python benchmarks/performance_page.py --check

bench-serve: $(VENV)/.installed-run ## benchmark ox serve and other servers, each in its own environment (needs wrk and h2load)
	$(BIN)/python benchmarks/bench_serve.py --out benchmarks/results/bench_serve.md $(ARGS)

soak: $(VENV)/.installed-dev ## test the server for ten minutes with load, reloads, damaged files, texts and bad requests; counts every request
	$(BIN)/python tests/serve/soak/soak.py $(ARGS)

wheel: $(VENV)/.installed-run ## build a wheel with compiled kernels into dist (3 minutes); MACHINE=aarch64 for 64-bit Arm
	$(BIN)/python -m pip install hatchling ziglang
	OX_WHEEL_MACHINE=$(MACHINE) $(BIN)/python -m pip wheel --no-deps --no-build-isolation --wheel-dir dist .
	@ls -l dist/*.whl

conformance: $(VENV)/.installed-dev ## run ONNX's 1,884 node test cases with ox, onnx.reference and ONNX Runtime
	$(BIN)/python tests/ops/conformance.py $(ARGS)

parity: $(VENV)/.installed-parity ## run the comparisons with PyTorch, in an environment that has it
	$(BIN)/python -m pytest tests/parity -m "not slow" -n $(CORES) --maxprocesses 4 --dist worksteal $(ARGS)

opinfo: $(VENV)/.installed-parity ## run PyTorch's own sample inputs (10 minutes); ARGS="add matmul" selects operations
	$(BIN)/python tests/parity/opinfo_score.py $(ARGS)

recipes: $(VENV)/.installed-dev ## train, export and serve every recipe, and check its result (an hour)
	$(BIN)/python scripts/recipes.py $(ARGS)

docs: $(VENV)/.installed-dev ## run every code block of README.md and docs/
	$(BIN)/python -m pytest tests/test_docs.py $(ARGS)

embed: $(VENV)/.installed-dev ## run fifteen exported models in eleven runtimes, each in an environment of its own in .embed; write docs/runtimes.md
	$(BIN)/python tests/embed/embed.py $(ARGS)

proto: $(VENV)/.installed-dev ## compile the .proto files of the gRPC services
	$(BIN)/python -W ignore -m grpc_tools.protoc -I$(PROTO) --descriptor_set_out=$(PROTO)/services.desc $(sort $(notdir $(wildcard $(PROTO)/*.proto)))

clean: ## remove all files that the targets made, with the virtual environment
	rm -rf $(VENV) .embed gpu-report build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pip compiles nothing: of 17,000 files of Python, tests and programs import a quarter, which Python compiles then.
# The extras of each environment: `run` is that of a user; `dev` adds the tests; `parity` and `bench` add PyTorch and others.
$(VENV)/.installed-run: EXTRAS := cpu
$(VENV)/.installed-dev: EXTRAS := cpu,mpi,text,tables,photos,grpc,otel,ray,sweep,test,files,dev
$(VENV)/.installed-parity: EXTRAS := cpu,mpi,text,tables,photos,grpc,otel,test,dev,parity
$(VENV)/.installed-bench: EXTRAS := cpu,mpi,text,tables,photos,ray,test,dev,bench

$(VENV)/.installed-%: pyproject.toml
	@$(PYTHON) scripts/python_version.py
	@test -x $(BIN)/python || { echo "making $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; }
	@echo 'installing ox-onnx[$(EXTRAS)] into $(VENV) (once)'
	@$(BIN)/python -m pip install --no-compile -e ".[$(EXTRAS)]"
	@touch $@

# CuPy and what it needs to compile, without CUDA's libraries (a gigabyte), in a folder that only tests/cuda looks into.
$(CUDA)/.installed: $(VENV)/.installed-dev
	@echo 'installing CuPy and what compiles its kernels into $(CUDA) (once)'
	@$(BIN)/python -m pip install --no-compile --no-deps --target $(CUDA) "cupy-cuda13x==14.2.*" cuda-pathfinder nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cuda-crt \
		&& touch $@ || echo 'they could not be installed: the tests in tests/cuda that need them are skipped'

# Clients of the server in an environment of their own, because they want other versions of each other's packages than `dev` has.
# packages.txt names all that they import, so nothing is resolved and nothing else is loaded.
$(CLIENTS)/.installed: tests/serve/clients/packages.txt tests/serve/clients/package.json | $(VENV)/.installed-dev
	@echo 'installing clients of the server into $(CLIENTS) (once)'
	@test -x $(CLIENTS)/bin/python || $(PYTHON) -m venv $(CLIENTS)
	@cp tests/serve/clients/package.json $(CLIENTS) && npm install --prefix $(CLIENTS) --no-audit --no-fund --loglevel error >/dev/null \
		|| echo 'those of Node.js could not be installed: their tests are skipped'
	@$(CLIENTS)/bin/python -m pip install --no-compile --no-deps -r tests/serve/clients/packages.txt \
		&& touch $@ || echo 'they could not be installed: their tests are skipped'

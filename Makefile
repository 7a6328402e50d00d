# Every target that needs the environment makes it first. On a fresh machine `make demo` and `make test` are all there is to do.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
TRITON ?= 3.8.0
# Extra words for pip, for instance an index that serves torch's CPU builds.
PIP_ARGS ?=
# Tests run in this many processes; each computes on one thread.
JOBS ?= 2
REV1 ?= HEAD~1
REV2 ?= HEAD
BENCH_ARGS ?=
# What `make test-matrix` runs: these versions of Triton, with this target, on $(PYTHON).
MATRIX ?= 3.6.0 3.8.0 3.9.0
MATRIX_TARGET ?= test
# A checkout of Triton, for triton-tests, the engines to run them in, and further words for that (see docs/triton-tests.md).
ENGINE ?= ir
TRITON_SRC ?=
TRITON_TESTS_ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS)
RUN := OMP_NUM_THREADS=1 $(BIN)/python
# The one place where the version under test may differ from the pin.
CONSTRAINTS := $(VENV)/constraints.txt

.PHONY: help install demo test test-fast test-python test-both test-libraries libraries-table test-matrix triton-tests lint types format bench
.PHONY: bench-compare bench-sanitizer bench-step-through clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

install: $(STAMP)  ## make the environment in .venv

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	sed 's/^triton==.*/triton==$(TRITON)/' constraints.txt > $(CONSTRAINTS)
# torch comes alone and pinned, first: asked for together with the rest, an unpinned torch may bring gigabytes of CUDA.
	$(PIP) -c $(CONSTRAINTS) "$$(grep '^torch==' constraints.txt)"
# A CUDA build of torch demands a Triton of its own: then that one is used. The CPU build demands none.
	@if $(BIN)/python -c 'from importlib.metadata import requires; import sys; sys.exit(not any(r.startswith("triton") for r in requires("torch")))'; then \
	  echo "This torch brings its own Triton, which is used $(if $(FORCE_TRITON),only until $(TRITON) replaces it,in place of $(TRITON) (with torch's CPU build, the pinned one is))."; \
	  sed -i '/^triton==/d' $(CONSTRAINTS); \
	fi
	$(PIP) -c $(CONSTRAINTS) -e '.[dev]'
# Against what such a torch demands, for which pip's warning stands; nothing that the tests use of it minds.
ifdef FORCE_TRITON
	$(PIP) --no-deps triton==$(TRITON)
endif
	touch $@

demo: $(STAMP)  ## run a kernel with a planted fault under the sanitizer and print the report
	$(RUN) examples/demo.py

test: $(STAMP)  ## the test suite
	$(RUN) -m pytest -n $(JOBS) -m "not libraries"

test-fast: $(STAMP)  ## the test suite without its slow tests
	$(RUN) -m pytest -n $(JOBS) -m "not libraries and not slow"

# Where the two engines meet the same expectations: tests that look at what kernels compute and at what clients find in them.
ENGINE_TESTS := tests/language tests/known_faults tests/numbers tests/arguments tests/kernels tests/engines tests/test_cases.py \
  tests/test_shared_cases.py tests/test_clients_together.py tests/test_threads.py tests/unit/test_coverage_client.py \
  tests/unit/test_numerics_client.py tests/unit/test_undefined_lanes.py \
  tests/unit/test_named_programs.py

# These name both engines themselves.
NAMING := $(addprefix tests/engines/,test_comparing.py test_comparison.py test_instruments.py)

test-python: $(STAMP)  ## the tests of kernels again, in sessions with engine="python"
	$(RUN) -m pytest -n $(JOBS) -m "not libraries and not slow" --engine python $(ENGINE_TESTS) $(NAMING:%=--ignore %)

test-both: $(STAMP)  ## every launch of the tests in both engines, whose memory and accesses are compared (half an hour)
	$(RUN) -m pytest -n $(JOBS) -m "not libraries and not slow" --engine both $(BOTH_ARGS) $(BOTH_TESTS) $(NAMING:%=--ignore %)

BOTH_TESTS ?= tests
# --instruments: and what instruments tell
BOTH_ARGS ?=

# Each library in an environment of its own, without the dependencies it declares (they would bring another torch or Triton).
LIBRARIES ?= liger fla flag_gems
packages-liger := liger-kernel
needs-liger := packaging
packages-fla := flash-linear-attention fla-core
needs-fla := einops transformers
packages-flag_gems := flag-gems
needs-flag_gems := packaging pyyaml sqlalchemy

.venv-library-%/.library: constraints.txt pyproject.toml
	$(MAKE) install VENV=.venv-library-$*
	.venv-library-$*/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PIP_ARGS) $(needs-$*)
	.venv-library-$*/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PIP_ARGS) --no-deps $(packages-$*)
	touch $@

test-libraries: $(LIBRARIES:%=.venv-library-%/.library)  ## operations of Liger-Kernel, flash-linear-attention, FlagGems, each in its own environment
	set -e; for library in $(LIBRARIES); do \
	  OMP_NUM_THREADS=1 .venv-library-$$library/bin/python -m pytest -n $(JOBS) -m libraries tests/libraries; \
	done

libraries-table: $(LIBRARIES:%=.venv-library-%/.library)  ## write docs/libraries.md: the same operations here and under TRITON_INTERPRET=1
	set -e; for library in $(LIBRARIES); do \
	  .venv-library-$$library/bin/python -m tests.libraries.table --library $$library; \
	done

test-matrix:  ## the test suite on each supported Triton, each in an environment of its own; PYTHON=python3.12 for another Python
	@python=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); failed=; \
	for version in $(MATRIX); do \
	  echo "== Triton $$version, Python $$python"; \
	  $(MAKE) $(MATRIX_TARGET) VENV=.venv-triton-$$version-py$$python TRITON=$$version FORCE_TRITON=1 || failed="$$failed $$version"; \
	done; \
	test -z "$$failed" || { echo "failed on Python $$python with Triton$$failed"; exit 1; }
triton-tests: $(STAMP)  ## Triton's own language tests beside TRITON_INTERPRET=1: make triton-tests TRITON_SRC=path-of-a-checkout
	@test -n "$(TRITON_SRC)" || { echo "TRITON_SRC must name a checkout of Triton of the installed version"; exit 2; }
	$(RUN) -m tests.triton_suite.run --source "$(TRITON_SRC)" --jobs $(JOBS) --engine "$(ENGINE)" $(TRITON_TESTS_ARGS)

lint: $(STAMP)  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check tritontrace

types: $(STAMP)  ## mypy, strict
	$(BIN)/mypy

format: $(STAMP)  ## let ruff lay out the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format tritontrace

bench: $(STAMP)  ## ours against TRITON_INTERPRET=1; BENCH_ARGS=--quick for a short run
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

# triton-viz 3.0 uses parts of Triton's interpreter that 3.8 no longer has.
VIZ_TRITON ?= 3.6.0
.venv-triton-viz/.installed: constraints.txt
	test -x .venv-triton-viz/bin/python || $(PYTHON) -m venv .venv-triton-viz
	.venv-triton-viz/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) "$$(grep '^torch==' constraints.txt)"
	.venv-triton-viz/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) triton==$(VIZ_TRITON) triton-viz==3.0 numpy
	touch $@

bench-sanitizer: $(STAMP) .venv-triton-viz/.installed  ## the sanitizer against triton-viz's, and what clients cost together; writes docs/benchmarks.md
	$(RUN) -m benchmarks.sanitizer --viz .venv-triton-viz/bin/python $(BENCH_ARGS)

bench-step-through: $(STAMP)  ## engine="python" beside TRITON_INTERPRET=1, in turns; writes docs/benchmarks.md
	$(RUN) -m benchmarks.step_through --write $(BENCH_ARGS)

bench-compare: $(STAMP)  ## two commits in alternating rounds: make bench-compare REV1=main REV2=HEAD
	$(BIN)/python -m benchmarks.compare $(REV1) $(REV2) $(BENCH_ARGS)

clean:  ## remove caches and the environments made here
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# `make demo` and `make test` set up what they need; `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
PEERS := .venv-peers
FABRIC := .venv-fabric
STAMPS := $(VENV)/.stamps
RUST_SOURCES := $(shell find crates -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock
PYTHON_SOURCES := $(shell find python/isometry -name '*.py*' -not -path '*/__pycache__/*')

# What bench, count, GPU, fuzz and mutant runs take.
GROUP ?= small
FILTER ?=
RUNS ?=
BUDGET ?=
OVER ?=
SEEDS ?= 1000
FIRST_SEED ?= 0
MUTANT ?=
WRITE ?=
QUICK ?=
CARRY ?=

# The crates that properties are stated of.
PROPERTIES := layout planner engine kernels files cluster

.PHONY: help test demo paper bench bench-group bench-kernels bench-fabric bench-kv counts arm gpu lint fuzz-sim properties miri mutants package clean

help: ## Say what there is to make
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' Makefile | expand -t 14

test: ## Everything: Rust, Python, documentation examples, lints, house rules
	@scripts/test.sh

demo: package $(STAMPS)/demo ## Convert 512 MiB of real pixels on disk, verified
	@$(VENV)/bin/python scripts/demo.py

paper: $(STAMPS)/paper ## Write the paper's evaluation, simulated, to bench/out/paper
	@cargo iso -q
	@$(VENV)/bin/python scripts/paper $(if $(QUICK),--quick)

bench: bench-$(or $(filter kernels fabric kv,$(GROUP)),group) ## Time GROUP's cases that match FILTER beside their references

bench-group:
	@cargo iso -q
	@target/release/iso bench $(GROUP) --filter '$(value FILTER)' $(if $(RUNS),--runs $(RUNS)) \
	    $(if $(BUDGET),--budget $(BUDGET))
	@if [ -f scripts/bench_$(GROUP).py ]; then \
	    $(MAKE) --no-print-directory package && \
	    $(VENV)/bin/python scripts/bench_$(GROUP).py '$(value FILTER)'; \
	fi

# The peers that only Python has are in one process with ours, so that all share the buffers.
bench-kernels: $(PEERS)/.stamps/peers
	@cargo build -q --release -p isometry-peers
	@install -m 755 -D target/release/libisometry_peers.so target/peers/isometry_peers.abi3.so
	@PYTHONPATH=target/peers $(PEERS)/bin/python scripts/bench_kernels.py --filter '$(value FILTER)' \
	    $(if $(RUNS),--runs $(RUNS)) $(if $(BUDGET),--budget $(BUDGET))

# Ranks as threads first, then as processes beside their peers: one report.
bench-fabric: $(FABRIC)/.stamps/peers
	@cargo iso -q -p isometry-bench
	@rm -f target/ranks/fabric.json
	@target/release/iso bench fabric --filter '$(value FILTER)' --out target/ranks \
	    $(if $(RUNS),--runs $(RUNS)) $(if $(BUDGET),--budget $(BUDGET))
	@$(FABRIC)/bin/python scripts/bench_fabric.py --before target/ranks/fabric.json \
	    --filter '$(value FILTER)' $(if $(RUNS),--runs $(RUNS)) $(if $(BUDGET),--budget $(BUDGET)) \
	    $(if $(OVER),--over $(OVER))

# The package is what the peers that don't convert are helped with.
bench-kv: $(FABRIC)/.stamps/peers package
	@cargo build -q --release -p isometry-bench
	@$(FABRIC)/bin/python scripts/bench_kv.py --filter '$(value FILTER)' \
	    $(if $(RUNS),--runs $(RUNS)) $(if $(BUDGET),--budget $(BUDGET)) $(if $(OVER),--over $(OVER))

counts: ## Compare what the kernels execute with their limits; WRITE=1 writes these anew
	@scripts/counts.sh $(if $(WRITE),--write)

arm: ## Test the kernels on an AArch64 that qemu emulates
	@scripts/arm.sh

gpu: ## Test and time CUDA's devices on this machine's GPU; CARRY=DIR makes a folder that does so elsewhere
	@FILTER='$(value FILTER)' RUNS='$(RUNS)' BUDGET='$(BUDGET)' scripts/gpu.sh $(if $(CARRY),carry '$(value CARRY)')

lint: ## Formatting, clippy, documentation
	@scripts/lint.sh

fuzz-sim: ## Play SEEDS simulations from FIRST_SEED on; nightly, others than the 10,000 of `make test`
	@cargo iso -q
	@target/release/iso sim fuzz --seeds $(SEEDS) --first-seed $(FIRST_SEED)

properties: ## Try the properties on SEEDS other sets of cases from FIRST_SEED on
	@for seed in $$(seq $(FIRST_SEED) $$(($(FIRST_SEED) + $(SEEDS) - 1))); do \
	    PROPTEST_RNG_SEED=$$seed cargo test -q --no-fail-fast $(addprefix -p isometry-,$(PROPERTIES)) \
	        >target/properties.log 2>&1 || { cat target/properties.log; echo "PROPTEST_RNG_SEED=$$seed fails"; exit 1; }; \
	done

miri: ## Run the kernels' unsafe code in Miri, which a nightly toolchain needs to have
	@cargo +nightly miri --version >/dev/null 2>&1 || { \
	    echo "Miri is not installed: rustup toolchain install nightly --component miri,rust-src"; exit 1; }
	@PROPTEST_RNG_SEED=$(FIRST_SEED) MIRIFLAGS=-Zmiri-disable-isolation \
	    cargo +nightly miri test -p isometry-kernels

mutants: ## Check that the simulator kills the patches in mutants/ whose names have MUTANT
	@scripts/mutants.sh $(MUTANT)

package: $(STAMPS)/package ## Install `iso` and the Python package into .venv

clean: ## Remove what was built
	cargo clean
	rm -rf $(VENV) $(PEERS) $(FABRIC) bench/out

$(VENV)/bin/python:
	@scripts/venv.sh $(VENV)

$(STAMPS)/tools: python/requirements.txt | $(VENV)/bin/python
	@mkdir -p $(STAMPS)
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check -r python/requirements.txt
	@touch $@

$(PEERS)/bin/python:
	@scripts/venv.sh $(PEERS)

$(PEERS)/.stamps/peers: python/requirements-peers.txt | $(PEERS)/bin/python
	@mkdir -p $(PEERS)/.stamps
	$(PEERS)/bin/python -m pip install -q --disable-pip-version-check -r python/requirements-peers.txt
	@touch $@

$(FABRIC)/.stamps/peers: python/requirements-fabric.txt scripts/fabric_peers.sh
	@scripts/fabric_peers.sh $(FABRIC)
	@mkdir -p $(FABRIC)/.stamps
	@touch $@

$(STAMPS)/demo: python/requirements-demo.txt $(STAMPS)/tools
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check -r python/requirements-demo.txt
	@touch $@

$(STAMPS)/paper: python/requirements-paper.txt $(STAMPS)/tools
	$(VENV)/bin/python -m pip install -q --disable-pip-version-check -r python/requirements-paper.txt
	@touch $@

$(STAMPS)/package: $(STAMPS)/tools pyproject.toml $(RUST_SOURCES) $(PYTHON_SOURCES)
	cargo iso -q
	install -m 755 target/release/iso $(VENV)/bin/iso
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/python -m pip install -q \
	    --disable-pip-version-check --no-build-isolation --no-deps .
	@touch $@

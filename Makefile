# `make test` is everything; each of its parts can be called alone. `make help` lists them.
# The parts run one after another also under -j: they share two cores and the build folder.
.NOTPARALLEL:
.DEFAULT_GOAL := help
SHELL := /bin/bash

BIN := $(CURDIR)/.venv/bin
TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
PYTHON := $(BIN)/python
NEXTEST := $(BIN)/cargo-nextest nextest run --workspace --locked
PYTEST := $(BIN)/pytest -q -p no:cacheprovider
PART := scripts/run_part

# Minutes of each part on two cores.
LINT := 5
BUILD := 12
UNIT := 3
WIRE := 3
CHECK := 3
SIM := 4
FAULTS := 4
FUZZ := 3

# Which Rust tests belong to which part: fault tests are those of the store from outside and of its failing disk, wire
# tests are those that open sockets, unit tests all the others.
IS_FAULTS := package(hermes-mobile-powercut) + (package(hermes-mobile-store) & kind(test))
IS_CHECK := package(hermes-mobile) & binary(=faults)
IS_WIRE := kind(test) & (package(hermes-mobile-wire) + package(hermes-mobile-gateway) + package(hermes-mobile) + package(hermes-mobile-client)) - ($(IS_CHECK))
SEEDS := 20000

PARTS := lint build unit wire check sim faults fuzz
TEST_PARTS := $(PARTS:%=test-%)

.PHONY: help run test lint fuzz soak bench bench-size test-setup format $(TEST_PARTS)

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

run: ## start the gateway with the demo agent
	cargo run --release --locked -- serve

test: ## everything: installs what is missing (as root or with CI=true), then all parts; ends with "N passed, N failed"
	@rm -rf target/report
	@$(MAKE) --no-print-directory test-setup
	@$(MAKE) --no-print-directory --keep-going $(TEST_PARTS) || true
	@scripts/report setup $(PARTS)

test-setup: ## what the tests need from outside: Debian packages, Python and Node tools, all pinned
	@$(PART) --step setup 3 -- scripts/setup

test-lint: ## formatting, clippy, licences and bans, Python checks, docs
	@code=0; \
	$(PART) lint.fmt $(LINT) -- cargo fmt --all --check || code=1; \
	$(PART) lint.fmt-fuzz $(LINT) -- cargo fmt --manifest-path fuzz/Cargo.toml --check || code=1; \
	$(PART) lint.clippy $(LINT) -- cargo clippy --workspace --all-targets --locked -- -D warnings || code=1; \
	$(PART) lint.deny $(LINT) -- scripts/deny || code=1; \
	$(PART) lint.ruff $(LINT) -- $(BIN)/ruff check . || code=1; \
	$(PART) lint.ruff-format $(LINT) -- $(BIN)/ruff format --check . || code=1; \
	$(PART) lint.mypy $(LINT) -- $(BIN)/mypy || code=1; \
	$(PART) lint.tree $(LINT) -- scripts/check_tree || code=1; \
	$(PART) lint.rustdoc $(LINT) -- env RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked || code=1; \
	exit $$code

lint: test-setup test-lint ## the same with its tools installed first

test-build: ## the workspace and all its tests, the release binary, the simulation, the fuzz targets
	@code=0; \
	$(PART) --step build.workspace $(BUILD) -- cargo build --workspace --all-targets --locked || code=1; \
	$(PART) --step build.release $(BUILD) -- cargo build --release --locked || code=1; \
	$(PART) --step build.sim $(BUILD) -- cargo build --release --locked -p hermes-mobile-sim || code=1; \
	$(PART) --step build.fuzz $(BUILD) -- scripts/fuzz build || code=1; \
	exit $$code

test-unit: ## state machines, codecs and their instruction budget, store conformance, architecture, doc tests, the runner's own tests
	@code=0; \
	$(PART) --tests unit.nextest $(UNIT) -- $(NEXTEST) -E 'not ($(IS_FAULTS)) - ($(IS_WIRE)) - ($(IS_CHECK))' || code=1; \
	$(PART) --tests unit.codec $(UNIT) -- scripts/codec_budget $(TARGET_DIR)/debug/codec || code=1; \
	$(PART) unit.doctest $(UNIT) -- cargo test --doc --workspace --locked --quiet || code=1; \
	$(PART) --tests unit.scripts $(UNIT) -- $(PYTEST) tests/test_scripts.py tests/test_field_reports.py || code=1; \
	exit $$code

test-wire: ## sockets: our own tests, WebSocket conformance, foreign clients
	@code=0; \
	$(PART) --tests wire.nextest $(WIRE) -- $(NEXTEST) -E '$(IS_WIRE)' || code=1; \
	$(PART) --tests wire.conformance $(WIRE) -- tests/ws_conformance.sh $(TARGET_DIR)/debug/ws-echo $(BIN)/kosoku || code=1; \
	$(PART) --tests wire.clients $(WIRE) -- $(PYTEST) -n 4 tests/test_checklist_wscat.py tests/test_websockets.py tests/test_start.py tests/test_fixture.py tests/test_metrics.py tests/test_bench.py || code=1; \
	exit $$code

test-check: ## the acceptance checklist against the gateway, and against faults that are planted in it
	@code=0; \
	$(PART) --tests check.spawn $(CHECK) -- $(TARGET_DIR)/debug/hermes-mobile check --spawn $(TARGET_DIR)/debug/hermes-mobile --lang en || code=1; \
	$(PART) --tests check.faults $(CHECK) -- $(NEXTEST) -E '$(IS_CHECK)' || code=1; \
	exit $$code

test-sim: ## the simulation in virtual time; planted mistakes must be found
	@code=0; \
	$(PART) --tests sim.seeds $(SIM) -- cargo run --release --locked -p hermes-mobile-sim -- --seeds $(SEEDS) || code=1; \
	$(PART) --tests sim.mutants $(SIM) -- cargo run --release --locked -p hermes-mobile-sim -- --seeds $(SEEDS) --mutants || code=1; \
	exit $$code

test-faults: ## power cuts, full disks, kill -9 under load
	@code=0; \
	$(PART) --tests faults.nextest $(FAULTS) -- $(NEXTEST) -E '$(IS_FAULTS)' || code=1; \
	$(PART) --tests faults.kill $(FAULTS) -- $(PYTEST) tests/test_kill.py || code=1; \
	exit $$code

test-fuzz: ## every fuzz target for 15 seconds
	@$(PART) --tests fuzz $(FUZZ) -- scripts/fuzz 15

fuzz: test-setup test-fuzz ## the same with its tools installed first

soak: ## the long runs: a million seeds, 200 kills, fuzz targets 10 minutes each
	@rm -rf target/report
	@$(MAKE) --no-print-directory test-setup
	@code=0; \
	$(PART) --step build $(BUILD) -- cargo build --workspace --all-targets --locked || code=1; \
	$(PART) --tests soak.sim 60 -- cargo run --release --locked -p hermes-mobile-sim -- --seeds 1000000 || code=1; \
	$(PART) --tests soak.kill 60 -- env HERMES_KILLS=200 $(PYTEST) --timeout 3600 tests/test_kill.py || code=1; \
	$(PART) --tests soak.fuzz 60 -- scripts/fuzz 600 || code=1; \
	scripts/report setup build soak || code=1; \
	exit $$code

bench: ## load on the gateway beside two bare servers, about 25 minutes; QUICK=1: a minute; ARGS="--only chat" and so on
	cargo build --release --locked -p hermes-mobile -p hermes-mobile-bench -p hermes-mobile-reference
	cargo build --release --locked -p hermes-mobile-testkit --bin fill-store
	$(TARGET_DIR)/release/bench --python $(PYTHON) $(if $(QUICK),--quick) $(ARGS)

bench-size: ## measures binary size, start time with 0 and 1,000,000 stored rows, idle memory
	cargo build --release --locked -p hermes-mobile
	cargo build --release --locked -p hermes-mobile-testkit --bin fill-store
	$(PYTHON) tests/bench_size.py

format: ## formats Rust and Python files
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml
	$(BIN)/ruff format .

# The commands for users and developers. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
PYTHON ?= /usr/bin/python3
MMB := target/release/mmb
# The program that the tests run: with checks of overflows and assertions.
TESTED := target/debug/mmb
# With BUILT=1, what a target tests is there already: scripts/test has built it.
BUILT :=
# Runs the tests of four files at once: most tests spend most of their time waiting.
SPREAD := -n 4 --dist loadfile
VPP_PREFIX ?= /usr
OUT ?= docs/evaluation

.PHONY: help setup build build-tested build-tests vpp install uninstall deb release demo check test test-rust test-doc test-replay test-live test-measured test-evaluation test-package test-vpp test-release test-long vpp-test vpp-bench
.PHONY: lint bench evaluate evaluate-quick evaluate-list evaluation-tools fuzz instructions tsan audit fmt doc clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

setup: ## install the Debian packages that building, the demo and the tests use
	@scripts/setup

build: ## build the release binary, target/release/mmb; installs the packages that building needs
	@scripts/setup build
	$(CARGO) build --release --locked -p mmb

# With an example, cargo takes the features that the Rust tests need, too: each crate is built once.
build-tested: ## build the program that the tests run, target/debug/mmb
	@scripts/setup build
	$(CARGO) build --workspace --locked --bin mmb --example memif_load

build-tests: setup ## build the Rust tests
	$(CARGO) test --workspace --locked --no-run

vpp: ## build the plugin of VPP, target/release/mmb_plugin.so; needs VPP's headers and libraries (VPP_PREFIX=/usr)
	@scripts/setup vpp
	VPP_PREFIX="$(VPP_PREFIX)" C_INCLUDE_PATH="$(VPP_PREFIX)/include" $(CARGO) build --release --locked -p mmb-vpp --target-dir target/vpp
	mkdir -p $(dir $(MMB))
	cp target/vpp/release/libmmb_plugin.so $(dir $(MMB))mmb_plugin.so

install: build ## install the binary, man pages, completions, the systemd units and sample files (PREFIX=/usr/local, DESTDIR=)
	@scripts/install add $(MMB) "$(or $(PREFIX),/usr/local)" "$(DESTDIR)"

uninstall: ## remove what install installed (PREFIX=/usr/local, DESTDIR=); the configuration stays
	@scripts/install remove "$(or $(PREFIX),/usr/local)" "$(DESTDIR)"

deb: build ## make the Debian package, target/debian/mmb_VERSION_ARCH.deb
	@scripts/deb $(MMB)

release: ## make the artifacts of a release in target/release-artifacts: package, bill of materials, checksums; refuses an unfinished one
	@scripts/release check
	@$(MAKE) --no-print-directory build
	@scripts/release make $(MMB)

demo: setup build ## run mmb between two namespaces on live traffic and show its effect; ends by itself
	@scripts/demo $(MMB)

check: ## after each change: formatting, structure, clippy, Rust tests, captures
	@scripts/setup
	@scripts/test check
	@echo "make check: passed. 'make test' also tests live traffic, documents and packages"

test: ## before a commit: 'make check', and tests of live traffic, documents, packages and VPP; needs root
	@scripts/setup
	@scripts/test test
	@echo "make test: passed. 'make test-long' has the soak, fuzzing and a small evaluation"

lint: setup ## check formatting, the structure of the code, unused dependencies, clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@scripts/check-portable aarch64-unknown-linux-gnu
	$(CARGO) run --quiet --locked -p xtask

test-doc: setup ## build the documentation of all crates, without warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --document-private-items

test-rust: setup ## run unit, property and golden tests and the fuzz corpora; no root, no DPDK device
	$(CARGO) test --workspace --locked

test-replay: setup $(if $(BUILT),,build-tested) ## check mmb replay and mmb import with scapy
	MMB=$(TESTED) $(PYTHON) -m pytest -q -rs -p no:cacheprovider $(SPREAD) tests/replay tests/import

test-live: setup $(if $(BUILT),,build-tested) ## test live ports between network namespaces, with real programs; needs root
	MMB=$(TESTED) $(PYTHON) -m pytest -q -rs -p no:cacheprovider $(SPREAD) -m "not alone" tests/live

test-measured: setup $(if $(BUILT),,build-tested) ## those live tests that measure rates, times or memory, which run one at a time; needs root
	MMB=$(TESTED) $(PYTHON) -m pytest -q -rs -p no:cacheprovider -m alone tests/live

test-evaluation: setup $(if $(BUILT),,build-tested) ## test the parts of the evaluation, and a tiny run of it (which needs root)
	MMB=$(TESTED) $(PYTHON) -m pytest -q -rs -p no:cacheprovider $(SPREAD) tests/evaluation

test-package: setup $(if $(BUILT),,build-tested) ## make a Debian package, install it in a clean Debian, run it there, remove it; needs root
	MMB=$(TESTED) $(PYTHON) -m pytest -q -rs -p no:cacheprovider tests/package

test-vpp: setup $(if $(BUILT),,build-tested) ## test the plugin in a real VPP, if VPP is installed and the plugin is built; needs root
	MMB=$(TESTED) VPP_PREFIX="$(VPP_PREFIX)" $(PYTHON) -m pytest -q -rs -p no:cacheprovider tests/vpp

test-long: setup build ## what 'make test' leaves out: memory over 20,000 changes of each kind (SOAK_CHANGES=N), 'make test-release', fuzz minutes, a small evaluation; two hours, needs root
	MMB=$(MMB) $(PYTHON) -m pytest -q -rs -s -p no:cacheprovider tests/long
	@$(MAKE) --no-print-directory test-release
	@scripts/fuzz $(or $(SECONDS_EACH),60)
	@$(MAKE) --no-print-directory evaluate-quick OUT=target/evaluation

test-release: setup build ## repeat the tests in Python with the release program: 'make test' runs that of the dev profile; needs root
	@for part in test-replay test-live test-measured test-package; do \
		$(MAKE) --no-print-directory $$part BUILT=1 TESTED=$(MMB); \
	done

vpp-test: vpp test-vpp ## build the plugin and test it in the VPP of VPP_PREFIX=/usr

bench: setup build ## measure the table of docs/bench.md: cycles per packet beside baselines, memory, changes under load, streams (QUICK=1)
	@scripts/bench $(MMB) $(if $(QUICK),--quick)
	@echo
	@$(MMB) bench --workload streams $(if $(QUICK),--seconds 0.3)

EVALUATION_OPTIONS = $(if $(QUICK),--quick) $(if $(ONLY),--only "$(ONLY)") $(if $(FRESH),--fresh) $(if $(MINUTES),--minutes "$(MINUTES)") --out "$(OUT)"

evaluate: evaluation-tools ## compare mmb with the kernel's filters, XDP and HAProxy; goes on where it was stopped (ONLY=nat,streams FRESH=1 OUT=DIR); 90 minutes, needs root
	MMB="$(MMB)" $(PYTHON) -m evaluation run $(EVALUATION_OPTIONS)

evaluate-quick: evaluation-tools ## the same in twelve minutes: fewer sizes, shorter runs
	MMB="$(MMB)" $(PYTHON) -m evaluation run --quick $(EVALUATION_OPTIONS)

evaluate-list: ## list the experiments of 'make evaluate' with their points and estimated minutes (QUICK=1: of 'make evaluate-quick')
	@MMB="$(MMB)" $(PYTHON) -m evaluation list $(EVALUATION_OPTIONS)

vpp-bench: build vpp ## compare the cycles of mmb in VPP with mmb bench, the ACL plugin and NAT44-ED in one run; RUNS=5, INTO=FILE for the table
	MMB=$(MMB) VPP_PREFIX="$(VPP_PREFIX)" $(PYTHON) -m evaluation.plugin $(if $(RUNS),--runs $(RUNS)) $(if $(INTO),--into $(INTO))

evaluation-tools: build
	@scripts/setup evaluation
	$(CARGO) build --release --locked -p mmb-io --example memif_load

fuzz: setup ## run each fuzz target for a minute (SECONDS_EACH=60); needs a nightly toolchain
	@scripts/fuzz $(or $(SECONDS_EACH),60)

instructions: setup build ## count instructions for a packet with valgrind, beside targets; two minutes, no noise
	@scripts/instructions $(MMB)

tsan: setup ## run the tests with several threads under ThreadSanitizer; needs a nightly toolchain with its sources
	@scripts/tsan

audit: ## check licences, sources and known vulnerabilities of the dependencies
	@scripts/audit

fmt: ## format the code
	$(CARGO) fmt --all

doc: ## regenerate the documents that derive from code: the language reference, man pages
	@scripts/doc

clean: ## remove build results
	$(CARGO) clean

# Everything that can be run here. CI runs the same targets (.ci/run).
#
# Live network tests need root (or a user namespace) and /dev/net/tun. Where they cannot run, they print a line
# `skipped: <why>`. With TAUT_REQUIRE_LIVE=1 a skip is a failure: crates/taut-testbed/src/live.rs.
#
# TAUT_LIVE_BYTES sets the size of the file in the end-to-end HTTP tests (default 1 GB).

CARGO ?= cargo
# `make compare ARGS="--seconds 5"`, `make test ARGS=curl` (a part of a test's name)
ARGS ?=
# The first seed of `make soak`: those before it are the short batch of the tests.
SEED ?= 1500
DENY = $(CARGO) deny --locked check --hide-inclusion-graph

.DEFAULT_GOAL := help
.PHONY: help setup adapters ffi slirp-frames slirp-asan demo compare mechanisms test test-fast cross-check spec spec-red packets linux-selftests model soak incoming iperf3 proxy-cases load planted mutants fuzz miri packet-bulk xdp-bulk guest guest-results gateway-guest gateway-load gateway-pages gateway-soak hostile podman bench bench-live bench-small-queue lint check-portable playground playground-test dash-test dash-bench book book-test python python-test sweep-2000 package fmt deny wireguard wireguard-peers ffi-miri

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install the missing system packages (as root), or print their names
	@scripts/setup

demo: ## what taut is for, beside the kernel: an uplink, a bad line, published results, costs; a page (a minute after the build)
	@scripts/setup gcc iproute2 curl
	$(CARGO) run --profile demo --locked -p taut-cli --no-default-features -- demo $(ARGS)

compare: ## taut to the kernel's TCP over a TUN, and for comparison the kernel over veth (30 s after the build)
	@scripts/setup gcc
	$(CARGO) run --release --locked -p taut-cli -- compare $(ARGS)

mechanisms: ## what each mechanism of the send path changes: simulated, and live next to the kernel (about 4 min)
	@scripts/setup gcc iproute2
	$(CARGO) run --release --locked --quiet -p taut-cli -- lab run tsq tso-autosizing autocork small-writes \
		notsent-lowat bulk --live --seeds 1 --no-files $(ARGS)
	@# Eight flows rather than eighty: with more packets than the emulator's thread can carry, it would be measured.
	$(CARGO) run --release --locked --quiet -p taut-cli -- lab run pacing --live --seeds 1 --no-files \
		--set flows.0.count=8 --set link.rate=400mbit --set duration=3s --set warm-up=1s $(ARGS)

test: ## every test, the live network tests included
	@scripts/setup
	@scripts/guest-kernel --optional
	@CARGO=$(CARGO) scripts/test $(ARGS)

test-fast: ## the tests that need no root, no TUN and no namespace (a minute after the build)
	@CARGO=$(CARGO) scripts/test --fast $(ARGS)

cross-check: ## one flow over thirteen links, simulated and on a TUN: goodput must differ by less than 10 % (about 8 min)
	@scripts/setup iproute2
	$(CARGO) test --release --locked --quiet -p taut-cli --test it -- --ignored --nocapture thirteen_links

spec: ## the numbered statements of docs/spec/, and the requirements of RFCs, with the result of their tests
	@CARGO=$(CARGO) scripts/spec $(ARGS)

spec-red: ## break the code edit by edit, and see the statement's tests fail (resumable; ARGS="RTO-4 rack")
	@CARGO=$(CARGO) scripts/spec-red $(ARGS)

packets: ## the packet scripts of crates/taut-script, over IPv4 and IPv6, in virtual time
	$(CARGO) run --locked --quiet -p taut-cli -- packetdrill crates/taut-script/scripts $(ARGS)

linux-selftests: ## Linux's own packet scripts on this stack; fetches Debian's source package, 150 MB (20 s after the build)
	@CARGO=$(CARGO) scripts/linux-selftests $(ARGS)

model: ## run what threads share in the driver, and a shard with its waiters, through every order of their steps, with loom (half a minute)
	LOOM_MAX_PREEMPTIONS=3 RUSTFLAGS="--cfg loom" $(CARGO) test --release --locked --target-dir target/loom -p taut-driver --lib model $(ARGS)

MINUTES ?= 10
soak: ## random worlds for MINUTES=10: any network, any application, hostile peers; a failing seed prints its command
	$(CARGO) run --profile soak --locked --quiet -p taut-cli --features taut-core/steps -- lab worlds -j 2 --minutes $(MINUTES) --from $(SEED) $(ARGS)

incoming: ## 10,000 connections through the example tun2socks, with upstreams that refuse, reset and are silent (a minute after the build)
	ulimit -n 20000 && $(CARGO) test --locked -p taut --test it every_end -- --ignored --nocapture

iperf3: ## iperf3 -u through the example tun2socks at five rates, beside the kernel's own: what is lost, and where (3 min after the build)
	@scripts/setup iperf3 iproute2
	$(CARGO) test --locked -p taut --test it iperf3_through -- --ignored --nocapture

proxy-cases: ## taut proxy over a satellite's, a train's and a transatlantic line, beside the kernel's cubic (2 min after the build)
	@scripts/setup iproute2 curl
	$(CARGO) test --release --locked -p taut-cli --test it worked_cases -- --ignored --nocapture

load: ## 100,000 connections for ten simulated minutes, 10,000 over a TUN, a flood: memory and goodput (4 min after the build)
	$(CARGO) test --locked -p taut-core --test load -- --ignored --nocapture
	@# The kernel's side of 10,000 connections is in the same process.
	ulimit -n 12000 && $(CARGO) test --locked -p taut --test load -- --ignored --nocapture --test-threads 1

bench-live: ## the small queue beside the kernel, and two shards beside one: backlog, ping, goodput, CPU (9 min; DEVICE=front CONTROL=bbr)
	RUNS=$(or $(RUNS),3) $(CARGO) test --release --locked -p taut --test it -- --ignored --nocapture --test-threads 1 below:: shards::two_shards_beside_one

bench-small-queue: ## the small queue in virtual time, by device, rate, control and offload: worst of STARTS=1 (LATE=busy; ONLY="1gbit;cubic")
	$(CARGO) test --release --locked --quiet -p taut-sim --test it -- --ignored --nocapture small_queue::make_table

planted: ## ten bugs, each planted into a copy of the sources: the tests' random worlds must find them (20 min)
	@CARGO=$(CARGO) scripts/planted $(ARGS)

# All folders that decide something; a sample of one edit in sixty.
mutants: FOLDER = {congestion,conn,egress,ingress,recovery}
mutants: SHARD = 0/60
mutants: ## break the core by small edits, one at a time: do its tests notice? (FOLDER=egress, SHARD=0/60 takes one of 60; gets cargo-mutants)
	@$(CARGO) mutants --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-mutants
	@mkdir -p target
	$(CARGO) mutants --package taut-core --file 'crates/taut-core/src/$(FOLDER)/**' \
		--sharding round-robin --shard $(SHARD) --output target $(if $(wildcard target/mutants.out),--iterate) $(ARGS)

fuzz: ## every parser, and whole stacks against naive models, for MINUTES=10 in all; needs a C++ compiler, gets cargo-fuzz
	@CARGO=$(CARGO) scripts/fuzz $(MINUTES) $(ARGS)

MIRI ?= $(CARGO) +nightly miri
# Miri interprets, so properties get 16 cases and not 256.
miri: export PROPTEST_CASES = 16
miri: ## the core's packet traces under miri: undefined behaviour, also of the crates below it (gets the nightly component)
	@rustup +nightly component list --installed 2>/dev/null | grep -q '^miri' || rustup component add miri rust-src --toolchain nightly
	MIRIFLAGS="-Zmiri-disable-isolation" $(MIRI) test --locked -p taut-wire --lib $(ARGS)
	MIRIFLAGS="-Zmiri-disable-isolation" $(MIRI) test --locked -p taut-core --test it $(ARGS) -- handshake:: close::

ffi-miri: ## both C interfaces under miri, as far as it goes: undefined behaviour (gets the nightly component; 2 min)
	@rustup +nightly component list --installed 2>/dev/null | grep -q '^miri' || rustup component add miri rust-src --toolchain nightly
	@# What a panic threw is forgotten on purpose (crates/taut-ffi/src/border.rs). A test's box may move while C has its address.
	MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks" $(MIRI) test --locked -p taut-ffi -p taut-slirp --lib $(ARGS)
	MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks -Zmiri-tree-borrows" $(MIRI) test --locked -p taut-slirp --test it \
		$(ARGS) -- slirp_13_versions slirp_23 slirp_44

packet-bulk: ## gigabytes over an Ethernet interface: checked, closed by 10,000 sockets, and beside TUN and the kernel (2 min after the build)
	$(CARGO) test --release --locked --quiet -p taut --test it -- packet:: --ignored --nocapture --test-threads 1

xdp-bulk: ## 10 GB each way over an Ethernet interface by AF_XDP, which is then removed: every ticket comes back (a minute after the build)
	$(CARGO) test --release --locked --quiet -p taut --features xdp --test it -- xdp:: --ignored --nocapture

guest: ## device packet under a Debian kernel 6.12 in an emulated machine: 800 flows paced by fq, a network card; fetches 105 MB, once
	@scripts/setup qemu-system-x86 iproute2
	@scripts/guest-kernel
	$(CARGO) test --release --locked --quiet -p taut --test guest -- --nocapture --include-ignored --skip inside_ $(ARGS)

guest-results: ## the five published results over packet sockets in that machine, beside its kernel, with fq (about 15 min; SEEDS=3)
	@scripts/setup iproute2 qemu-system-x86
	@scripts/guest-kernel
	$(CARGO) test --release --locked --quiet -p taut-cli --test guest_lab -- --nocapture --include-ignored --skip inside_ $(ARGS)

gateway-load: ## taut gateway: 10,000 connections at once, 3,000 fetches over TLS (half a minute after the build)
	@scripts/setup iproute2 nginx-light curl openssl
	TAUT_REQUIRE_LIVE=1 $(CARGO) test --locked --quiet -p taut-cli --test it thousand -- --nocapture --ignored $(ARGS)

SLIRP_SEED ?= 1
slirp-frames: ## FRAMES=100000000 random and damaged frames into libslirp's interface: no panic, and it still answers (10 min after the build)
	FRAMES=$(or $(FRAMES),100000000) SEED=$(SLIRP_SEED) $(CARGO) test --profile soak --locked -p taut-slirp --test it -- \
		--ignored --nocapture many_frames $(ARGS)

slirp-asan: ## libslirp's interface from C with AddressSanitizer: each function, FRAMES=1000000 damaged frames; checks Rust, too, with a nightly
	crates/taut-slirp/tests/c/asan.sh $(FRAMES)

podman: ## rootless podman with taut as its network, in a Debian 13 of its own, fetched once; ARGS="--with taut --with pasta" (root; 2 min)
	@scripts/setup debootstrap
	$(CARGO) build --locked -p taut-cli
	@TAUT=$(or $(CARGO_TARGET_DIR),target)/debug/taut scripts/podman $(ARGS)

hostile: ## a gateway of each kind and a proxy with code that attacks their sandbox from within: CONF-1
	@scripts/setup iproute2
	TAUT_REQUIRE_LIVE=1 $(CARGO) test --locked --quiet -p taut-cli --features hostile --test it conf_01 -- --nocapture $(ARGS)

gateway-soak: ## taut gateway: FLOWS=10000000 in virtual time, then connections for MINUTES=60, and what is held meanwhile
	@scripts/setup iproute2
	$(CARGO) test --release --locked --quiet -p taut-gateway --test soak -- --nocapture --ignored
	TAUT_REQUIRE_LIVE=1 $(CARGO) test --locked --quiet -p taut-cli --test it an_hour -- --nocapture --ignored $(ARGS)

# Far ends that are not taut's: versions, and where they are.
WIREGUARD_GO = v0.0.0-20260522210424-ecfc5a8d5446
BORINGTUN_CLI = 0.7.1
PEERS = $(CURDIR)/target/peers

wireguard-peers: ## wireguard-go and boringtun-cli, which `make wireguard` needs; needs Go (a minute)
	@mkdir -p $(PEERS)/bin
	@test -x $(PEERS)/bin/wireguard-go || { GOBIN=$(PEERS) go install golang.zx2c4.com/wireguard@$(WIREGUARD_GO) && \
		mv $(PEERS)/wireguard $(PEERS)/bin/wireguard-go; }
	@test -x $(PEERS)/bin/boringtun-cli || \
		$(CARGO) install --locked --version $(BORINGTUN_CLI) --root $(PEERS) boringtun-cli

wireguard: wireguard-peers ## tunnels to wireguard-go and boringtun-cli, a million random datagrams, an idle tunnel (3 min after the build)
	@scripts/setup iproute2
	TAUT_REQUIRE_LIVE=1 TAUT_WIREGUARD_PEERS=$(PEERS)/bin $(CARGO) test --locked --quiet -p taut-wireguard --test it -- \
		--nocapture --ignored --test-threads 1 $(ARGS)

gateway-pages: ## what a packet costs to write to a TUN, by the place in a page where its payload begins (two seconds after the build)
	$(CARGO) test --release --locked --quiet -p taut-gateway --test pages -- --nocapture --ignored

gateway-guest: ## a Debian kernel 6.12 behind `taut gateway --qemu`: DHCP, names, 1 GB each way, ping, iperf3; fetches 106 MB, once
	@scripts/setup qemu-system-x86 iproute2 iperf3
	@scripts/guest-kernel
	TAUT_REQUIRE_LIVE=1 TAUT_GUEST_BYTES=1000000000 $(CARGO) test --release --locked --quiet -p taut-cli --test it vm_19 -- --nocapture $(ARGS)

ffi: ## taut.h, libtaut.so, libtaut.a and taut.pc in target/ffi; a client in Go, which it needs, and the sizes (3 min)
	@scripts/setup gcc pkgconf
	@CARGO=$(CARGO) scripts/ffi
	TAUT_REQUIRE_LIVE=1 $(CARGO) test --locked --quiet -p taut-ffi --test it -- --ignored --nocapture $(ARGS)
	@ls -l $(or $(CARGO_TARGET_DIR),target)/ffi/lib

adapters: ## taut under tonic, tokio-postgres and russh, which compile for longer than the tests may: examples/adapters (2 min)
	$(CARGO) fmt --check --manifest-path examples/adapters/Cargo.toml
	$(CARGO) test --locked --manifest-path examples/adapters/Cargo.toml $(ARGS)

include benches/bench.mk packaging/packaging.mk

lint: ## formatting, clippy and docs, with warnings denied; whether locks, listed edits and cross-check's ratios still fit; sizes of folders, files and functions (scripts/rooms); the counts of statements; words (scripts/prose); licences and sources, by cargo-deny when it is installed
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --workspace --no-deps --locked --quiet
	@CARGO=$(CARGO) scripts/locks
	@scripts/listed-edits
	@scripts/rooms
	@scripts/cross-ratios --check
	@scripts/statements --check
	@scripts/prose
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(DENY) licenses bans sources; \
	else CARGO=$(CARGO) scripts/deny; fi

check-portable: ## taut compiles for Android, macOS, Windows, FreeBSD and musl, the core for a 32-bit processor, the lab for a browser (2 min)
	@CARGO=$(CARGO) scripts/check-portable $(ARGS)

playground: ## the simulator as a static page, playground/dist/index.html; needs node 20.19 or later (3 min, later seconds)
	@CARGO=$(CARGO) scripts/playground

playground-test: playground ## the page in headless Chromium: its figures are the command's, bit for bit; frames, keyboard, widths (4 min)
	$(CARGO) build --release --locked --quiet -p taut-cli
	cd playground && $(CARGO) test --locked --quiet
	cd playground && TAUT=$(abspath target)/release/taut npm test --silent

dash-test: ## the dashboard in headless Chromium, with a live stack under load; needs node 20.19 or later (5 min after the build)
	@scripts/setup iproute2 curl
	$(CARGO) build --release --locked --quiet -p taut-cli
	TAUT=$(abspath target)/release/taut scripts/dash-test $(ARGS)

dash-bench: ## what watching 1,000 connections costs the stack: five rounds with a watcher and without (2 min after the build)
	$(CARGO) test --release --locked --quiet -p taut-cli --test dash -- --ignored --nocapture what_watching_costs

book: ## the documentation as a site, target/book/index.html, with the playground inside; gets mdBook; every link is checked (seconds, once mdBook and the playground are there)
	@CARGO=$(CARGO) scripts/book $(ARGS)

book-test: book ## the book in headless Chromium: every page loads, every link leads somewhere, the playground inside runs a preset (2 min)
	@# The playground alone, to compare with; and the browser's driver.
	@[ -d playground/node_modules ] || CARGO=$(CARGO) scripts/playground
	cd playground && npm run --silent test-book

python: ## the Python package taut-lab as a wheel, in python/target/wheels; needs Python 3.10 or later; PORTABLE=1: for glibc 2.17 (3 min, later seconds)
	@CARGO=$(CARGO) scripts/python

python-test: ## its tests, in python/target/venv: figures are the command's, bit for bit; controllers, pictures, notebook, types (1 min after the builds)
	$(CARGO) build --release --locked --quiet -p taut-cli --features parquet
	TAUT=$(abspath target)/release/taut scripts/python --test $(ARGS)

sweep-2000: ## a sweep of 2,000 runs on a Ray cluster of two nodes, one of them removed meanwhile, and on this machine: equal rows
	TAUT_SWEEP_RUNS=2000 CARGO=$(CARGO) scripts/python --test -s -k loses_a_node

package: ## make the packages of all crates, and build each from its own files; uploads nothing (about 4 min)
	$(CARGO) package --workspace --locked $(ARGS)

fmt: ## format the sources
	$(CARGO) fmt --all

deny: ## licences, sources and advisories of the dependencies; installs cargo-deny when it is absent (slow, once)
	@$(CARGO) deny --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-deny
	$(DENY)

# Benchmarks; included by the Makefile at the top.

TAUT_BENCH = cargo run --quiet --release --manifest-path benches/Cargo.toml --bin taut-bench --

.PHONY: bench bench-flows bench-gateway bench-gateway-instructions bench-quick bench-instructions bench-paths bench-sim bench-slirp bench-sockets bench-wireguard

bench: ## measure taut, the kernel and smoltcp (root; BENCH_ARGS="--only send,pair --json")
	$(TAUT_BENCH) $(BENCH_ARGS)

bench-quick: ## the same with one short round, to see that it runs
	$(TAUT_BENCH) --rounds 1 --seconds 0.5 --smoltcp-buffer 512 --smoltcp-batch 64 $(BENCH_ARGS)

bench-flows: ## connections to any address: taut beside ipstack, netstack-smoltcp and gVisor, flows a second and memory (root; BENCH_ARGS="3 3 2000")
	benches/flows.sh $(BENCH_ARGS)

bench-gateway: ## taut gateway beside pasta, slirp4netns, gvproxy and tun2proxy in namespaces (root, Go; BENCH_ARGS="--only taut,pasta --rounds 3"; about 15 min)
	benches/gateway.sh $(BENCH_ARGS)

bench-gateway-instructions: ## count instructions and system calls of taut gateway for a request with callgrind; fails above benches/instructions.toml (root; half a minute after the build)
	@scripts/setup valgrind iproute2
	cargo build --quiet --profile profiling --locked -p taut-cli
	cargo run --quiet --release --locked --manifest-path benches/gateway/Cargo.toml --target-dir target/gateways -- \
		--taut target/profiling/taut --count benches/instructions.toml $(BENCH_ARGS)

bench-instructions: ## count instructions per packet with callgrind; fails above benches/instructions.toml
	cargo build --quiet --release --manifest-path benches/Cargo.toml
	$(TAUT_BENCH) instructions

bench-slirp: ## slirp4netns on libslirp 4.7, on the newest libslirp and on taut's, in namespaces (root; BENCH_ARGS="--rows up1,down1"; about 10 min)
	benches/slirp.sh $(BENCH_ARGS)

bench-sockets: ## compare taut's sockets with the kernel's and with the aims (root; BENCH_ARGS="--only bulk --json"; about 20 min)
	cargo run --quiet --release --manifest-path benches/Cargo.toml --bin taut-sockets -- $(BENCH_ARGS)

bench-wireguard: wireguard-peers ## taut proxy through a WireGuard tunnel beside gVisor's netstack and onetun (root, Go; 12 min)
	PEERS=$(PEERS) benches/gateway.sh --tunnels $(BENCH_ARGS)

bench-paths: ## send over difficult paths: taut and the kernel live, taut simulated (root; BENCH_ARGS=--json; about 15 min, resumes)
	@scripts/setup iproute2
	cargo run --quiet --release --locked -p taut-cli -- lab sweep crates/taut-lab/scenarios/paths-live-grid.toml \
		--live --resume --out target/bench-paths $(BENCH_ARGS)

bench-sim: ## compare packets per second of the simulator and of ns-3 on the same dumbbell (needs libns3-dev)
	benches/sim.sh $(BENCH_ARGS)

# Benchmarks; included by the Makefile at the top.

TAUT_BENCH = cargo run --quiet --release --manifest-path benches/Cargo.toml --bin taut-bench --

.PHONY: bench bench-quick bench-instructions bench-sim

bench: ## Measure taut beside the kernel and smoltcp (root; BENCH_ARGS="--only send,pair --json")
	$(TAUT_BENCH) $(BENCH_ARGS)

bench-quick: ## The same with one short round, to see that it runs
	$(TAUT_BENCH) --rounds 1 --seconds 0.5 --smoltcp-buffer 512 --smoltcp-batch 64 $(BENCH_ARGS)

bench-instructions: ## Count instructions per packet with callgrind; fails above benches/instructions.toml
	cargo build --quiet --release --manifest-path benches/Cargo.toml
	$(TAUT_BENCH) instructions

bench-sim: ## Packets a second of the simulator beside ns-3's on the same dumbbell (needs libns3-dev)
	benches/sim.sh $(BENCH_ARGS)

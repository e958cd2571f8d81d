#!/bin/sh
# Packets per second of processor time: the simulator and ns-3 on the same dumbbell with 10 flows, in one run.
# The programs, and the script that builds them, are in the simulator's crate; arguments go to that script.
exec "$(dirname "$0")/../crates/taut-sim/benches/ns3/compare.sh" "$@"

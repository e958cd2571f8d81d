#!/bin/sh
# Packets per second of processor time: the simulator beside ns-3, the same dumbbell with 10 flows, in one run.
# The programs and the script that builds them stand with the simulator; arguments are the script's.
exec "$(dirname "$0")/../crates/taut-sim/benches/ns3/compare.sh" "$@"

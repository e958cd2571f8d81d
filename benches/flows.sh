#!/bin/sh
# Connections to any address: flows a second, CPU and memory of taut, ipstack and netstack-smoltcp (smoltcp with any_ip), in turn in
# one run. Needs root.
#
#   benches/flows.sh [ROUNDS [SECONDS [OPEN]]]
set -eu
cd "$(dirname "$0")/flows"
rounds=${1:-3} seconds=${2:-3} open=${3:-2000}
cargo build --quiet --release
program=${CARGO_TARGET_DIR:-target}/release/taut-flows
ulimit -n 20000
for round in $(seq "$rounds"); do
    for stack in taut ipstack smoltcp; do
        # A namespace of its own, with a view of /sys to match.
        unshare -n -m sh -c '
            mount -t sysfs none /sys && ip link set lo up &&
            sysctl -qw net.ipv4.ip_local_port_range="1024 65535" net.ipv4.tcp_tw_reuse=1 && exec "$@"
        ' sh "$program" "$stack" "$seconds" "$open" || echo "$stack: failed"
    done
done

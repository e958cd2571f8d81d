#!/bin/sh
# Connections to any address: flows a second, CPU and memory of taut, ipstack, netstack-smoltcp (smoltcp with any_ip) and gVisor's
# forwarder, in turn in one run. Needs root; gVisor's needs Go (https://go.dev), which fetches its modules.
#
#   benches/flows.sh [ROUNDS [SECONDS [OPEN]]]
set -eu
cd "$(dirname "$0")/flows"
rounds=${1:-3} seconds=${2:-3} open=${3:-2000}
cargo build --quiet --release
target=${CARGO_TARGET_DIR:-$PWD/target}
program=$target/release/taut-flows
stacks="taut ipstack smoltcp"
if ! command -v go >/dev/null; then
    echo "gvisor: not measured: there is no Go in PATH"
elif (cd gvisor && go build -o "$target/release/taut-gvisor" .); then
    export TAUT_GVISOR="$target/release/taut-gvisor"
    stacks="$stacks gvisor"
else
    echo "gvisor: not measured: it does not build"
fi
ulimit -n 20000
for round in $(seq "$rounds"); do
    for stack in $stacks; do
        # A namespace of its own, with a view of /sys to match.
        unshare -n -m sh -c '
            mount -t sysfs none /sys && ip link set lo up &&
            sysctl -qw net.ipv4.ip_local_port_range="1024 65535" net.ipv4.tcp_tw_reuse=1 && exec "$@"
        ' sh "$program" "$stack" "$seconds" "$open" || echo "$stack: failed"
    done
done

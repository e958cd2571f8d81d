#!/bin/sh
# Bulk transfers over packet sockets, beside a TUN, the kernel's TCP, and gVisor's stack by `fdbased` on packet sockets, in turns
# in one run: Gbit/s, and CPU-seconds of both ends for each gigabyte. Needs root, and Go 1.26, which gets gVisor's module.
#
#   benches/devices.sh [--rounds N] [--seconds N] [--only kernel,packet,tun]
set -eu
cd "$(dirname "$0")"
if ! command -v go >/dev/null; then
    echo "bench-devices: go is not installed; it builds gVisor's part (https://go.dev/dl, or apt-get install golang)" >&2
    exit 2
fi
program=${CARGO_TARGET_DIR:-target}/fdbased
case $program in /*) ;; *) program=$PWD/$program ;; esac
mkdir -p "$(dirname "$program")"
(cd fdbased && go build -o "$program" .)
exec cargo run --quiet --release --bin taut-devices -- --fdbased "$program" "$@"

#!/bin/sh
# Packets per second of processor time: the simulator and ns-3 over the same network, in one run.
# Needs ns-3 (Debian: apt-get install libns3-dev) and a C++ compiler; builds both.
# Both model every packet and every queue, and payloads are only lengths in both. Figures are in docs/spec/lab.md.
#
#   compare.sh [flows] [bottleneck in Gbit/s] [virtual seconds] [repetitions]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../../.." && pwd)
flows=${1:-10} rate=${2:-1} seconds=${3:-5} times=${4:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$root" && cargo build --quiet --release -p taut-sim --example dumbbell)
target=${CARGO_TARGET_DIR:-$root/target}
version=$(ls /usr/lib/*/libns3*-core.so /usr/lib/*/libns3-core.so 2>/dev/null | head -n 1)
[ -n "$version" ] || { echo "ns-3 is not installed: apt-get install libns3-dev" >&2; exit 1; }
libs=""
for module in core network internet point-to-point applications traffic-control; do
    libs="$libs -lns3-$module"
done
# shellcheck disable=SC2086 # a list of flags
c++ -std=c++17 -O2 "$here/dumbbell.cc" -o "$work/dumbbell" $libs

# Seconds of processor time of a command; its output goes to a file.
processor_time() {
    out=$1
    shift
    ( "$@" > "$out"; times ) | tail -n 1 | awk '{
        split($1, u, /[ms]/); split($2, v, /[ms]/);
        print u[1] * 60 + u[2] + v[1] * 60 + v[2]
    }'
}

packets() { awk '$1 == "packets" { print $2 }' "$1"; }

i=0
while [ "$i" -lt "$times" ]; do
    i=$((i + 1))
    ours=$(processor_time "$work/ours" "$target/release/examples/dumbbell" "$flows" "${rate}gbit" "$seconds")
    theirs=$(processor_time "$work/theirs" "$work/dumbbell" "$flows" "${rate}Gbps" "$seconds")
    awk -v a="$(packets "$work/ours")" -v s="$ours" -v b="$(packets "$work/theirs")" -v t="$theirs" 'BEGIN {
        printf "taut-sim %d packets in %.2f s, %.0f a second; ns-3 %d in %.2f s, %.0f a second; ratio %.1f\n",
            a, s, a / s, b, t, b / t, (a / s) / (b / t)
    }'
done

#!/bin/sh
# One caller of libslirp's interface on three libraries, in turns in one run, in the topology of benches/gateway.sh: Debian 12's
# libslirp (4.7), Debian's newest, and taut's libslirp.so.0. The caller is Debian 12's slirp4netns, of which only the places of
# loader and libraries are changed, to the newest ones (the newest slirp4netns cannot use libslirp 4.7). Needs root. Gets what is
# missing: iperf3 by apt, the two libslirps into target/peers (newest.sh).
#
#   benches/slirp.sh [--rounds N] [--seconds N] [--rows up1,down1] [--json]
set -eu
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
peers=$target/peers
stop() {
    echo "bench-slirp: $1" >&2
    exit 2
}
scripts/setup iproute2 iperf3 patchelf
benches/newest.sh "$peers/debian" || stop "the newest slirp4netns cannot be had"
benches/newest.sh "$peers/bookworm" bookworm || stop "Debian 12's libslirp cannot be had"
cargo build --quiet --release --locked -p taut-slirp
cargo build --quiet --release --locked --manifest-path benches/gateway/Cargo.toml --target-dir "$target/gateways"
newest=$(readlink "$peers/debian/bin/slirp4netns")
loader=$(patchelf --print-interpreter "$newest")
path=$(patchelf --print-rpath "$newest")
library() {
    find "$peers/$1/files" -name 'libslirp.so.0.*' | head -1
}
# A copy of the caller that looks for this library first.
caller() {
    folder=$peers/slirp/$1
    mkdir -p "$folder"
    cp "$2" "$folder/libslirp.so.0"
    cp "$(readlink "$peers/bookworm/bin/slirp4netns")" "$folder/slirp4netns"
    patchelf --force-rpath --set-interpreter "$loader" --set-rpath "$folder:$path" "$folder/slirp4netns"
}
caller 4.7 "$(library bookworm)"
caller newest "$(library debian)"
caller taut "$target/release/libslirp.so"
iperf3 --version | head -1
exec "$target/gateways/release/taut-gateways" --taut "$target/release/taut" \
    --libslirp "libslirp 4.7=$peers/slirp/4.7/slirp4netns" --libslirp "newest libslirp=$peers/slirp/newest/slirp4netns" \
    --libslirp "taut=$peers/slirp/taut/slirp4netns" "$@"

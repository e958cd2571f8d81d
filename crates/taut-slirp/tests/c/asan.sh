#!/bin/sh
# The caller in C (program.c) with AddressSanitizer: each function, then so many random and damaged frames. With a nightly Rust
# (rustup toolchain install nightly) the library is checked, too; without one, only the memory that C has, and it says so.
#
#   crates/taut-slirp/tests/c/asan.sh [FRAMES [SEED]]
set -eu
cd "$(dirname "$0")/../../../.."
frames=${1:-1000000}
target=${CARGO_TARGET_DIR:-$PWD/target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
host=$(rustc -vV | sed -n 's/^host: //p')
if nightly=$(rustup run nightly rustc --version 2>/dev/null); then
    echo "slirp-asan: the library and its caller are checked; $nightly"
    RUSTFLAGS=-Zsanitizer=address CARGO_PROFILE_DEV_OPT_LEVEL=2 cargo +nightly build --quiet --locked --target "$host" \
        --target-dir "$target/asan" -p taut-slirp
    library=$target/asan/$host/debug/libslirp.so
else
    echo "slirp-asan: no nightly Rust, so only the caller's memory is checked" >&2
    cargo build --quiet --locked -p taut-slirp
    library=$target/debug/libslirp.so
fi
folder=$target/asan/c
mkdir -p "$folder"
cp "$library" "$folder/libslirp.so.0"
${CC:-cc} -std=gnu11 -Wall -Wextra -Werror -g -O1 -fsanitize=address -o "$folder/program" crates/taut-slirp/tests/c/program.c \
    "$folder/libslirp.so.0"
LD_LIBRARY_PATH=$folder "$folder/program" "$frames" "${2:-1}"

#!/bin/sh
# The size of the smallest program with the core (`benches/size`), for a bare Cortex-M4: its code and constants, with TCP over IPv4
# alone and with each protocol that is a feature. rustup fetches the target's standard library.
#
#   benches/size.sh [TARGET]
set -eu
cd "$(dirname "$0")/size"
target=${1:-thumbv7em-none-eabi}
if [ ! -d "$(rustc --print target-libdir --target "$target")" ]; then
    rustup target add "$target" >/dev/null 2>&1 || { echo "size: rustup target add $target failed" >&2; exit 1; }
fi
folder=${CARGO_TARGET_DIR:-$PWD/target}/$target/release
# Sections that are read from flash memory: all that the program has allocated but what is zero at its beginning.
flash() {
    readelf -SW "$folder/taut-size" | sed 's/^ *\[ *[0-9]*\]//' |
        while read -r name kind _ _ size _ flags _; do
            case $kind,$flags in NOBITS,* | *,*[!A-Z]*) ;; *,*A*) echo "$((0x$size)) $name" ;; esac
        done
}
printf '%-6s %-44s %9s %9s\n' opt protocols .text all
all="udp icmp fragments ipv6 incoming"
measure() {
    CARGO_PROFILE_RELEASE_OPT_LEVEL=$1 cargo build --quiet --locked --release --target "$target" --features "$2"
    printf '%-6s %-44s %9d %9d\n' "$1" "TCP over IPv4${2:+, $2}" "$(flash | awk '$2 == ".text" { sum += $1 } END { print sum }')" \
        "$(flash | awk '{ sum += $1 } END { print sum }')"
}
for features in "" $all "$all"; do measure z "$features"; done
for level in s 3; do measure "$level" "" && measure "$level" "$all"; done

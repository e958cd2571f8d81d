#!/bin/bash -eu
# Every target of fuzz/, with its seeds and the limits of scripts/fuzz. OSS-Fuzz sets SRC and OUT; TARGETS names some of them.
cd "$SRC/taut"
targets=${TARGETS:-$(cargo fuzz list)}
one=
[[ $targets == *[[:space:]]* ]] || one=$targets
# shellcheck disable=SC2086 # no name is all of them
cargo fuzz build -O --debug-assertions ${FEATURES---features scenario,gateway,tunnel} $one
for target in $targets; do
    cp "fuzz/target/x86_64-unknown-linux-gnu/release/$target" "$OUT/"
    printf '[libfuzzer]\nmax_len = 4096\ntimeout = 20\n' >"$OUT/$target.options"
    [[ ! -d fuzz/seeds/$target ]] || zip -qjr "$OUT/${target}_seed_corpus.zip" "fuzz/seeds/$target"
done

#!/usr/bin/env bash
# Builds what people install, into target/dist. Uploads nothing.
#
#   packaging/build.sh static [ARCH]...     the command as one static program: target/dist/taut-VERSION-ARCH
#   packaging/build.sh deb|rpm [ARCH]...    a package of it, with man pages, completions and systemd's user units
#   packaging/build.sh image [ARCH]...      an OCI image of it, as an archive (needs buildah)
#   packaging/build.sh sbom [ARCH]...       its dependencies, by CycloneDX
#
# ARCH is x86_64 (the default) or aarch64. All use the static program, which is built once: it needs no C library, so one
# package fits each distribution. TAUT=PROGRAM names another build of the command that writes man pages and completions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { printf 'build.sh: %s\n' "$@" >&2; exit 1; }
usage() { sed -n '2,10s/^# \{0,1\}//p' "$0"; }

cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-$PWD/target}
dist=$PWD/target/dist
stage=$dist/stage
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# The time in archives: that of the commit, so that a second build makes the same bytes.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}

triple() { echo "$1-unknown-linux-musl"; }
program() { echo "$target/$(triple "$1")/release/taut"; }
have() { # have SUBCOMMAND PACKAGE
    "$cargo" "$1" --version >/dev/null 2>&1 || "$cargo" install --locked "$2"
}

static() {
    built "$1"
    # It must run: here, or in an emulator of its processor.
    local runs=("$(program "$1")")
    [[ $1 == $(uname -m) ]] || runs=("qemu-$1-static" "${runs[@]}")
    command -v "${runs[0]}" >/dev/null || { echo "not run: install qemu-user-static for qemu-$1-static" >&2; return; }
    "${runs[@]}" --version
    "${runs[@]}" gateway --help >/dev/null
    "${runs[@]}" lab run small-writes --seeds 1 --no-files >/dev/null
}

built() {
    local arch=$1 triple variable
    triple=$(triple "$arch")
    compgen -G "$(rustc --print target-libdir --target "$triple")/libstd-*" >/dev/null || rustup target add "$triple" ||
        fail "no standard library for $triple: install it with rustup target add $triple"
    variable=CARGO_TARGET_$(tr a-z- A-Z_ <<<"$triple")_LINKER
    # rustup's target brings musl and its start files, and rust-lld links. The C and assembly of ring, WireGuard's
    # cryptography, need a compiler but no C library: clang compiles for each target. Paths of this machine stay out.
    scripts/setup clang
    env "$variable=rust-lld" "CC_${triple//-/_}=clang" \
        RUSTFLAGS="--remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=cargo" \
        "$cargo" build --release --locked --quiet -p taut-cli --target "$triple"
    mkdir -p "$dist"
    cp "$(program "$arch")" "$dist/taut-$version-$arch"
    printf '%s: %s kB\n' "target/dist/taut-$version-$arch" "$(($(stat -c %s "$(program "$arch")") / 1000))"
}

# What stands beside the program in each package. Written by the program itself, or by $TAUT where that cannot run here.
staged() {
    local arch=$1 taut
    built "$arch"
    taut=${TAUT:-$(program "$arch")}
    "$taut" --version >/dev/null 2>&1 || fail "$taut does not run here" \
        "set TAUT to a build of this machine, or install qemu-user-static and binfmt-support"
    rm -rf "$stage"
    mkdir -p "$stage/man"
    "$taut" man --output "$stage/man"
    gzip -9n "$stage"/man/*
    "$taut" completions bash >"$stage/taut.bash"
    "$taut" completions zsh >"$stage/_taut"
    "$taut" completions fish >"$stage/taut.fish"
    gzip -9nc CHANGELOG.md >"$stage/changelog.gz"
    CARGO=$cargo packaging/third-party "$(triple "$arch")" | gzip -9n >"$stage/third-party.txt.gz"
}

deb() {
    have deb cargo-deb
    staged "$1"
    "$cargo" deb --quiet --no-build --no-strip --locked -p taut-cli --target "$(triple "$1")" --output "$dist/"
    du -h --apparent-size "$(ls -t "$dist"/*.deb | head -1)"
}

rpm() {
    have generate-rpm cargo-generate-rpm
    staged "$1"
    "$cargo" generate-rpm -p crates/taut-cli --target "$(triple "$1")" --output "$dist/" --source-date "$SOURCE_DATE_EPOCH"
    du -h --apparent-size "$(ls -t "$dist"/*.rpm | head -1)"
}

image() {
    local arch=$1 context=$dist/image root=$dist/image/root archive=$dist/taut-$version-$arch.oci.tar name
    command -v buildah >/dev/null || fail "buildah is missing: apt-get install buildah"
    built "$arch"
    rm -rf "$context"
    mkdir -p "$root/usr/bin" "$root/usr/share/doc/taut" "$root/run/taut"
    cp "$(program "$arch")" "$root/usr/bin/taut"
    cp LICENSE-MIT LICENSE-APACHE "$root/usr/share/doc/taut/"
    CARGO=$cargo packaging/third-party "$(triple "$arch")" >"$root/usr/share/doc/taut/third-party.txt"
    chmod 1777 "$root/run/taut"
    name=localhost/taut:$version
    # No instruction runs in it and nothing is fetched, so neither root nor a network is needed.
    in_storage() { buildah --root "$context/storage" --runroot "$context/run" --storage-driver vfs "$@"; }
    in_storage build --quiet --isolation chroot --pull-never --arch "${arch/x86_64/amd64}" \
        --timestamp "$SOURCE_DATE_EPOCH" --tag "$name" -f packaging/image/Containerfile "$context" >/dev/null
    rm -f "$archive"
    in_storage push --quiet "$name" "oci-archive:$archive:$name"
    rm -rf "$context"
    du -h --apparent-size "$archive"
}

sbom() {
    have cyclonedx cargo-cyclonedx
    # It writes beside the manifest of each crate, and of this one for each program.
    "$cargo" cyclonedx --quiet --manifest-path crates/taut-cli/Cargo.toml --format json --describe binaries --target "$(triple "$1")"
    mkdir -p "$dist"
    mv crates/taut-cli/taut_bin.cdx.json "$dist/taut-$version-$1.cdx.json"
    find crates -name '*.cdx.json' -delete
    du -h --apparent-size "$dist/taut-$version-$1.cdx.json"
}

what=${1:-}
case $what in
    static | deb | rpm | image | sbom) shift ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
esac
[[ $# -gt 0 ]] || set -- x86_64
for arch in "$@"; do
    [[ $arch == x86_64 || $arch == aarch64 ]] || fail "unknown architecture $arch: x86_64 or aarch64"
    "$what" "$arch"
done

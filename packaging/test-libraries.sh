#!/usr/bin/env bash
# Installs the packages of the libraries in target/dist into empty roots, by dpkg and by rpm, compiles, links and runs programs
# with them, and removes them. Root, because dpkg wants that. Nothing is left.
#
#   packaging/test-libraries.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1:-} in -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;; esac

dist=$PWD/target/dist
. packaging/shows.sh
fail() { printf 'test-libraries: %s\n' "$@" >&2; exit 1; }
[[ $(id -u) -eq 0 ]] || fail "root is needed: sudo make package-test"
for program in cc dpkg pkg-config rpm slirp4netns; do
    command -v "$program" >/dev/null || fail "$program is missing: install it, on Debian with scripts/setup"
done
machine=$(uname -m) debian=$(dpkg --print-architecture)
dev_deb=$(newest "libtaut-dev_*_$debian.deb") slirp_deb=$(newest "taut-libslirp_*_$debian.deb")
dev_rpm=$(newest "libtaut-devel-*.$machine.rpm") slirp_rpm=$(newest "taut-libslirp-*.$machine.rpm")
[[ -n $dev_deb && -n $slirp_deb && -n $dev_rpm && -n $slirp_rpm ]] || fail "target/dist has no such packages: make libraries"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

flags() { # flags ROOT LIBDIR WORD...
    env PKG_CONFIG_SYSROOT_DIR="$1" PKG_CONFIG_LIBDIR="$1/usr/$2/pkgconfig" \
        pkg-config --keep-system-cflags --keep-system-libs "${@:3}" taut
}
page() { [[ $("$@" | tr -d '\r' | tail -1) == Hello ]]; }
compiles() {
    # shellcheck disable=SC2046 # words
    cc crates/taut-ffi/examples/http_get.c $(flags "$1" "$2" --cflags --libs) -o "$work/shared"
    page env LD_LIBRARY_PATH="$1/usr/$2" "$work/shared"
    readelf -d "$work/shared" | grep -q 'NEEDED.*libtaut.so.0'
}
compiles_static() {
    # shellcheck disable=SC2046
    cc crates/taut-ffi/examples/http_get.c $(flags "$1" "$2" --static --cflags --libs | sed 's/-ltaut/-l:libtaut.a/') -o "$work/static"
    page "$work/static"
}
# No loader finds it by itself, and the line of the guide finds it: beside ROOT
beside() {
    local found
    found=$(find "$1" -name 'libslirp*' -printf '/%P\n')
    [[ $found == /usr/lib/taut/libslirp.so.0 ]] || { echo "$found"; return 1; }
    LD_LIBRARY_PATH=$1/usr/lib/taut slirp4netns --version | grep -q '^libslirp: .*(taut '
    slirp4netns --version | grep '^libslirp: ' | grep -vq taut
}

root=$work/deb
echo "an empty root: $(basename "$dev_deb") $(basename "$slirp_deb")"
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
touch "$root/var/lib/dpkg/status"
files "$root" ! -type d >"$work/before"
in_root() { dpkg --root="$root" --log=/dev/null "$@"; }
shows "dpkg installs them" in_root --force-depends --install "$dev_deb" "$slirp_deb"
shows "each file is as the package says" in_root --verify libtaut-dev taut-libslirp
shows "pkg-config, cc and the loader use libtaut" compiles "$root" lib
shows "and libtaut.a" compiles_static "$root" lib
shows "libslirp.so.0 is beside the system's" beside "$root"
needs() {
    local name
    for name in "$dev_deb" "$slirp_deb"; do
        dpkg-deb -f "$name" Depends | grep -Eqx 'libc6 \(>= 2\.[0-9.]+\), libgcc-s1'
        # This machine's C library is one of these.
        dpkg --compare-versions "$(dpkg-query -W -f '${Version}' libc6)" ge "$(dpkg-deb -f "$name" Depends | sed 's/.*(>= \(.*\)).*/\1/')"
    done
}
shows "they need the C library alone" needs
purges() { in_root --purge libtaut-dev taut-libslirp; files "$root" ! -type d >"$work/after"; equal "$work/before" "$work/after"; }
shows "purge leaves no file" purges

root=$work/rpm
echo "an empty root: $(basename "$dev_rpm") $(basename "$slirp_rpm")"
mkdir "$root"
rpm_in() { command rpm --root "$root" --dbpath /var/lib/rpm "$@"; }
rpm_in --initdb
mkdir -p "$root"/{etc,usr,var/tmp}
files "$root" ! -type d >"$work/before"
shows "rpm installs them" rpm_in -i --nodeps "$dev_rpm" "$slirp_rpm"
shows "each file is as the package says" rpm_in -V --nodeps libtaut-devel taut-libslirp
shows "pkg-config, cc and the loader use libtaut" compiles "$root" lib64
shows "and libtaut.a" compiles_static "$root" lib64
shows "libslirp.so.0 is beside the system's" beside "$root"
provides() { # Another package that needs libslirp must not get this one.
    command rpm -qp --provides "$dev_rpm" | grep -q '^libtaut.so.0()'
    ! command rpm -qp --provides "$slirp_rpm" | grep libslirp.so
}
shows "it does not stand for the system's libslirp" provides
removed() { rpm_in -e --nodeps libtaut-devel taut-libslirp; files "$root" ! -type d >"$work/after"; equal "$work/before" "$work/after"; }
shows "erase leaves no file" removed

echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]

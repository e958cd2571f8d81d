#!/usr/bin/env bash
# Packages of the libraries, into target/dist, for this machine's processor and C library. Uploads nothing.
#
#   packaging/libraries.sh deb|rpm...
#
#   libtaut-dev, as an RPM libtaut-devel   taut.h, libtaut.so.0, libtaut.so, libtaut.a, taut.pc
#   taut-libslirp                          /usr/lib/taut/libslirp.so.0, where no loader looks by itself
#
# deb needs dpkg-deb, rpm needs rpmbuild (Debian's package rpm).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { printf 'libraries.sh: %s\n' "$@" >&2; exit 1; }
usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; }
[[ $# -gt 0 ]] || { usage >&2; exit 2; }
for kind in "$@"; do
    case $kind in
        deb) command -v dpkg-deb >/dev/null || fail "dpkg-deb is missing: Debian's packages are made on Debian" ;;
        rpm) command -v rpmbuild >/dev/null || fail "rpmbuild is missing: apt-get install rpm" ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
done

cargo=${CARGO:-cargo}
target=${CARGO_TARGET_DIR:-$PWD/target}
dist=$PWD/target/dist
stage=$dist/libraries
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
maintainer=$(sed -n 's/^maintainer = "\(.*\)"/\1/p' crates/taut-cli/Cargo.toml)
triple=$(rustc -vV | sed -n 's/^host: //p')
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}

"$cargo" build --release --locked --quiet -p taut-ffi
"$cargo" build --release --locked --quiet -p taut-slirp

summary_of() {
    case $1 in
        libtaut-*) echo "TCP/IP stack in userspace: header and libraries for C" ;;
        *) echo "libslirp's interface on taut's TCP/IP stack" ;;
    esac
}

# The files of a package, without libtaut's: staged NAME CRATE
staged() {
    local root=$stage/$1 documents=$stage/$1/usr/share/doc/$1
    rm -rf "$root"
    mkdir -p "$documents"
    cp LICENSE-MIT LICENSE-APACHE packaging/copyright "$documents/"
    CARGO=$cargo packaging/third-party "$triple" "$2" | gzip -9n >"$documents/third-party.txt.gz"
}

libtaut() { # libtaut NAME LIBDIR
    local root=$stage/$1
    staged "$1" taut-ffi
    TAUT_FFI_BUILT=$target/release scripts/ffi "$root/usr"
    [[ $2 == lib ]] || mv "$root/usr/lib" "$root/usr/$2"
    sed -i -e 's|^prefix=.*|prefix=/usr|' -e "s|^libdir=.*|libdir=\${prefix}/$2|" "$root/usr/$2/pkgconfig/taut.pc"
}

libslirp() {
    staged "$1" taut-slirp
    install -D -m 644 "$target/release/libslirp.so" "$stage/$1/usr/lib/taut/libslirp.so.0"
}

deb() { # deb NAME
    local root=$stage/$1 section=libs architecture glibc
    [[ $1 != *-dev ]] || section=libdevel
    architecture=$(dpkg --print-architecture)
    # The newest version that a symbol needs.
    glibc=$(find "$root" -name '*.so*' -type f -exec objdump -T {} + | grep -o 'GLIBC_2[0-9.]*' | sort -Vu | tail -1)
    mkdir "$root/DEBIAN"
    (cd "$root" && find usr -type f -exec md5sum {} + >DEBIAN/md5sums)
    # Shared libraries in the loader's folders.
    ! compgen -G "$root/usr/lib/*.so.*" >/dev/null || echo "activate-noawait ldconfig" >"$root/DEBIAN/triggers"
    cat >"$root/DEBIAN/control" <<CONTROL
Package: $1
Version: $version-1
Architecture: $architecture
Maintainer: $maintainer
Section: $section
Priority: optional
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Depends: libc6 (>= ${glibc#GLIBC_}), libgcc-s1
Description: $(summary_of "$1")
CONTROL
    find "$root" -type d -exec chmod 755 {} +
    dpkg-deb --root-owner-group --build "$root" "$dist/$1_$version-1_$architecture.deb" >/dev/null
    du -h --apparent-size "$dist/$1_$version-1_$architecture.deb"
}

rpm() { # rpm NAME
    local root=$stage/$1 spec=$stage/$1.spec
    cat >"$spec" <<SPEC
%global debug_package %{nil}
%global __os_install_post %{nil}
%global _build_id_links none
# A library that programs find only by LD_LIBRARY_PATH is none that other packages may count on.
%global __provides_exclude_from ^/usr/lib/taut/.*\$
Name: $1
Version: $version
Release: 1
Summary: $(summary_of "$1")
License: MIT OR Apache-2.0
%description
$(summary_of "$1").
%install
cp -a "$root/." "%{buildroot}/"
%files
$(cd "$root" && find usr \( -type f -o -type l \) -printf '/%p\n' | sort)
SPEC
    rpmbuild -bb --quiet --define "_topdir $stage/rpmbuild" --define "_rpmdir $dist" \
        --define "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
        --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" "$spec"
    du -h --apparent-size "$dist/$1-$version-1.$(uname -m).rpm"
}

for kind in "$@"; do
    case $kind in
        deb) libtaut libtaut-dev lib && deb libtaut-dev ;;
        rpm) libtaut libtaut-devel lib64 && rpm libtaut-devel ;;
    esac
    libslirp taut-libslirp
    "$kind" taut-libslirp
done
rm -rf "$stage"

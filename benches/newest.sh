#!/bin/sh
# Puts the newest pasta, passt and slirp4netns that Debian has into a folder, beside the system's own: with their libraries and
# the loader from the same packages, and links in bin/. Needs apt, dpkg-deb and patchelf; nothing of the system changes.
#
#   benches/newest.sh FOLDER [SUITE]      SUITE is unstable where it is not said
set -eu
[ $# -ge 1 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
root=$(cd "$1" && pwd)
suite=${2:-unstable}
[ -e "$root/complete" ] && exit 0
stop() {
    echo "newest: $1" >&2
    exit 2
}
for program in apt-get dpkg-deb patchelf; do
    command -v "$program" >/dev/null || stop "$program is missing"
done
# The mirror that this system uses for Debian itself.
# shellcheck disable=SC2016 # apt's own names, not the shell's
mirror=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN)' 'Identifier: Packages' | awk '$2 == "Debian" { print $1; exit }')
[ -n "$mirror" ] || stop "this system has no mirror of Debian"
apt=$root/apt
mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$apt/etc/preferences.d" "$root/files" "$root/bin"
: >"$apt/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/sources.list"
ask() {
    apt-get -q -q -y -o APT::Sandbox::User=root -o Dir::Etc="$apt/etc" -o Dir::Etc::sourcelist="$apt/sources.list" \
        -o Dir::State::status="$apt/status" -o Dir::State::lists="$apt/lists" \
        -o Dir::Cache::archives="$apt/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
        -o DPkg::Lock::Timeout=600 "$@"
}
ask update || stop "the list of $suite cannot be had"
ask install --download-only --no-install-recommends passt slirp4netns || stop "$suite has no passt or no slirp4netns"
for package in "$apt"/archives/*.deb; do
    dpkg-deb -x "$package" "$root/files"
done
files=$root/files
libraries=$files/lib/x86_64-linux-gnu:$files/usr/lib/x86_64-linux-gnu:$files/usr/lib
loader=$(find "$files" -name 'ld-linux-*.so.*' | head -1)
for program in passt pasta passt.avx2 pasta.avx2 slirp4netns; do
    file=$files/usr/bin/$program
    [ -e "$file" ] || continue
    [ -L "$file" ] || patchelf --force-rpath --set-interpreter "$loader" --set-rpath "$libraries" "$file"
    ln -sf "$file" "$root/bin/$program"
done
rm -r "$apt/archives"
touch "$root/complete"

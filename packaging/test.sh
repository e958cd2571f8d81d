#!/usr/bin/env bash
# Installs the packages in target/dist, uses them as people do, and removes them: Debian's in a Debian 12 that debootstrap makes
# and systemd-nspawn starts, the RPM in an empty root by rpm itself, the image by buildah. Root. Nothing is left but
# target/dist/debian-12.tar, the fresh Debian, for the next time.
#
#   packaging/test.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${1:-} in -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;; esac

dist=$PWD/target/dist
. packaging/shows.sh
fail() { printf 'package-test: %s\n' "$@" >&2; exit 1; }
[[ $(id -u) -eq 0 ]] || fail "root is needed: sudo make package-test"
for program in buildah cpio debootstrap rpm rpm2cpio systemd-nspawn nsenter curl python3; do
    command -v "$program" >/dev/null || fail "$program is missing: install it, on Debian with scripts/setup"
done
deb=$(newest "taut_*_$(dpkg --print-architecture).deb") rpm=$(newest "taut-[0-9]*.$(uname -m).rpm") image=$(newest "taut-*-$(uname -m).oci.tar")
[[ -n $deb && -n $rpm && -n $image ]] || fail "target/dist has no deb, rpm or image: make deb rpm image"

work=$(mktemp -d)
root=$work/root
leader='' server=''
# Ends what this script started, by its id, and removes its files.
end() {
    [[ -z $server ]] || kill "$server" 2>/dev/null || true
    if [[ -n $leader ]]; then
        nsenter -t "$leader" -a systemctl poweroff 2>/dev/null || true
        timeout 60 tail --pid="$machine" -f /dev/null || kill -KILL "$machine" || true
    fi
    buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs rm --all >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap end EXIT

echo "Debian 12: $(basename "$deb")"
if [[ ! -f $dist/debian-12.tar ]]; then
    # Where this machine's apt gets Debian from. A proxy, if apt has one, is apt's.
    mirror=$(apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "bookworm" && $2 == "main" { print $3; exit }')
    [[ -n $mirror ]] || fail "apt on this machine has no source of Debian 12: put one into target/dist/debian-12.tar by hand"
    eval "$(apt-config shell http_proxy Acquire::http::Proxy)"
    export http_proxy=${http_proxy:-}
    echo "  making it, once (minutes)"
    debootstrap --variant=minbase --include=bash-completion,dbus,fish,iproute2,libpam-systemd,man-db,systemd-sysv,zsh \
        bookworm "$work/fresh" "$mirror" >"$work/debootstrap" 2>&1 || { tail "$work/debootstrap" >&2; exit 1; }
    tar -C "$work/fresh" --exclude=./var/cache/apt/archives/*.deb -cf "$work/debian-12.tar" .
    mv "$work/debian-12.tar" "$dist/"
    rm -rf "$work/fresh"
fi
mkdir "$root"
tar -C "$root" -xpf "$dist/debian-12.tar"
chroot "$root" useradd -m tester
in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 MANPAGER=cat MANWIDTH=80 DEBIAN_FRONTEND=noninteractive "$@"; }
put_in() {
    cp "$deb" "$root/tmp/taut.deb"
    # Without package lists apt can install it only because it depends on nothing.
    in_root apt-get install -y -q /tmp/taut.deb
}
files "$root" >"$work/before"
shows "apt installs it, and nothing else" put_in
shows "the command runs" in_root taut --version
pages() {
    local page warnings
    in_root man taut | grep -q 'taut proxy\|taut-proxy'
    for page in "$root"/usr/share/man/man1/taut*.1.gz; do
        warnings=$(in_root man --warnings -l "${page#"$root"}" 2>&1 >/dev/null)
        if [[ -n $warnings ]]; then echo "${page##*/}: $warnings" && return 1; fi
    done
    # Pages that the units name.
    for page in $(sed -n 's/^Documentation=man:\(.*\)(1)/\1/p' packaging/units/*); do in_root man -w "$page"; done
}
shows "man shows taut(1); no page has a warning" pages
completes() {
    in_root bash -c '. /usr/share/bash-completion/bash_completion
        _completion_loader taut
        COMP_WORDS=(taut prox) COMP_CWORD=1 COMP_LINE="taut prox" COMP_POINT=9
        function=$(complete -p taut | sed "s/.*-F \([^ ]*\) .*/\1/")
        $function taut prox taut
        [[ ${COMPREPLY[*]} == proxy ]] || { echo "completed: ${COMPREPLY[*]}"; exit 1; }'
}
shows "bash completes taut prox to proxy" completes
shows "systemd finds no mistake in the units" in_root env XDG_RUNTIME_DIR=/run systemd-analyze --user verify \
    /usr/lib/systemd/user/taut-proxy.service /usr/lib/systemd/user/taut-gateway.service
keeps() {
    echo '# mine' >>"$root/etc/taut/proxy.toml"
    in_root dpkg --remove taut
    grep -q '# mine' "$root/etc/taut/proxy.toml"
    test ! -e "$root/usr/bin/taut"
}
shows "remove keeps a changed /etc/taut/proxy.toml" keeps
purges() { in_root dpkg --purge taut; files "$root" >"$work/after"; equal "$work/before" "$work/after"; }
shows "purge leaves no file" purges

echo "Debian 12, started: the units of a user"
shows "apt installs it again" put_in
mkdir -p "$root/var/lib/systemd/linger"
touch "$root/var/lib/systemd/linger/tester"
# The filter of Debian 12's nspawn does not list landlock's calls, so the command would report a kernel without it.
systemd-nspawn --quiet --directory "$root" --private-network --register=no --keep-unit --boot --console=pipe \
    --system-call-filter='landlock_create_ruleset landlock_add_rule landlock_restrict_self' </dev/null >"$work/boot" 2>&1 &
machine=$!
# Its first process is the one whose parent is nspawn.
for _ in {1..120}; do
    leader=$(pgrep -P "$machine" -x systemd || true)
    [[ -z $leader || ! -S /proc/$leader/root/run/user/1000/systemd/private ]] || break
    sleep 0.5
done
[[ -n $leader ]] || { cat "$work/boot" >&2; fail "the Debian did not start"; }
inside() { nsenter -t "$leader" -a "$@"; }
as_user() { inside setpriv --reuid tester --regid tester --init-groups env XDG_RUNTIME_DIR=/run/user/1000 HOME=/home/tester "$@"; }
# The device as udev makes it, and the three commands that the unit names.
inside sh -c '[ -e /dev/net/tun ] || { mkdir -p /dev/net && mknod /dev/net/tun c 10 200; }; chmod 666 /dev/net/tun'
sed -n 's/^# *\(ip .*\)/\1/p' packaging/units/taut-proxy.service | sed 's/NAME/tester/' | inside sh -e
mkdir "$work/www"
head -c 1000000 /dev/urandom >"$work/www/file"
nsenter -t "$leader" -n python3 -m http.server --bind 10.9.0.1 --directory "$work/www" 8000 >/dev/null 2>&1 &
server=$!
shows "the user starts both" as_user systemctl --user start taut-proxy taut-gateway
fish_completes() { as_user fish -c 'complete -C "taut prox"' | grep -q '^proxy'; }
shows "fish completes it" fish_completes
zsh_completes() {
    # What a person would type, at a terminal of its own.
    as_user TERM=vt100 timeout 60 zsh -fc 'zmodload zsh/zpty
        zpty -b shell zsh -f
        until_said() { local said part; until [[ $said == *$1* ]]; do zpty -r shell part && said+=$part || sleep 0.1; done }
        zpty -w shell "autoload -Uz compinit && compinit -u -D; print -r -- rea""dy"
        until_said ready
        zpty -w -n shell $'"'taut prox\\t --help\\n'"'
        until_said "taut proxy --congestion"' </dev/null
}
shows "zsh completes it" zsh_completes
fetches() { # fetches BY...
    local _
    for _ in {1..20}; do
        if nsenter -t "$leader" -n curl -sS --max-time 20 "$@" -o "$work/got" http://10.9.0.1:8000/file; then
            cmp "$work/www/file" "$work/got"
            return
        fi
        sleep 0.5
    done
    return 1
}
shows "curl fetches a megabyte by SOCKS5" fetches --socks5-hostname 127.0.0.1:1080
shows "curl fetches it by CONNECT" fetches --proxytunnel -x 127.0.0.1:1080
confined() {
    local unit pid
    for unit in taut-proxy taut-gateway; do
        pid=$(as_user systemctl --user show -P MainPID "$unit")
        # The unit's filter and the command's own.
        inside grep -E '^(NoNewPrivs|CapEff|Seccomp):' "/proc/$pid/status" >"$work/status"
        cat "$work/status"
        tr '\t\n' '  ' <"$work/status" | grep -Eqx 'CapEff: 0+ NoNewPrivs: 1 Seccomp: 2 '
    done
    inside stat -c '%U %a' /run/user/1000/taut-gateway/net | grep -qx 'tester 600'
}
shows "both run without rights, the gateway at its socket" confined
reloads() { as_user systemctl --user reload taut-gateway; sleep 1; as_user systemctl --user is-active taut-gateway; }
shows "the gateway reads its settings again" reloads
stops() {
    as_user systemctl --user stop taut-proxy taut-gateway
    local failed
    failed=$(as_user systemctl --user --failed --plain --no-legend)
    [[ -n $failed ]] || return 0
    echo "$failed"
    inside journalctl --no-pager -n 20
    return 1
}
shows "both stop without an error" stops
gone() {
    inside dpkg --purge taut
    inside find / -xdev -name '*taut*' -not -path '/tmp/*' -not -path '/var/log/*' -not -path '/var/cache/man/*' >"$work/left"
    cat "$work/left"
    test ! -s "$work/left"
}
shows "purge leaves nothing of that name" gone

echo "an empty root: $(basename "$rpm")"
mkdir "$work/rpm"
rpm_in() { command rpm --root "$work/rpm" --dbpath /var/lib/rpm "$@"; }
rpm_in --initdb
# rpm makes and owns these; the package does not.
mkdir -p "$work/rpm"/{etc,usr,var/tmp}
files "$work/rpm" ! -type d >"$work/before"
shows "rpm installs it; it needs no other package" rpm_in -i "$rpm"
shows "each file is as the package says" rpm_in -V taut
shows "the command runs without any other file of a system" chroot "$work/rpm" /usr/bin/taut --version
settings() { [[ $(rpm_in -qc taut | tr '\n' ' ') == "/etc/taut/gateway.toml /etc/taut/proxy.toml " ]]; }
shows "its settings are marked" settings
same() { # But for places that each family of distributions has of its own.
    dpkg-deb -c "$deb" | awk '$1 !~ /^d/ { print substr($6, 2) }' | sed 's,/zsh/vendor-completions/,/zsh/site-functions/,' >"$work/deb.list"
    command rpm -qlp "$rpm" | grep -v '^/usr/share/licenses/' >"$work/rpm.list"
    equal <(grep -v '^/usr/share/doc/taut/\(copyright\|LICENSE-MIT\|third-party\)' "$work/deb.list") "$work/rpm.list"
}
shows "it has the files of the Debian package" same
shows "rpm2cpio unpacks it" bash -c 'rpm2cpio "$0" | cpio --quiet -t | grep -qx ./usr/bin/taut' "$rpm"
# Folders stay: in a distribution, they belong to its own package of folders.
removed() { rpm_in -e taut; files "$work/rpm" ! -type d >"$work/after"; equal "$work/before" "$work/after"; }
shows "erase leaves no file" removed

echo "an image: $(basename "$image")"
in_image() { buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs "$@"; }
container=$(in_image from --quiet "oci-archive:$image")
shows "the command runs in it" in_image run --isolation chroot "$container" -- /usr/bin/taut --version
shows "a scenario runs in it" in_image run --isolation chroot "$container" -- /usr/bin/taut lab run small-writes --seeds 1 --no-files
shape() { [[ $(in_image inspect --format '{{.OCIv1.Config.User}} {{.OCIv1.Config.Entrypoint}}' "$container") == "65534:65534 [/usr/bin/taut]" ]]; }
shows "it starts taut as nobody" shape

echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]

#!/bin/sh
# `taut gateway --run` beside pasta, slirp4netns, gvproxy and tun2proxy, in turns in one run, in the same topology. Needs root, and
# Go (https://go.dev/dl). Gets what is missing: iperf3 by apt, the newest passt and slirp4netns of Debian into target/peers
# (newest.sh; SYSTEM_PEERS=1 measures the system's own instead, and the output says so), gvproxy as a Go module, tun2proxy as a
# crate. Stops if one cannot be had; --only leaves others out.
#
#   benches/gateway.sh [--rounds N] [--seconds N] [--only taut,pasta] [--rows up1,down1] [--machines | --tunnels] [--json]
#
# With --tunnels programs carry connections through a WireGuard tunnel: taut proxy, gVisor's TCP by wireguard-go's netstack,
# onetun, a crate, and the kernel's TCP with boringtun-cli, which is the far end, too (`make wireguard-peers`).
# --lines short,lossy,slow20 leaves lines out.
# With --machines the guest is an emulated machine, and passt stands in pasta's column, QEMU's own network in slirp4netns's.
set -eu
cd "$(dirname "$0")/.."
gvproxy=v0.8.9
tun2proxy=0.8.7
onetun=0.3.10
target=${CARGO_TARGET_DIR:-$PWD/target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
peers=$target/peers
stop() {
    echo "bench-gateway: $1" >&2
    exit 2
}
# What --only says, in one word or two.
only=
before=
for word in "$@"; do
    case $word in --only=*) only=${word#--only=} ;; esac
    if [ "$before" = --only ]; then only=$word; fi
    before=$word
done
wanted() {
    case ",$only," in ,,) return 0 ;; *",$1,"*) return 0 ;; esac
    return 1
}
tunnels=
case " $* " in *" --tunnels "*) tunnels=1 ;; esac
scripts/setup iproute2 iperf3
for program in ip iperf3 nsenter unshare; do
    command -v "$program" >/dev/null || stop "$program is missing"
done
if [ -n "$tunnels" ]; then
    peers=${PEERS:-$peers}
    [ -x "$peers/bin/boringtun-cli" ] || stop "boringtun-cli is missing: make wireguard-peers"
    [ -x "$peers/bin/onetun" ] ||
        cargo install --quiet --locked --root "$peers" --version "$onetun" onetun || stop "onetun $onetun does not build"
    (cd benches/gateway/netstack && go build -o "$peers/bin/netstack" .) || stop "wireguard-go's netstack does not build"
elif wanted pasta || wanted slirp4netns; then
    if [ -z "${SYSTEM_PEERS:-}" ]; then
        scripts/setup patchelf
        benches/newest.sh "$peers/debian" || stop "the newest pasta and slirp4netns cannot be had; SYSTEM_PEERS=1 takes the system's"
        PATH=$peers/debian/bin:$PATH
    else
        scripts/setup passt slirp4netns
        echo "pasta and slirp4netns are the system's, which may be old: $(dpkg-query -W passt slirp4netns | tr '\t\n' ' ;')"
    fi
fi
if [ -z "$tunnels" ] && wanted gvproxy && ! [ -x "$peers/bin/gvforwarder" ]; then
    command -v go >/dev/null || stop "go is missing; it builds gvproxy (https://go.dev/dl, or apt-get install golang)"
    module=github.com/containers/gvisor-tap-vsock
    GOBIN=$peers/bin go install "$module/cmd/gvproxy@$gvproxy" || stop "gvproxy $gvproxy does not build"
    # The program that carries a TAP's frames to gvproxy is called `vm` in the module.
    GOBIN=$peers/go go install "$module/cmd/vm@$gvproxy" || stop "gvforwarder $gvproxy does not build"
    cp "$peers/go/vm" "$peers/bin/gvforwarder"
fi
if [ -z "$tunnels" ] && wanted tun2proxy && ! [ -x "$peers/bin/tun2proxy-bin" ]; then
    cargo install --quiet --locked --root "$peers" --version "$tun2proxy" --bin tun2proxy-bin tun2proxy ||
        stop "tun2proxy $tun2proxy does not build"
fi
case " $* " in *" --machines "*)
    scripts/setup qemu-system-x86
    scripts/guest-kernel
    ;;
esac
cargo build --quiet --release --locked -p taut-cli
cargo build --quiet --release --locked --manifest-path benches/gateway/Cargo.toml --target-dir "$target/gateways"
iperf3 --version | head -1
exec "$target/gateways/release/taut-gateways" --taut "$target/release/taut" --gvproxy "$peers/bin/gvproxy" \
    --gvforwarder "$peers/bin/gvforwarder" --tun2proxy "$peers/bin/tun2proxy-bin" \
    --netstack "$peers/bin/netstack" --onetun "$peers/bin/onetun" --boringtun "$peers/bin/boringtun-cli" "$@"

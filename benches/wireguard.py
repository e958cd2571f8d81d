#!/usr/bin/env python3
"""taut, wireproxy (gVisor) and onetun (smoltcp) through a WireGuard tunnel to the same far end: boringtun-cli over a TUN, in a
network namespace, with the kernel's TCP behind it. Prints throughput up and down with 1 and 8 flows, and the CPU time of
the near end. Run as root: `make bench-wireguard BENCH_ARGS="--rounds 3 --line lossy"`.

Each program is a client-side proxy: taut and wireproxy by SOCKS5, onetun by a forwarded port. The far end's congestion
control is this host's (printed); taut's is --congestion; gVisor has Reno by default, smoltcp has none.
"""

import argparse
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = pathlib.Path(os.environ.get("TAUT_WIREGUARD_PEERS", ROOT / "target/peers/bin"))
SINK, SOURCE = 5001, 5002
LINES = {
    "clean": "",
    "lossy": "netem delay 25ms rate 100mbit loss 0.5% limit 1000",
    "slow": "tbf rate 20mbit burst 10kb limit 250kb",
}
GET = {
    "taut": "cargo build --release -p taut-cli",
    "wireproxy": "go install github.com/pufferffish/wireproxy/cmd/wireproxy@latest",
    "onetun": "cargo install --root target/peers onetun",
    "boringtun-cli": "make wireguard-peers",
}


def program(name):
    path = ROOT / "target/release/taut" if name == "taut" else PEERS / name
    if not path.exists():
        sys.exit(f"wireguard: {path} is missing: {GET[name]}")
    return str(path)


def run(*words, pid=None):
    inside = ["nsenter", "-t", str(pid), "-n"] if pid else []
    return subprocess.run([*inside, *" ".join(map(str, words)).split()], check=True, capture_output=True, text=True).stdout


def key(secret=None):
    words = [program("taut"), "wg", "pubkey" if secret else "genkey"]
    return subprocess.run(words, input=secret, check=True, capture_output=True, text=True).stdout.strip()


def hexed(text):
    import base64
    return base64.b64decode(text).hex()


FAR = """
import socket, threading
def sink(s):
    while s.recv(1 << 18): pass
    s.close()
def source(s):
    try:
        while True: s.sendall(bytes(1 << 18))
    except OSError: s.close()
def serve(port, work):
    listener = socket.create_server(("", port), backlog=64)
    while True: threading.Thread(target=work, args=(listener.accept()[0],), daemon=True).start()
threading.Thread(target=serve, args=(5001, sink), daemon=True).start()
serve(5002, source)
"""


class World:
    """This process is in a namespace of its own (see `main`); the far end is in another."""

    def __init__(self, line, folder):
        self.folder, self.children = folder, []
        far = self.start(["unshare", "-n", "sleep", "1000000"])
        time.sleep(0.5)
        run("ip link set lo up")
        run(f"ip link add veth0 type veth peer name veth0 netns {far.pid}")
        run("ip address add 10.70.0.2/24 dev veth0")
        run("ip link set veth0 up")
        for line_ in ["ip link set lo up", "ip address add 10.70.0.1/24 dev veth0", "ip link set veth0 up"]:
            run(line_, pid=far.pid)
        if line:
            run(f"tc qdisc add dev veth0 root {line}")
            run(f"tc qdisc add dev veth0 root {line}", pid=far.pid)
        self.near_key, self.far_key = key(), key()
        name = f"wgb{os.getpid() % 100000}"
        inside = ["nsenter", "-t", str(far.pid), "-n"]
        self.start([*inside, program("boringtun-cli"), "-f", "--disable-drop-privileges", name])
        self.socket = at = f"/var/run/wireguard/{name}.sock"
        while not os.path.exists(at):
            time.sleep(0.05)
        time.sleep(0.2)
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(at)
            control.sendall((f"set=1\nprivate_key={hexed(self.far_key)}\nlisten_port=51820\n"
                             f"public_key={hexed(key(self.near_key))}\nallowed_ip=10.88.0.2/32\n\n").encode())
            assert control.recv(64).startswith(b"errno=0")
        run(f"ip address add 10.88.0.1/24 dev {name}", pid=far.pid)
        run(f"ip link set {name} mtu 1420 up", pid=far.pid)
        self.start([*inside, sys.executable, "-c", FAR])

    def start(self, words):
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.children.append(child)
        return child

    def near(self, name, congestion):
        """Starts a near end. Returns its process, and a function that connects through it."""
        peer = f"PublicKey = {key(self.far_key)}\nAllowedIPs = 10.88.0.1/32\nEndpoint = 10.70.0.1:51820\n"
        own = f"[Interface]\nPrivateKey = {self.near_key}\nAddress = 10.88.0.2/32\nDNS = 10.88.0.1\nMTU = 1420\n[Peer]\n{peer}"
        path = self.folder / f"{name}.conf"
        path.write_text(own + ("[Socks5]\nBindAddress = 127.0.0.1:1080\n" if name == "wireproxy" else ""))
        path.chmod(0o600)
        if name == "taut":
            words = [program(name), "proxy", "--out", f"wireguard:{path}", "--congestion", congestion]
        elif name == "wireproxy":
            words = [program(name), "-c", str(path)]
        else:
            ports = [f"127.0.0.1:{port}:10.88.0.1:{port}" for port in (SINK, SOURCE)]
            words = [program(name), *ports, "--endpoint-addr", "10.70.0.1:51820", "--endpoint-public-key", key(self.far_key),
                     "--private-key", self.near_key, "--source-peer-ip", "10.88.0.2"]
        child = self.start(words)
        time.sleep(1.5)
        return child, (self.forwarded if name == "onetun" else self.by_socks)

    @staticmethod
    def forwarded(port):
        return socket.create_connection(("127.0.0.1", port))

    @staticmethod
    def by_socks(port):
        stream = socket.create_connection(("127.0.0.1", 1080))
        stream.sendall(b"\x05\x01\x00")
        assert stream.recv(2) == b"\x05\x00"
        stream.sendall(b"\x05\x01\x00\x01\x0a\x58\x00\x01" + port.to_bytes(2, "big"))
        assert stream.recv(10)[1] == 0
        return stream

    def end(self):
        for child in reversed(self.children):
            child.kill()
            child.wait()
        pathlib.Path(self.socket).unlink(missing_ok=True)


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(connect, pid, up, flows, seconds):
    """Mbit/s, and CPU seconds for each GB."""
    streams = [connect(SINK if up else SOURCE) for _ in range(flows)]
    counts, end = [0] * flows, time.monotonic() + seconds
    block = bytes(1 << 17)

    def work(at):
        stream = streams[at]
        while time.monotonic() < end:
            counts[at] += stream.send(block) if up else len(stream.recv(1 << 17))
        if up:
            stream.shutdown(socket.SHUT_WR)
            stream.recv(1)  # the far end has read everything
        stream.close()

    began, cpu = time.monotonic(), cpu_seconds(pid)
    threads = [threading.Thread(target=work, args=(at,)) for at in range(flows)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    took, cpu = time.monotonic() - began, cpu_seconds(pid) - cpu
    return sum(counts) * 8e-6 / took, cpu / max(sum(counts) / 1e9, 1e-9)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=5)
    options.add_argument("--line", choices=LINES, default="clean")
    options.add_argument("--only", default="taut,wireproxy,onetun")
    options.add_argument("--congestion", default="cubic")
    args = options.parse_args()
    if "TAUT_BENCH_INSIDE" not in os.environ:
        os.environ["TAUT_BENCH_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    kernel = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    print(f"line {args.line}; taut {args.congestion}, the far kernel {kernel}; medians of {args.rounds}", flush=True)
    results = {}
    for _ in range(args.rounds):
        for name in args.only.split(","):
            with tempfile.TemporaryDirectory() as folder:
                world = World(LINES[args.line], pathlib.Path(folder))
                try:
                    child, connect = world.near(name, args.congestion)
                    for up in (True, False):
                        for flows in (1, 8):
                            result = measure(connect, child.pid, up, flows, args.seconds)
                            results.setdefault((name, up, flows), []).append(result)
                finally:
                    world.end()
    print(f"{'program':10} {'way':5} {'flows':>5} {'Mbit/s':>9} {'CPU s/GB':>9}")
    for (name, up, flows), found in results.items():
        rate, cpu = (statistics.median(column) for column in zip(*found))
        print(f"{name:10} {'up' if up else 'down':5} {flows:5} {rate:9.1f} {cpu:9.2f}")


main()

#!/usr/bin/env bash
# What the kernel's own sender keeps in the queue of its host: iperf3 over veth and tbf, the backlog sampled with tc.
# The figure beside taut's in docs/mechanisms.md. As root; needs iperf3 and sch_tbf.
#
#   benches/kernel/tsq.sh [RATE [CONGESTION_CONTROL [SECONDS]]]      1gbit cubic 4 unless given
set -euo pipefail
rate=${1:-1gbit} control=${2:-cubic} seconds=${3:-4}

a=taut-tsq-a-$$ b=taut-tsq-b-$$
server=
cleanup() {
  [[ -z $server ]] || kill "$server" 2>/dev/null || true
  ip netns del "$a" 2>/dev/null || true
  ip netns del "$b" 2>/dev/null || true
}
trap cleanup EXIT

ip netns add "$a"
ip netns add "$b"
ip link add va netns "$a" type veth peer name vb netns "$b"
ip -n "$a" addr add 10.77.0.1/24 dev va
ip -n "$b" addr add 10.77.0.2/24 dev vb
ip -n "$a" link set va up
ip -n "$b" link set vb up
ip netns exec "$a" tc qdisc add dev va root tbf rate "$rate" burst 256kb limit 20mb
ip netns exec "$b" iperf3 -s -1 >/dev/null 2>&1 &
server=$!
sleep 0.3
ip netns exec "$a" iperf3 -c 10.77.0.2 -t "$seconds" -C "$control" --json >/dev/null &
client=$!
sleep 1
while kill -0 "$client" 2>/dev/null; do
  ip netns exec "$a" tc -s -j qdisc show dev va
  sleep 0.05
done | grep -o '"backlog":[0-9]*' | cut -d: -f2 | sort -n |
  awk -v rate="$rate" -v control="$control" '
    $1 > 0 { sample[++n] = $1; sum += $1 }
    END {
      if (n == 0) { print "no backlog was seen"; exit 1 }
      printf "kernel %s over %s: backlog in bytes: mean %d, median %d, p99 %d, max %d (%d samples)\n",
        control, rate, sum / n, sample[int((n + 1) / 2)], sample[int(n * 0.99)], sample[n], n
    }'
wait "$client" || true

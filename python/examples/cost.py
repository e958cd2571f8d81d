"""What a congestion controller in Python costs: Reno in Rust and in Python, by turns, over the same 60 s of 50 Mbit/s."""

import statistics
import time

import taut_lab


class Reno(taut_lab.Controller):
    def on_ack(self, window, ack):
        rest = window.slow_start(ack.acked) if window.in_slow_start else ack.acked
        if rest > 0:
            window.additive(window.cwnd, rest)

    def on_loss(self, window, why, now_s):
        return window.cwnd // 2


times = {"reno": [], "python-reno": []}
digests = set()
for _ in range(5):
    for name, taken in times.items():
        began = time.monotonic()
        change = {"congestion": name, "duration": "60s"}
        result = taut_lab.run(
            "congestion", change, 1, variants="reno", controllers={"python-reno": Reno}, keep="none", threads=1
        )
        taken.append(time.monotonic() - began)
        digests.add(result.runs[0].digest)
assert len(digests) == 1, "the runs are the same run"
for name, taken in times.items():
    print(f"{name}: {statistics.median(taken):.2f} s, {min(taken):.2f} to {max(taken):.2f}, n = {len(taken)}")
rust, python = (statistics.median(taken) for taken in times.values())
print(f"{python / rust:.1f} times as long")

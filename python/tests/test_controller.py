"""Congestion controllers in Python."""

from __future__ import annotations

import pytest
from test_lab import SMALL

import taut_lab


class Reno(taut_lab.Controller):
    """RFC 5681, as the one in Rust."""

    def on_ack(self, window: taut_lab.Window, ack: taut_lab.Ack) -> None:
        left = window.slow_start(ack.acked) if window.in_slow_start else ack.acked
        if left > 0:
            window.additive(window.cwnd, left)

    def on_loss(self, window: taut_lab.Window, why: taut_lab.Signal, now_s: float) -> int:
        return window.cwnd // 2


def test_py_07_a_reno_in_python_is_reno() -> None:
    whole = {"duration": "10s", "warm-up": "0s"}
    ours = taut_lab.run(SMALL, set={**whole, "congestion": "python-reno"}, controllers={"python-reno": Reno}, seeds=2)
    theirs = taut_lab.run(SMALL, set=whole, seeds=2)
    assert len(ours.runs) == 2
    for run, other in zip(ours.runs, theirs.runs):
        # Something was lost, so that all of it was asked.
        assert other.metrics["retransmits"] > 0
        # Every event at the same time: not within 1 %, but equal.
        assert run.digest == other.digest
        assert run.metrics == other.metrics


def test_py_08_the_window_halves_on_loss_as_it_says() -> None:
    log: list[tuple[int, str, float]] = []

    class Halving(Reno):
        def on_loss(self, window: taut_lab.Window, why: taut_lab.Signal, now_s: float) -> int:
            log.append((window.cwnd, why, now_s))
            return super().on_loss(window, why, now_s)

    # A host that takes each ACK when it arrives, so that none has the time of another.
    changes = {"congestion": "halving", "host": "ideal"}
    result = taut_lab.run(SMALL, set=changes, controllers={"halving": Halving}, seeds=1)
    assert log and all(why == "loss" for _, why, _ in log)
    rows = result.acks.to_pydict()
    for cwnd, _, now_s in log:
        at = next(index for index, t_s in enumerate(rows["t_s"]) if t_s >= now_s)
        # Where slow start ends is half of the window, to the segment, from the ACK that showed the loss.
        assert rows["ssthresh_bytes"][at] == cwnd // 2 * 1448
        # And the window gets there within the recovery.
        after = next(i for i in range(at, len(rows["t_s"])) if rows["ca_state"][i] == "open")
        assert rows["cwnd_bytes"][after] <= (cwnd // 2 + 1) * 1448


def test_py_09_parameters_are_given_by_the_scenario() -> None:
    made: list[float] = []

    class Fixed(taut_lab.Controller):
        params = {"cwnd": (10.0, 1.0, 1000.0, "segments")}

        def __init__(self, cwnd: float) -> None:
            made.append(cwnd)
            self.segments = int(cwnd)

        def on_ack(self, window: taut_lab.Window, ack: taut_lab.Ack) -> None:
            window.cwnd = self.segments

        def on_loss(self, window: taut_lab.Window, why: taut_lab.Signal, now_s: float) -> int:
            return self.segments

    fixed = {"fixed": Fixed}
    goodput = []
    for text in ("fixed", "fixed:cwnd=20"):
        (run,) = taut_lab.run(SMALL, set={"congestion": text}, controllers=fixed, seeds=1).runs
        goodput.append(run.metrics["goodput"])
    assert made == [10.0, 20.0]
    # Ten segments of 1448 bytes a round trip: 20 ms of delay, and the time of ten packets at most.
    for segments, measured in zip((10, 20), goodput):
        most = segments * 1448 * 8 / 20e-3 / 1e6
        assert most * 0.7 < measured <= most
    with pytest.raises(taut_lab.ScenarioError, match="cwnd = 0: must be a number from 1 to 1000") as caught:
        taut_lab.run(SMALL, set={"congestion": "fixed:cwnd=0"}, controllers=fixed)
    assert caught.value.key == "congestion"
    with pytest.raises(taut_lab.ScenarioError, match="unknown congestion control other; choose one of .* fixed"):
        taut_lab.run(SMALL, set={"congestion": "other"}, controllers=fixed)


def test_py_10_what_a_controller_raises_is_raised() -> None:
    class Broken(Reno):
        def on_loss(self, window: taut_lab.Window, why: taut_lab.Signal, now_s: float) -> int:
            raise ZeroDivisionError("on purpose")

    class Wordy(Reno):
        def on_loss(self, window: taut_lab.Window, why: taut_lab.Signal, now_s: float) -> int:
            return "half"  # type: ignore[return-value]

    class Unmade(Reno):
        def __init__(self) -> None:
            raise LookupError("not made")

    class Empty:
        pass

    def run(controller: type) -> None:
        taut_lab.run(SMALL, set={"congestion": "mine"}, controllers={"mine": controller}, seeds=2)

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        run(Broken)
    with pytest.raises(TypeError, match="on_loss must return the new ssthresh, .*, not 'half'"):
        run(Wordy)
    with pytest.raises(LookupError, match="not made"):
        run(Unmade)
    with pytest.raises(TypeError, match="a controller needs a method on_ack"):
        run(Empty)
    with pytest.raises(ValueError, match="the name is taken"):
        taut_lab.run(SMALL, controllers={"cubic": Reno})


def test_py_11_every_method_is_called_and_has_its_values() -> None:
    called: dict[str, int] = {}

    def count(name: str) -> None:
        called[name] = called.get(name, 0) + 1

    class All(Reno):
        def observe(self, ack: taut_lab.Ack) -> None:
            count("observe")
            assert ack.now_s >= 0 and ack.mss == 1448 and 0 <= ack.una <= ack.nxt
            assert ack.rtt_s is None or 0.02 <= ack.rtt_s < 1
            if ack.rate is not None:
                count("rate")
                assert ack.rate.delivered > 0
                assert ack.rate.bytes_per_s == pytest.approx(ack.rate.delivered * ack.mss / ack.rate.interval_s, abs=1)

        def on_packet_lost(self, packet: taut_lab.LostPacket) -> None:
            count("on_packet_lost")
            assert packet.segs >= 1 and packet.tx_in_flight >= packet.segs

        def on_recovery_end(self, window: taut_lab.Window) -> None:
            count("on_recovery_end")

        def pacing_rate(self) -> int:
            count("pacing_rate")
            return 1_000_000

    paced = type("Paced", (All,), {"paced": True})
    (run,) = taut_lab.run(SMALL, set={"congestion": "all"}, controllers={"all": paced}, seeds=1).runs
    assert {"observe", "rate", "pacing_rate"} <= set(called)
    # A million bytes a second, with headers or without.
    assert 7.0 < run.metrics["goodput"] <= 8.0 * 1.001
    unpaced = type("Unpaced", (All,), {"pacing_rate": Reno.pacing_rate})
    taut_lab.run(SMALL, set={"congestion": "all"}, controllers={"all": unpaced}, seeds=1)
    assert {"on_packet_lost", "on_recovery_end"} <= set(called)


def test_py_11_a_window_can_be_tried_without_a_run() -> None:
    window = taut_lab.Window(10)
    assert (window.cwnd, window.ssthresh, window.in_slow_start) == (10, None, True)
    assert window.slow_start(5) == 0 and window.cwnd == 15
    window.leave_slow_start()
    assert window.ssthresh == 15 and not window.in_slow_start
    window.additive(15, 15)
    assert window.cwnd == 16
    window.cwnd = 0
    assert window.cwnd == 1

//! The statements of docs/spec/congestion.md about windows: CUBIC, Reno, slow start, idle and unused windows.
//! BBR's are in `bbr/tests/`, DCTCP's in `dctcp.rs`.

mod cubic;
mod hystart;
mod reno;
mod unused;

use super::*;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(1_000_000_000 + ms * 1_000_000)
}

fn event(now: Instant, acked: u32, rtt_ms: u64, una: u64, nxt: u64) -> AckEvent<'static> {
    let rtt = Some(Duration::from_millis(rtt_ms));
    let mut event = AckEvent::new(now, 1448, acked);
    event.cwnd_limited = false;
    (event.rtt, event.srtt, event.min_rtt) = (rtt, rtt, rtt);
    (event.una, event.nxt) = (una, nxt);
    event
}

/// An ACK of `acked` segments while the window is the limit, at `ms`, on a path of `rtt_ms`.
fn ack(cc: &mut Congestion, ms: u64, acked: u32, rtt_ms: u64) {
    cc.on_ack(AckEvent { cwnd_limited: true, ..event(at(ms), acked, rtt_ms, 0, 0) }, true);
}

/// A connection with this window and threshold.
fn with_window(algorithm: Algorithm, cwnd: u32, ssthresh: u32) -> Congestion {
    let mut cc = Congestion::new(algorithm);
    let window = &mut cc.live(at(0)).window;
    window.set_cwnd(cwnd);
    window.ssthresh = ssthresh;
    cc
}

/// A loss, and its repair.
fn lose(cc: &mut Congestion, ms: u64) {
    cc.begin_reduction(at(ms), Signal::Loss, true);
    cc.end_reduction();
}

#[test]
fn pace_10_rates_of_slow_start_and_of_congestion_avoidance() {
    let cfg = CongestionConfig::default();
    let mut cc = Congestion::new(Algorithm::reno());
    let srtt = Some(Duration::from_millis(40));
    assert_eq!(cc.pacing_rate(), u64::MAX);
    cc.update_pacing_rate(1448, srtt, 0, u64::MAX, &cfg);
    assert_eq!(cc.pacing_rate(), 724_000);
    cc.live(at(0)).window.ssthresh = 20;
    cc.update_pacing_rate(1448, srtt, 0, u64::MAX, &cfg);
    assert_eq!(cc.pacing_rate(), 434_400, "cwnd = ssthresh/2 is 120 %");
    cc.update_pacing_rate(1448, srtt, 0, 100_000, &cfg);
    assert_eq!(cc.pacing_rate(), 100_000);
    cc.clamp_pacing_rate(50_000);
    assert_eq!(cc.pacing_rate(), 50_000);
}

/// A congestion control with a pacing rate of its own.
#[derive(Debug)]
struct Rated(u64);

impl Controller for Rated {
    fn on_ack(&mut self, _: &mut Window, _: &AckEvent<'_>) {}

    fn reduce(&mut self, window: &Window, _: Signal, _: Instant) -> u32 {
        window.cwnd()
    }

    fn pacing_rate(&self) -> Option<u64> {
        (self.0 > 0).then_some(self.0)
    }

    fn on_idle_end(&mut self, _: &mut Window, _: Instant, _: Duration) {
        self.0 = 300_000;
    }
}

#[test]
fn cc_11_a_congestion_control_may_have_a_rate_of_its_own() {
    let cfg = CongestionConfig::default();
    let srtt = Some(Duration::from_millis(40));
    let rated = |rate| Algorithm::new(Definition::new("rated", move |_| Rated(rate))).unwrap();
    // None: 200 % of ten segments in 40 ms.
    for (own, most, rate) in
        [(0, u64::MAX, 724_000), (900_000, u64::MAX, 900_000), (900_000, 400_000, 400_000)]
    {
        let mut cc = with_window(rated(own), 10, u32::MAX);
        cc.update_pacing_rate(1448, srtt, 0, most, &cfg);
        assert_eq!(cc.pacing_rate(), rate, "{own} {most}");
    }
    // After an idle time it is asked at once, before any ACK.
    let mut cc = with_window(rated(900_000), 10, u32::MAX);
    cc.update_pacing_rate(1448, srtt, 0, u64::MAX, &cfg);
    cc.on_idle_restart(at(5_000), at(0), Duration::from_millis(240), u64::MAX, &cfg);
    assert_eq!(cc.pacing_rate(), 300_000);
    cc.on_idle_restart(at(9_000), at(5_000), Duration::from_millis(240), 100_000, &cfg);
    assert_eq!(cc.pacing_rate(), 100_000, "but not above the maximum");
}

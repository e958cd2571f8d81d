//! Converts taut's report on a connection to the units of files and tables. Called by the simulator's runner,
//! its collector, and the live sender.

use taut_core::{ConnInfo, Duration, Report};

use crate::data::Interval;

/// A span in seconds.
pub(crate) fn seconds(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e9
}

/// Payload sent and not acknowledged.
pub(crate) fn in_flight_bytes(report: &Report) -> u64 {
    report.queues.iter().find(|queue| queue.name == "in flight").map_or(0, |queue| queue.bytes)
}

/// The state of a sender, except time, goodput, bytes in flight and the queues of its host.
pub(crate) fn point(info: &ConnInfo) -> Interval {
    let mss = u64::from(info.snd_mss);
    Interval {
        unsent_bytes: info.notsent_bytes,
        below_tcp_bytes: Some(info.wmem_alloc.into()),
        cwnd_bytes: u64::from(info.snd_cwnd) * mss,
        ssthresh_bytes: ssthresh_bytes(info.snd_ssthresh, mss),
        peer_window_bytes: info.snd_wnd.into(),
        pacing_bps: pacing_bps(info.pacing_rate),
        delivery_bps: info.delivery_rate as f64 * 8.0,
        srtt_s: info.rtt.map(seconds),
        ..Interval::default()
    }
}

/// Slow-start threshold, if there is one: the value for "none" is 2³¹ − 1 segments, in Linux and in taut.
pub(crate) fn ssthresh_bytes(segments: u32, mss: u64) -> Option<u64> {
    (segments < 0x7fff_ffff).then(|| u64::from(segments) * mss)
}

/// Pacing rate in bits per second, if there is a limit: the value for "none" is all ones, in Linux and in
/// taut.
pub(crate) fn pacing_bps(bytes_per_second: u64) -> Option<f64> {
    (bytes_per_second != u64::MAX).then_some(bytes_per_second as f64 * 8.0)
}

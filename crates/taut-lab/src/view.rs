//! What taut tells of a connection, in the units of files and tables. Called by whoever watches taut: the simulator's runner
//! and its collector, and the live sender.

use taut_core::{ConnInfo, Duration, Report};

use crate::data::Interval;

/// Seconds of a span.
pub(crate) fn seconds(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1e9
}

/// Payload sent and not acknowledged.
pub(crate) fn in_flight_bytes(report: &Report) -> u64 {
    report.queues.iter().find(|queue| queue.name == "in flight").map_or(0, |queue| queue.bytes)
}

/// The state of a sender: all but time, goodput, in flight, and what is about the queues of its host.
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

/// Slow-start threshold, if there is one: Linux's "none" is 2³¹ − 1 segments, and so is taut's.
pub(crate) fn ssthresh_bytes(segments: u32, mss: u64) -> Option<u64> {
    (segments < 0x7fff_ffff).then(|| u64::from(segments) * mss)
}

/// Bits a second, if there is a limit: Linux's "none" is all ones, and so is taut's.
pub(crate) fn pacing_bps(bytes_per_second: u64) -> Option<f64> {
    (bytes_per_second != u64::MAX).then_some(bytes_per_second as f64 * 8.0)
}

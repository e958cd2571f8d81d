//! TSO deferral: wait for the next ACK when it will make the super-packet bigger.
//! Linux 6.12 (`tcp_tso_should_defer`); called by `plan` for candidates of more than one segment.
//!
//! **Problem.** Every ACK opens the window by two segments; sending those at once turns super-packets of
//! 64 KB into ones of 3 KB, and nothing ever makes them bigger again: the ACKs cover as little as the packets
//! did.
//!
//! **Rule.** Wait, unless waiting could cost something. A packet leaves at once in loss recovery, when the
//! last departure is more than a millisecond ago, when the windows allow as much as autosizing wants, or a
//! third of the whole window (`tcp_tso_win_divisor`), when it fits and is not the end of the written data,
//! when nothing is in flight, and when the next ACK, expected an RTT after the head left, is further away
//! than half an RTT or a millisecond. There is no timer: the awaited ACK asks again, so a wrong guess costs
//! one more ACK, never a stall.
//!
//! **Why it names the window.** A deferred sender looks idle. It counts as limited by the window that it
//! waits for, so that cwnd may still grow. A sender that only lacks data does not wait if the data ends with
//! a FIN or an end of record.
//!
//! **History.** Until 2.6 a timer ended the wait after at most two clock ticks. As long as deferral and
//! autosizing aimed at different sizes, packets were cut to one segment more than deferral had waited for;
//! since 3.19 the goal is the same.

use crate::egress::blocked::Blocked;
use crate::words::{Duration, Instant};

/// Everything on which the decision depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defer {
    pub(crate) now: Instant,
    /// When the latest packet departed (or will).
    pub(crate) last_departure: Instant,
    /// Recovery or Loss: repairs must not wait.
    pub(crate) recovering: bool,
    /// Bytes queued from the candidate's start on.
    pub(crate) len: u32,
    /// The candidate reaches the end of the queue.
    pub(crate) tail: bool,
    /// The queue ends with FIN or an end of record.
    pub(crate) ends: bool,
    /// The room that the peer's window leaves, in bytes.
    pub(crate) send_window: u32,
    /// The room that the congestion window leaves, in bytes.
    pub(crate) cong_window: u32,
    /// Whole peer window and whole congestion window, in bytes.
    pub(crate) whole_window: u32,
    pub(crate) mss: u32,
    /// Autosized goal, in segments.
    pub(crate) segs: u32,
    /// `tcp_tso_win_divisor`.
    pub(crate) divisor: u8,
    /// When the oldest packet in flight departed; `None` when nothing is in flight.
    pub(crate) head_departure: Option<Instant>,
    pub(crate) srtt: Duration,
}

/// Which window a deferred sender waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limited {
    Cwnd,
    PeerWindow,
    /// Neither: there is less data than the windows allow.
    Application,
}

impl Defer {
    /// The window that is too small for the candidate.
    pub(crate) const fn limited_by(&self) -> Limited {
        if self.cong_window < self.send_window {
            if self.cong_window <= self.len { Limited::Cwnd } else { Limited::Application }
        } else if self.send_window <= self.len {
            Limited::PeerWindow
        } else {
            Limited::Application
        }
    }
}

/// A packet sent longer ago no longer shapes the ACK clock.
const STALE: Duration = Duration::from_millis(1);

/// The gate.
pub(crate) fn gate(d: Defer) -> Result<(), Blocked> {
    if d.recovering || d.now.since(d.last_departure) > STALE {
        return Ok(());
    }
    let limit = d.send_window.min(d.cong_window);
    if limit >= d.segs.saturating_mul(d.mss) || (!d.tail && limit >= d.len) {
        return Ok(());
    }
    let worthwhile = match d.divisor {
        0 => limit > 3 * d.mss,
        divisor => limit >= d.whole_window / u32::from(divisor),
    };
    if worthwhile {
        return Ok(());
    }
    let Some(head) = d.head_departure else { return Ok(()) };
    let next_ack = head + d.srtt;
    if next_ack.since(d.now) > STALE.min(d.srtt / 2) {
        return Ok(());
    }
    if d.limited_by() == Limited::Application && d.ends {
        return Ok(());
    }
    Err(Blocked::TsoDefer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFERRED: Defer = Defer {
        now: Instant::from_nanos(100_000_000),
        last_departure: Instant::from_nanos(99_900_000),
        recovering: false,
        len: 100_000,
        tail: true,
        ends: false,
        send_window: 1 << 20,
        cong_window: 2 * 1_448,
        whole_window: 30 * 1_448,
        mss: 1_448,
        segs: 10,
        divisor: 3,
        head_departure: Some(Instant::from_nanos(60_300_000)),
        srtt: Duration::from_millis(40),
    };

    #[test]
    fn defers_until_any_reason_to_send() {
        assert_eq!(gate(DEFERRED), Err(Blocked::TsoDefer));
        let open = [
            ("recovery", Defer { recovering: true, ..DEFERRED }),
            (
                "last departure 1.1 ms ago",
                Defer { last_departure: Instant::from_nanos(98_900_000), ..DEFERRED },
            ),
            ("goal reached", Defer { cong_window: 10 * 1_448, ..DEFERRED }),
            ("a third of the window", Defer { whole_window: 6 * 1_448, ..DEFERRED }),
            ("nothing in flight", Defer { head_departure: None, ..DEFERRED }),
            ("ACK far away", Defer { head_departure: Some(Instant::from_nanos(90_000_000)), ..DEFERRED }),
            ("FIN and no window limit", Defer { ends: true, len: 2_000, ..DEFERRED }),
        ];
        for (why, input) in open {
            assert_eq!(gate(input), Ok(()), "{why}");
        }
        assert_eq!(gate(Defer { ends: true, ..DEFERRED }), Err(Blocked::TsoDefer), "FIN, but window limited");
    }
}

//! The network's side of sending: windows, ACKs, timeouts, a smaller path MTU.
//! RFC 9293 §3.10.7.4, RFC 6298; what an ACK means for packets in flight is decided in `recovery/`. Called by
//! the connection.

use super::books::chrono::Kind;
use super::{SendCx, Sender, Totals, pacing};
use crate::buffers::BufferPool;
use crate::congestion::Signal;
use crate::recovery::{AckInput, AckOutcome, MtuProbeFate, RecoveryConfig, has_lasted};
use crate::stats::Counters;
use crate::words::{Duration, Instant};

/// A retransmission timeout.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct TimedOut {
    /// When the first of the consecutive timeouts was.
    pub(crate) since: Option<Instant>,
    /// How many consecutive timeouts there have been.
    pub(crate) timeouts: u8,
    /// How long this one was.
    pub(crate) waited: Duration,
}

impl TimedOut {
    /// Whether nothing has been answered for as long as so many retransmissions take with an RTO of 200 ms.
    pub(crate) fn has_lasted(self, now: Instant, retransmissions: u8, config: &RecoveryConfig) -> bool {
        let waited = self.since.map_or(Duration::ZERO, |since| now.since(since));
        has_lasted(waited, retransmissions, config.rto_max)
    }
}

impl Sender {
    /// A segment at `start` that acknowledges `ack` offers a window. Returns whether that changes anything.
    pub(crate) fn on_window(&mut self, offered: u32, ack: u64, start: u64) -> bool {
        self.window.on_segment(offered, ack, start, self.una())
    }

    /// An acceptable ACK: finds the segments that were delivered, are lost, or must be retransmitted. Follow
    /// with [`note_acked`](Self::note_acked).
    pub(crate) fn on_ack(
        &mut self,
        now: Instant,
        input: &AckInput<'_>,
        config: &RecoveryConfig,
        totals: &mut Totals,
        counters: &mut Counters,
    ) -> AckOutcome {
        // A thread that woke up late reads ACKs first.
        self.end_paced(now, totals, counters);
        self.recovery.on_ack(now, &mut self.congestion, input, config)
    }

    /// Whether there is unsent data, and room for it in the peer's window from `ack` on.
    pub(crate) fn may_send_new(&self, ack: u64) -> bool {
        self.has_unsent() && ack + u64::from(self.window.bytes()) > self.nxt
    }

    /// The rest of an ACK, once its outcome is known: frees memory and updates the clocks.
    pub(crate) fn note_acked(
        &mut self,
        cx: &SendCx<'_>,
        outcome: &AckOutcome,
        pool: &mut BufferPool,
        totals: &mut Totals,
    ) {
        if let (Some(sample), Some(writer)) = (outcome.rate, &mut self.writer) {
            writer.note_delivery_rate(sample.bytes_per_sec(cx.mss), sample.is_app_limited);
        }
        if outcome.advanced {
            let freed = self.una().min(self.queue.end());
            self.queue.release_until(freed, pool);
            self.note_advanced(cx.now, totals);
        }
        self.due |= !self.is_held_in_stream(cx);
    }

    /// The rate of the last sample, in bytes per second.
    pub(super) fn delivery_rate(&self) -> Option<u64> {
        self.writer.as_ref().map(|writer| writer.delivery_rate).filter(|&rate| rate > 0)
    }

    /// The same, 0 without one, and whether it was limited by the application.
    pub(crate) fn delivery_sample(&self) -> (u64, bool) {
        self.writer.as_ref().map_or((0, false), |writer| (writer.delivery_rate, writer.ledger.app_limited))
    }

    /// `una` moved.
    fn note_advanced(&mut self, now: Instant, totals: &mut Totals) {
        let una = self.una();
        let empty = una == self.end();
        let Some(writer) = &mut self.writer else { return };
        writer.ledger.on_acked(now, una, totals);
        if let Some(sent_at) = self.recovery.head_sent_at() {
            writer.ledger.time_head(una, sent_at);
        }
        if empty {
            writer.ledger.chrono.stop(now, Kind::Busy, true);
        }
    }

    /// After every ACK that moved something, and once when the connection opens.
    pub(crate) fn update_pacing_rate(&mut self, cx: &SendCx<'_>) {
        let (srtt, packets_out) = (self.recovery.srtt(), self.recovery.packets_out());
        self.congestion.update_pacing_rate(cx.full_mss, srtt, packets_out, cx.max_pacing_rate, cx.congestion);
    }

    /// The handshake took `rtt`: the first sample.
    pub(crate) fn seed_rtt(&mut self, cx: &SendCx<'_>, rtt: Duration) {
        self.recovery.seed_rtt(cx.now, rtt, cx.recovery);
    }

    /// The handshake needed `timeouts` retransmissions, and measured `rtt`, if anything.
    pub(crate) fn on_repeated_syn(&mut self, cx: &SendCx<'_>, timeouts: u8, rtt: Option<Duration>) {
        match rtt {
            Some(rtt) => self.seed_rtt(cx, rtt),
            None => self.recovery.distrust_rtt(),
        }
        // RFC 6928 §2: the first of them may have been needless, now that it comes after a second.
        if timeouts > 1 {
            self.congestion.begin_with_one_segment(cx.now);
        }
    }

    /// Our SYN or SYN-ACK arrived marked: treated as a mark on the first window.
    pub(crate) fn on_marked_syn(&mut self, now: Instant) {
        self.congestion.begin_reduction(now, Signal::Mark, false);
        self.congestion.end_reduction();
    }

    /// Does what is due: pacing, loss recovery. Returns the retransmission timeout, if there was one.
    pub(crate) fn on_timeout(
        &mut self,
        cx: &SendCx<'_>,
        totals: &mut Totals,
        counters: &mut Counters,
    ) -> Option<TimedOut> {
        self.due |= self.end_paced(cx.now, totals, counters);
        if self.recovery.deadline().is_none_or(|(at, _)| at > cx.now) {
            return None;
        }
        let since = self.recovery.first_timeout_at();
        let before = self.recovery.timeouts();
        let waited = self.recovery.rto(cx.recovery);
        self.recovery.on_timeout(cx.now, &mut self.congestion, cx.recovery);
        self.due = true;
        let timeouts = self.recovery.timeouts();
        (timeouts > before).then_some(TimedOut { since, timeouts, waited })
    }

    /// If the connection waited for its departure and that has come, the wait ends, maybe late. An ACK or a
    /// write may end it before the timer does.
    pub(super) fn end_paced(&mut self, now: Instant, totals: &mut Totals, counters: &mut Counters) -> bool {
        let over = self.paced && self.pacing.next_departure() <= now;
        if over {
            let most = self.late_max;
            let late = self.owed.on_timer(&self.pacing, most, now);
            self.paced = false;
            pacing::count(late, most, counters);
            totals.lateness.record(late);
            if late > most.time() {
                // ACKs were read late, and what was not made good is missing from the next flight.
                self.recovery.set_stalled();
            }
            if let Some(writer) = &mut self.writer {
                writer.ledger.on_pacing_timer(late);
            }
        }
        over
    }

    /// The peer has closed its window in front of data in flight, and still answers: the timeout does not
    /// count against it.
    pub(crate) fn excuse_timeout(&mut self) {
        self.recovery.excuse_timeout();
    }

    /// Frees the state that only data in flight needs, if nothing is in flight.
    pub(crate) fn release_idle(&mut self) {
        self.recovery.release_idle();
    }

    /// The fate of a probe of the path's MTU, once.
    pub(crate) fn take_mtu_probe_fate(&mut self) -> Option<MtuProbeFate> {
        self.recovery.take_mtu_probe_fate()
    }

    /// Segments are no longer than `mss` from now on: larger ones in flight are retransmitted.
    pub(crate) fn on_mss_shrunk(&mut self, mss: u32) {
        self.due |= self.recovery.on_mss_change(mss);
    }

    /// Segments grew from `before` to `after` bytes. The window is counted in segments, so larger ones mean a
    /// smaller count (Linux: `tcp_mtup_probe_success`).
    pub(crate) fn on_mss_grown(&mut self, before: u32, after: u32) {
        if !self.congestion.owns_cwnd() {
            let cwnd = u64::from(self.congestion.cwnd()) * u64::from(before) / u64::from(after.max(1));
            self.congestion.set_cwnd((cwnd as u32).max(1));
        }
    }
}

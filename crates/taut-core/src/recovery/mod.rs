//! What is in flight, what of it is lost, and what to send again; owns the sent log and the three timers.
//! RFC 5681, 6298, 6582, 6675, 8985, 9937; states and their order as in Linux's `tcp_fastretrans_alert`.
//! Called by the connection: when packets are sent, when ACKs come, and when its deadline passes.
//!
//! ```text
//!   on_transmit ─▶ sent.rs (log) ◀─ sack.rs ◀─┐
//!                    ▲                        │
//!   next_retransmit ◀┤        rack.rs ◀── on_ack ──▶ congestion
//!                    └─ tlp.rs, rto.rs ◀─ on_timeout        prr.rs, undo.rs, rtt.rs, marks.rs,
//!                                                                   delivery_rate.rs: leaves
//! ```
//!
//! Everything that matters only while data is in flight lies in one box, made at the first transmission and given back
//! when a timer finds the connection idle: one that only receives never has it.

mod ack;
mod config;
mod delivery_rate;
mod frto;
mod marks;
mod mtu_probe;
mod prr;
mod rack;
mod rto;
mod rtt;
mod sack;
mod sent;
mod timers;
mod tlp;
mod undo;

use alloc::boxed::Box;
use core::ops::Range;

use crate::congestion::RateSample;
use crate::words::{Duration, Instant, SendKind};
pub use config::RecoveryConfig;
use delivery_rate::Sampler;
use frto::Frto;
pub(crate) use marks::{Bytes, Counted, Feedback};
pub(crate) use mtu_probe::ProbeFate;
use prr::Prr;
use rack::Rack;
use rtt::Rtt;
use sack::Cache;
use sent::{RETRANS, Record, SentLog, segs_in};
use tlp::Probe;
use undo::Undo;

/// Linux's names for how far things are from well. `TCP_INFO` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CaState {
    /// Nothing unusual.
    Open,
    /// Something arrived out of order or twice.
    Disorder,
    /// cwnd is being reduced, without loss: a congestion mark, or a local queue that was full.
    Cwr,
    /// Fast recovery.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

impl CaState {
    /// One word for tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Disorder => "disorder",
            Self::Cwr => "cwr",
            Self::Recovery => "recovery",
            Self::Loss => "loss",
        }
    }
}

/// What [`Recovery::deadline`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryTimer {
    /// RFC 8985 §6.3: a reordered packet is late enough to be lost.
    Reorder,
    /// RFC 8985 §7: tail loss probe.
    Probe,
    /// RFC 6298: retransmission timeout.
    Rto,
}

/// What the caller does after [`Recovery::on_timeout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum TimeoutAction {
    /// It was not due, or found nothing.
    Nothing,
    /// Something is to be resent: see [`Recovery::next_retransmit`]. The head may always leave after an RTO.
    LossMarked,
    /// Send one segment: new data if there is some and it may leave, else [`Recovery::probe_range`]; then say
    /// [`Recovery::on_probe_sent`] or [`Recovery::on_probe_impossible`].
    Probe,
}

/// An ACK that ingress found acceptable (una − max window ≤ ack ≤ nxt).
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckInput<'a> {
    pub(crate) ack: u64,
    /// SACK blocks, expanded, in the order received; not checked otherwise.
    pub(crate) sack: &'a [Range<u64>],
    /// `now` minus the time that TSecr stands for, in whole milliseconds of the timestamp clock, when the ACK
    /// advances and carries one.
    pub(crate) timestamp_echo_rtt: Option<Duration>,
    pub(crate) carries_data: bool,
    pub(crate) window_changed: bool,
    /// There is data never sent, and the peer's window has room for it.
    pub(crate) may_send_new: bool,
    /// What it says of congestion marks.
    pub(crate) marks: Feedback,
}

/// What an ACK did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckOutcome {
    /// `una` moved.
    pub(crate) advanced: bool,
    /// Segments newly delivered, cumulatively or selectively.
    pub(crate) delivered_segs: u32,
    pub(crate) newly_lost_segs: u32,
    pub(crate) rate: Option<RateSample>,
    pub(crate) rtt: Option<Duration>,
    /// A duplicate ACK in RFC 5681's sense.
    pub(crate) dup: bool,
    /// The peer reported data received twice.
    pub(crate) dsack: bool,
    /// Segments delivered that the peer reported as marked.
    pub(crate) delivered_ce: u32,
    /// A reduction was taken back.
    pub(crate) undone: Option<Undone>,
    /// By F-RTO: a timeout was needless. Counter: TCPSpuriousRTOs.
    pub(crate) spurious_timeout: bool,
    /// A tail loss probe had repaired a loss. Counter: TCPLossProbeRecovery.
    pub(crate) probe_repaired: bool,
}

/// Which reduction was taken back, in Linux's distinction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undone {
    /// Every retransmission was reported by D-SACK. Counter: TCPDSACKUndo.
    Dsack,
    /// That of a timeout. Counter: TCPLossUndo.
    Timeout,
    /// That of a fast recovery, by the ACK that ended it. Counter: TCPFullUndo.
    Full,
    /// That of a fast recovery, before its end. Counter: TCPPartialUndo.
    Partial,
}

/// Loss detection and repair of one connection.
#[derive(Debug)]
pub(crate) struct Recovery {
    una: u64,
    /// Segments delivered since the beginning.
    delivered: u64,
    last_sent_at: Instant,
    rtt: Rtt,
    total_retrans: u32,
    state: CaState,
    sack_ok: bool,
    backoff: u8,
    /// Timeouts since `una` last moved.
    timeouts: u8,
    flight: Option<Box<InFlight>>,
}

/// What is needed only while something is in flight.
#[derive(Debug)]
struct InFlight {
    log: SentLog,
    rack: Rack,
    cache: Cache,
    prr: Prr,
    undo: Undo,
    frto: Frto,
    sampler: Sampler,
    probe: Option<Probe>,
    mtu_probe: Option<mtu_probe::MtuProbe>,
    /// `nxt` when the state left Open and Disorder: it returns when this is acknowledged.
    high_seq: u64,
    /// Without SACK, duplicates begin a recovery only above this: below they may be of what was sent again.
    recover: u64,
    rto_at: Option<Instant>,
    tlp_at: Option<Instant>,
    reorder_at: Option<Instant>,
    /// Since when the head is unanswered, by the first of consecutive timeouts.
    first_timeout_at: Option<Instant>,
    /// A cumulative ACK landed at data that the peer had sacked.
    reneging: bool,
    /// Segments sent again, and segments that D-SACKs reported as received twice.
    resent_segs: u32,
    dsack_segs: u32,
    /// The peer is to be told of a reduction (RFC 3168 §6.1.2).
    cwr_due: bool,
    /// Where the packet begins that last told it.
    cwr_at: u64,
    mss: u16,
    /// Differs between connections: where this one began.
    seed: u64,
}

impl InFlight {
    fn new(now: Instant, una: u64, mss: u16) -> Self {
        Self {
            log: SentLog::new(una),
            rack: Rack::new(una),
            cache: Cache::default(),
            prr: Prr::default(),
            undo: Undo::default(),
            frto: Frto::Off,
            sampler: Sampler::new(now),
            probe: None,
            mtu_probe: None,
            high_seq: una,
            recover: 0,
            rto_at: None,
            tlp_at: None,
            reorder_at: None,
            first_timeout_at: None,
            reneging: false,
            resent_segs: 0,
            dsack_segs: 0,
            cwr_due: false,
            cwr_at: 0,
            mss,
            seed: una,
        }
    }

    /// The earliest timer; a probe goes before a timeout that is due at the same moment.
    fn deadline(&self) -> Option<(Instant, RecoveryTimer)> {
        let earlier = |first: Option<(Instant, RecoveryTimer)>, at: Option<Instant>, timer| match (first, at)
        {
            (Some((first_at, _)), Some(at)) if first_at <= at => first,
            (_, Some(at)) => Some((at, timer)),
            (_, None) => first,
        };
        let first = self.reorder_at.map(|at| (at, RecoveryTimer::Reorder));
        let first = earlier(first, self.tlp_at, RecoveryTimer::Probe);
        earlier(first, self.rto_at, RecoveryTimer::Rto)
    }
}

impl Recovery {
    /// Nothing is in flight; `una` is also the next position to send.
    pub(crate) const fn new(now: Instant, una: u64, sack_ok: bool) -> Self {
        Self {
            una,
            delivered: 0,
            last_sent_at: now,
            rtt: Rtt::new(),
            total_retrans: 0,
            state: CaState::Open,
            sack_ok,
            backoff: 0,
            timeouts: 0,
            flight: None,
        }
    }

    // ---- getters ----

    /// Oldest position not acknowledged.
    pub(crate) const fn una(&self) -> u64 {
        self.una
    }

    fn log(&self) -> Option<&SentLog> {
        self.flight.as_deref().map(|flight| &flight.log)
    }

    /// Where the log of what was sent ends, if there is one: at `nxt`.
    pub(crate) fn logged_until(&self) -> Option<u64> {
        self.log().filter(|log| !log.is_empty()).map(SentLog::nxt)
    }

    /// Segments thought to be in the network.
    pub(crate) fn in_flight(&self) -> u32 {
        self.log().map_or(0, SentLog::in_flight)
    }

    pub(crate) fn packets_out(&self) -> u32 {
        self.log().map_or(0, SentLog::packets_out)
    }

    pub(crate) fn lost_out(&self) -> u32 {
        self.log().map_or(0, SentLog::lost_out)
    }

    pub(crate) fn sacked_out(&self) -> u32 {
        self.log().map_or(0, SentLog::sacked_out)
    }

    pub(crate) fn retrans_out(&self) -> u32 {
        self.log().map_or(0, SentLog::retrans_out)
    }

    /// Packets sent and not acknowledged, super-packets counting once: the buffers of EGRESS's rtx queue.
    pub(crate) fn records(&self) -> usize {
        self.log().map_or(0, SentLog::len)
    }

    pub(crate) const fn state(&self) -> CaState {
        self.state
    }

    /// Segments delivered since the beginning.
    pub(crate) const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Whether a reduction began that the peer was not told of; it counts as told by the packet from `start` on.
    pub(crate) fn take_cwr(&mut self, start: u64) -> bool {
        let Some(flight) = &mut self.flight else { return false };
        let due = core::mem::take(&mut flight.cwr_due);
        if due {
            flight.cwr_at = start;
        }
        due
    }

    /// After a retransmission timeout.
    pub(crate) fn is_in_loss(&self) -> bool {
        self.state == CaState::Loss
    }

    /// A timeout may have been needless: new data goes first, if any may leave. RFC 5682 §3.1 step 2.b.
    /// The answer is `Some(true)` once some has left: then nothing is sent again before the next ACK.
    pub(crate) fn prefers_new_data(&self) -> Option<bool> {
        let flight = self.flight.as_ref()?;
        (flight.frto == Frto::SendNew).then(|| flight.log.nxt() > flight.high_seq)
    }

    /// Segments sent again since the beginning.
    pub(crate) const fn total_retrans(&self) -> u32 {
        self.total_retrans
    }

    /// Last transmission of data; for idle restart.
    pub(crate) const fn last_sent_at(&self) -> Instant {
        self.last_sent_at
    }

    /// When the head was last sent; what TSO deferral predicts the next ACK from.
    pub(crate) fn head_sent_at(&self) -> Option<Instant> {
        self.log().and_then(SentLog::first).map(|head| head.sent_at)
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.rtt.srtt()
    }

    pub(crate) fn rttvar(&self) -> Duration {
        self.rtt.rttvar()
    }

    /// Least RTT of the last 300 s.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.rtt.min_rtt()
    }

    /// Bytes of the oldest segment that is unanswered.
    pub(crate) fn head_segment(&self) -> u32 {
        let head = self.log().and_then(SentLog::first);
        head.map_or(0, |head| (head.end - head.start).min(u64::from(head.mss)) as u32)
    }

    /// Current timeout, backoff included.
    pub(crate) fn rto(&self) -> Duration {
        rto::timeout(&self.rtt, self.backoff)
    }

    pub(crate) const fn backoff(&self) -> u8 {
        self.backoff
    }

    /// Consecutive timeouts.
    pub(crate) const fn timeouts(&self) -> u8 {
        self.timeouts
    }

    /// When the first of the consecutive timeouts fired.
    pub(crate) fn first_timeout_at(&self) -> Option<Instant> {
        self.flight.as_ref()?.first_timeout_at
    }

    /// Whether a copy of anything in `range` is still below TCP, so that sending it again would be too soon.
    pub(crate) fn in_device(&self, range: &Range<u64>) -> bool {
        self.log().is_some_and(|log| log.in_device(range))
    }

    /// Earliest timer, with its reason.
    pub(crate) fn deadline(&self) -> Option<(Instant, RecoveryTimer)> {
        self.flight.as_ref()?.deadline()
    }

    /// A timer came and found nothing to do: if nothing is in flight, the memory for what is goes back. What was
    /// learned of reordering is worth keeping.
    pub(crate) fn release_idle(&mut self) {
        if self.state != CaState::Open {
            return;
        }
        match &mut self.flight {
            Some(flight) if flight.log.is_empty() && flight.rack.knows_reordering() => {
                flight.log.shrink();
                flight.rack.shrink();
            }
            Some(flight) if flight.log.is_empty() => self.flight = None,
            _ => {}
        }
    }

    /// The connection is over: nothing in flight matters any more.
    pub(crate) fn discard(&mut self) {
        self.flight = None;
    }

    // ---- sending ----

    /// The handshake's round trip, if it tells one.
    pub(crate) fn seed_rtt(&mut self, now: Instant, rtt: Duration, cfg: &RecoveryConfig) {
        self.rtt.sample_min(now, rtt);
        self.rtt.sample(rtt, self.una, self.una, cfg.rto_min);
    }

    /// The application has nothing more to send: samples until all this is delivered show its rate.
    pub(crate) fn set_app_limited(&mut self) {
        if let Some(flight) = &mut self.flight {
            flight.sampler.set_app_limited(self.delivered, flight.log.in_flight());
        }
    }

    /// A packet was handed to the device. `range` may include FIN's position.
    pub(crate) fn on_transmit(
        &mut self,
        now: Instant,
        range: Range<u64>,
        mss: u32,
        kind: SendKind,
        cfg: &RecoveryConfig,
    ) {
        if range.start >= range.end {
            return;
        }
        let mss = u16::try_from(mss.max(1)).unwrap_or(u16::MAX);
        let una = self.una;
        let flight = self.flight.get_or_insert_with(|| {
            let mut flight = Box::new(InFlight::new(now, una, mss));
            // With nothing known of the path, what limits at first is the application.
            flight.sampler.set_app_limited(self.delivered, 0);
            flight
        });
        flight.mss = mss;
        self.last_sent_at = now;
        let in_flight = flight.log.in_flight() + segs_in(range.end - range.start, mss);
        let idle = flight.log.is_empty();
        let lost = flight.log.total_lost();
        let snapshot = flight.sampler.on_transmit(now, self.delivered, idle, in_flight, lost);
        let rto_at = now + rto::timeout(&self.rtt, self.backoff);
        let segs = match kind {
            SendKind::New => {
                let record = Record {
                    start: range.start,
                    end: range.end,
                    sent_at: now,
                    snapshot,
                    mss,
                    flags: 0,
                    in_device: 1,
                };
                flight.log.push(record);
                if idle {
                    // RFC 6298 §5.1.
                    flight.rto_at = Some(rto_at);
                }
                record.segs()
            }
            SendKind::Retransmit | SendKind::Probe => {
                if flight.log.first().is_some_and(|head| range.start <= head.start) {
                    flight.rto_at = Some(rto_at);
                }
                let mut segs = 0;
                for index in flight.log.isolate(&range) {
                    segs += flight.log.retransmitted(index, now, snapshot);
                }
                flight.spoil_mtu_probe(&range);
                flight.rack.on_retransmit(now, range);
                flight.undo.on_retransmit(now, segs);
                flight.resent_segs = flight.resent_segs.saturating_add(segs);
                if flight.frto == Frto::SendNew {
                    // No new data could leave: ordinary recovery.
                    flight.frto = Frto::Off;
                }
                self.total_retrans = self.total_retrans.wrapping_add(segs);
                if kind == SendKind::Probe {
                    flight.probe = Some(Probe { end: flight.log.nxt(), is_retransmission: true });
                }
                segs
            }
        };
        flight.prr.on_sent(segs);
        self.arm_probe(now, cfg);
    }

    /// The device would not take the packet that [`on_transmit`](Self::on_transmit) just noted.
    pub(crate) fn on_refused(&mut self, range: &Range<u64>, kind: SendKind) {
        let Some(flight) = &mut self.flight else { return };
        match kind {
            SendKind::New => {
                let segs = flight.log.last().map_or(0, Record::segs);
                if flight.log.pop(range) {
                    flight.cwr_due |= flight.cwr_at == range.start;
                    flight.prr.on_refused(segs);
                    flight.spoil_mtu_probe(range);
                }
                if flight.log.is_empty() {
                    flight.rto_at = None;
                    flight.tlp_at = None;
                }
            }
            SendKind::Retransmit | SendKind::Probe => {
                let mut segs = 0;
                for index in flight.log.isolate(range) {
                    if flight.log.get(index).is_some_and(|record| record.has(RETRANS)) {
                        segs += flight.log.retransmission_refused(index);
                    }
                }
                flight.prr.on_refused(segs);
                flight.undo.on_refused(segs);
                self.total_retrans = self.total_retrans.wrapping_sub(segs);
                if kind == SendKind::Probe {
                    flight.probe = None;
                }
            }
        }
    }

    /// The ticket of a packet came back: its bytes left the host.
    pub(crate) fn on_tx_completed(&mut self, range: &Range<u64>) {
        if let Some(flight) = &mut self.flight {
            flight.log.completed(range);
        }
    }

    /// Next range to send again, if there is one and cwnd allows: at most `max_segs` segments, not beyond
    /// `window_end`, except that a closed window still lets the head's first segment through (EGRESS §3).
    pub(crate) fn next_retransmit(&self, cwnd: u32, max_segs: u32, window_end: u64) -> Option<Range<u64>> {
        let log = self.log()?;
        let room = cwnd.saturating_sub(log.in_flight()).min(max_segs);
        if room == 0 {
            return None;
        }
        let first = log.next_pending()?;
        let head = log.get(first)?;
        let (start, mss) = (head.start, head.mss);
        let longest = start + u64::from(room) * u64::from(mss);
        // Neighbours that are lost too go along, as long as segment boundaries stay where they were.
        let mut end = start;
        let mut index = first;
        while let Some(record) = log.get(index) {
            let resend = record.has(sent::LOST) && !record.has(RETRANS) && record.mss == mss;
            if !resend || end >= longest || !(end - start).is_multiple_of(u64::from(mss)) {
                break;
            }
            end = record.end;
            index += 1;
        }
        let end = end.min(longest);
        if end <= window_end {
            return Some(start..end);
        }
        let fits = window_end.saturating_sub(start) / u64::from(mss) * u64::from(mss);
        if fits > 0 {
            Some(start..start + fits)
        } else if start == self.una {
            Some(start..end.min(start + u64::from(mss)))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

//! Loss recovery: which packets are in flight, which of them are lost, and which are retransmitted; the sent
//! log and the three timers. RFC 5681, 6298, 6582, 6675, 8985, 9937; states and their order as in Linux's
//! `tcp_fastretrans_alert`. Called by the connection: when packets are sent, when ACKs arrive, and when its
//! deadline passes.
//!
//! ```text
//!   a packet    transmit.rs ──▶ sent.rs, the log ──▶ next_retransmit      records.rs, its memory
//!                                    ▲
//!   an ACK      ack.rs ──────────────┘
//!                 deliver             sack.rs
//!                 time                rtt.rs, rto.rs
//!                 judge_tail_probe    tail_probe.rs
//!                 undo_or_leave       undo.rs, frto.rs       states.rs begins, ends and undoes
//!                 detect              rack.rs, mtu_probe.rs  reductions of the window
//!                 set_window          prr.rs, delivery_rate.rs ──▶ congestion
//!
//!   a deadline  timers.rs: a packet is late (rack.rs), a tail loss probe, the retransmission timeout
//! ```
//!
//! The state that matters only while data is in flight is in one box ([`Flight`]), allocated at the first
//! transmission and released when a timer finds the connection idle. A connection that only receives never
//! has one.

mod ack;
mod config;
mod log;
mod mtu_probe;
mod rack;
mod rules;
mod sack;
mod states;
mod tail_probe;
mod timers;
mod transmit;

use alloc::boxed::Box;
use core::ops::Range;

use crate::ecn::Feedback;
use crate::words::{Duration, Instant};
pub(crate) use ack::{AckInput, AckOutcome, Undone};
pub use config::RecoveryConfig;
use log::delivery_rate::Sampler;
use log::sent::SentLog;
pub(crate) use mtu_probe::MtuProbeFate;
use rack::Rack;
use rules::frto::Frto;
use rules::prr::Prr;
pub(crate) use rules::rto::{RTO_INIT, has_lasted};
use rules::rtt::Rtt;
use rules::undo::Undo;
pub(crate) use states::CaState;
use tail_probe::TailProbe;
pub(crate) use timers::RecoveryTimer;

/// Loss detection and repair of one connection.
#[derive(Debug)]
pub(crate) struct Recovery {
    base: Base,
    flight: Option<Box<Flight>>,
}

/// Recovery's decision about what may leave next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Nothing is lost: new data, if any.
    Normal,
    /// Lost data goes before new data (RFC 6675 §5).
    Repair,
    /// One packet leaves as a tail loss probe: new data if there is some, else [`Recovery::tail_probe_range`]
    /// (RFC 8985 §7.3). [`Recovery::on_tail_probe_sent`] or [`Recovery::on_tail_probe_blocked`] ends this.
    TailProbe,
    /// A timeout may have been spurious. New data goes first, because its ACKs will show that (F-RTO, RFC
    /// 5682 §3.1 step 2.b).
    NewDataFirst,
    /// The same, once some new data has left: nothing is retransmitted before the next ACK.
    NewDataOnly,
}

impl Mode {
    /// Whether the purpose of the next packet is to get an ACK.
    pub(crate) fn asks_for_ack(self) -> bool {
        !matches!(self, Self::Normal | Self::Repair)
    }
}

/// The state that exists even when nothing is in flight. The steps of an ACK and of a timeout are its
/// methods; each takes the flight as an argument.
#[derive(Debug)]
struct Base {
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
}

/// The state that is needed only while something is in flight.
#[derive(Debug)]
struct Flight {
    log: SentLog,
    rack: Rack,
    prr: Prr,
    undo: Undo,
    frto: Frto,
    sampler: Sampler,
    tail_probe: Option<TailProbe>,
    /// The timer of the tail loss probe has fired, and no probe has left since.
    tail_probe_due: bool,
    mtu_probe: Option<mtu_probe::MtuProbe>,
    /// `nxt` when the state was last raised above Disorder: it becomes Open again when this is acknowledged.
    high_seq: u64,
    /// Without SACK, duplicate ACKs begin a recovery only above this position: below, retransmissions may
    /// have caused them.
    recover: u64,
    rto_at: Option<Instant>,
    tail_probe_at: Option<Instant>,
    reorder_at: Option<Instant>,
    /// When the first of the consecutive timeouts fired.
    first_timeout_at: Option<Instant>,
    /// The last ACK ended at data that the peer had acknowledged selectively before, so it may have dropped
    /// that data.
    reneging: bool,
    /// Segments retransmitted, and segments that D-SACKs reported as received twice.
    resent_segs: u32,
    dsack_segs: u32,
    /// The peer must be notified of a reduction (RFC 3168 §6.1.2).
    cwr_due: bool,
    /// Start of the packet that last notified it.
    cwr_at: u64,
    mss: u16,
    /// A value that differs between connections: the position at which this one began.
    seed: u64,
}

impl Flight {
    fn new(now: Instant, una: u64, mss: u16) -> Self {
        Self {
            log: SentLog::new(una),
            rack: Rack::new(una),
            prr: Prr::default(),
            undo: Undo::default(),
            frto: Frto::Off,
            sampler: Sampler::new(now),
            tail_probe: None,
            tail_probe_due: false,
            mtu_probe: None,
            high_seq: una,
            recover: 0,
            rto_at: None,
            tail_probe_at: None,
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
}

impl Recovery {
    /// Nothing is in flight; `una` is also the next position to send.
    pub(crate) const fn new(now: Instant, una: u64, sack_ok: bool) -> Self {
        let base = Base {
            una,
            delivered: 0,
            last_sent_at: now,
            rtt: Rtt::new(),
            total_retrans: 0,
            state: CaState::Open,
            sack_ok,
            backoff: 0,
            timeouts: 0,
        };
        Self { base, flight: None }
    }

    // ---- getters ----

    /// Oldest position not acknowledged.
    pub(crate) const fn una(&self) -> u64 {
        self.base.una
    }

    fn log(&self) -> Option<&SentLog> {
        self.flight.as_deref().map(|flight| &flight.log)
    }

    /// The end of the sent log, if there is one: `nxt`.
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

    /// Packets sent and not acknowledged; a super-packet counts once. Linux: the buffers of the retransmit
    /// queue.
    pub(crate) fn records(&self) -> usize {
        self.log().map_or(0, SentLog::len)
    }

    pub(crate) const fn state(&self) -> CaState {
        self.base.state
    }

    /// Segments delivered since the beginning.
    pub(crate) const fn delivered(&self) -> u64 {
        self.base.delivered
    }

    /// Recovery's decision about what may leave next.
    pub(crate) fn mode(&self) -> Mode {
        let Some(flight) = &self.flight else { return Mode::Normal };
        if flight.tail_probe_due {
            Mode::TailProbe
        } else if flight.frto == Frto::SendNew {
            if flight.log.nxt() > flight.high_seq { Mode::NewDataOnly } else { Mode::NewDataFirst }
        } else if flight.log.lost_out() > 0 {
            Mode::Repair
        } else {
            Mode::Normal
        }
    }

    /// Segments retransmitted since the beginning.
    pub(crate) const fn total_retrans(&self) -> u32 {
        self.base.total_retrans
    }

    /// The largest distance, in segments, by which one was overtaken, at least the duplicate threshold; how
    /// often that was seen; and segments that D-SACKs reported as received twice. For `TCP_INFO`.
    pub(crate) fn reordering(&self) -> (u32, u32, u32) {
        self.flight.as_ref().map_or((rack::DUP_THRESH, 0, 0), |flight| {
            (flight.rack.distance, flight.rack.overtaken, flight.dsack_segs)
        })
    }

    /// When data was last sent; for idle restart.
    pub(crate) const fn last_sent_at(&self) -> Instant {
        self.base.last_sent_at
    }

    /// When the head was last sent; TSO deferral predicts the next ACK from this.
    pub(crate) fn head_sent_at(&self) -> Option<Instant> {
        self.log().and_then(SentLog::first).map(|head| head.sent_at)
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.base.rtt.srtt()
    }

    pub(crate) fn rttvar(&self) -> Duration {
        self.base.rtt.rttvar()
    }

    /// Least RTT of the last 300 s.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.base.rtt.min_rtt()
    }

    /// Bytes of the oldest unacknowledged segment.
    pub(crate) fn head_segment(&self) -> u32 {
        let head = self.log().and_then(SentLog::first);
        head.map_or(0, |head| (head.end - head.start).min(u64::from(head.mss)) as u32)
    }

    /// Current timeout, backoff included.
    pub(crate) fn rto(&self, cfg: &RecoveryConfig) -> Duration {
        self.base.rto(cfg)
    }

    pub(crate) const fn backoff(&self) -> u8 {
        self.base.backoff
    }

    /// Consecutive timeouts.
    pub(crate) const fn timeouts(&self) -> u8 {
        self.base.timeouts
    }

    /// When the first of the consecutive timeouts fired.
    pub(crate) fn first_timeout_at(&self) -> Option<Instant> {
        self.flight.as_ref()?.first_timeout_at
    }

    /// Whether a copy of anything in `range` is still below TCP, so that a retransmission would be too soon.
    pub(crate) fn in_device(&self, range: &Range<u64>) -> bool {
        self.log().is_some_and(|log| log.in_device(range))
    }

    /// Earliest timer, with its reason.
    pub(crate) fn deadline(&self) -> Option<(Instant, RecoveryTimer)> {
        self.flight.as_ref()?.deadline()
    }

    /// A timer fired: if nothing is in flight, the memory of the flight is released, unless reordering was
    /// seen, which is worth remembering.
    pub(crate) fn release_idle(&mut self) {
        if self.base.state != CaState::Open {
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

    /// The connection is over: forgets everything in flight.
    pub(crate) fn discard(&mut self) {
        self.flight = None;
    }

    // ---- sending ----

    /// The round trip that the handshake measured.
    pub(crate) fn seed_rtt(&mut self, now: Instant, rtt: Duration, cfg: &RecoveryConfig) {
        self.base.rtt.sample_min(now, rtt);
        self.base.rtt.sample(rtt, self.base.una, self.base.una, cfg.rto_min);
    }

    /// A SYN timed out, and nothing was measured: the first timeout of data is longer.
    pub(crate) fn distrust_rtt(&mut self) {
        self.base.rtt.distrust(rules::rto::RTO_AFTER_SYN_TIMEOUT);
    }

    /// The application has nothing more to send: until everything in flight is delivered, samples show the
    /// application's rate.
    pub(crate) fn set_app_limited(&mut self) {
        if let Some(flight) = &mut self.flight {
            flight.sampler.set_app_limited(self.base.delivered, flight.log.in_flight());
        }
    }

    /// This host slept although data was due: until everything in flight is delivered, samples show that.
    pub(crate) fn set_stalled(&mut self) {
        if let Some(flight) = &mut self.flight {
            flight.sampler.set_stalled(self.base.delivered, flight.log.in_flight());
        }
    }
}

impl Base {
    /// Current timeout, backoff included.
    fn rto(&self, cfg: &RecoveryConfig) -> Duration {
        rules::rto::timeout(&self.rtt, self.backoff, cfg.rto_max)
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod work;

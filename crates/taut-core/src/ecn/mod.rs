//! Explicit congestion notification for one connection: how marks are reported, and which packets may be
//! marked. RFC 3168 §6.1, RFC 8257 §3.2 and RFC 9768, with Linux's `tcp_ecn`. Called by the connection at the
//! places below. `recovery/` decides how the window responds to marks.
//!
//! ```text
//!   handshake   on_syn ──▶ negotiate.rs: no ECN, or one of          half_open.rs: a listener's, until it is complete
//!                            echo.rs       ECE answers marks: RFC 3168, DCTCP
//!                            accurate.rs   both ends count: RFC 9768
//!                              ace.rs        marked packets, in every segment
//!                              option.rs     marked bytes, as we report them
//!                              feedback.rs   what the peer reports
//!   arrival     on_segment ──▶ Urgency: how soon its marks must be reported
//!               feedback ──▶ recovery processes the ACK and counts the marks ──▶ on_ack
//!   output      before_packet, take_turn: must an ACK leave first?
//!               stamp ──▶ Stamp: flags, option and mark of the segment that leaves
//! ```
//!
//! The types for segments are in `segment.rs`. A connection without ECN needs no memory for it: [`Ecn::OFF`].

mod accurate;
mod ace;
mod config;
mod echo;
mod feedback;
mod half_open;
mod negotiate;
mod option;
mod segment;

use taut_wire::tcp::Flags as TcpFlags;
use taut_wire::{Ecn as Mark, TcpHeader};

use crate::congestion::EcnUse;
use crate::words::{Duration, Instant};
use accurate::Accurate;
pub use config::{EcnConfig, EcnOptionUse, EcnPolicy};
use echo::Echo;
pub(crate) use echo::Turn;
pub(crate) use feedback::Feedback;
pub(crate) use half_open::HalfAgreed;
use negotiate::Mode;
pub(crate) use negotiate::Request;
pub(crate) use segment::{Beside, Carrier, SegmentIn, Stamp, Urgency};

/// ECN of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Ecn {
    /// The request in our first SYN. A retransmitted SYN without a request does not withdraw it.
    asked: Request,
    scheme: Scheme,
    /// RFC 9768 would have been agreed on when the peer's first SYN came, had that requested it.
    knew_accurate: bool,
    /// Our SYN or SYN-ACK arrived marked, and congestion control has not responded yet.
    marked_syn: bool,
    /// Segments that the peer reported as marked, wrapping.
    delivered_ce: u32,
}

/// How the two ends report marks to each other.
#[derive(Clone, Debug)]
enum Scheme {
    /// Not at all, or not agreed yet.
    Off,
    /// RFC 3168 and RFC 8257.
    Echo(Echo),
    /// RFC 9768.
    Accurate(Accurate),
}

impl Ecn {
    /// Nothing requested, nothing agreed.
    pub(crate) const OFF: Self = Self {
        asked: Request::Nothing,
        scheme: Scheme::Off,
        knew_accurate: false,
        marked_syn: false,
        delivered_ce: 0,
    };

    /// ECN is in use.
    pub(crate) const fn is_on(&self) -> bool {
        !matches!(self.scheme, Scheme::Off)
    }

    /// The peer has sent a packet marked as ECN-capable. Linux: `TCPI_OPT_ECN_SEEN`.
    pub(crate) const fn seen(&self) -> bool {
        match &self.scheme {
            Scheme::Off => false,
            Scheme::Echo(echo) => echo.seen(),
            Scheme::Accurate(accurate) => accurate.seen(),
        }
    }

    /// Segments that the peer reported as marked, wrapping.
    pub(crate) const fn delivered_ce(&self) -> u32 {
        self.delivered_ce
    }

    /// Packets of the peer that arrived with a mark, with accurate ECN. Linux: `tcpi_received_ce`.
    pub(crate) fn received_ce(&self) -> Option<u32> {
        self.accurate().map(Accurate::received_ce)
    }

    const fn accurate(&self) -> Option<&Accurate> {
        match &self.scheme {
            Scheme::Accurate(accurate) => Some(accurate),
            Scheme::Off | Scheme::Echo(_) => None,
        }
    }

    const fn accurate_mut(&mut self) -> Option<&mut Accurate> {
        match &mut self.scheme {
            Scheme::Accurate(accurate) => Some(accurate),
            Scheme::Off | Scheme::Echo(_) => None,
        }
    }
}

/// The handshake.
impl Ecn {
    /// The request of our first SYN.
    pub(crate) const fn asked(&self) -> Request {
        self.asked
    }

    /// Our first SYN leaves, with this request.
    pub(crate) const fn on_request(&mut self, request: Request) {
        self.asked = request;
    }

    /// The peer's SYN or SYN-ACK arrived, in a packet marked `mark`: returns the state of ECN, if both ends
    /// agree on it.
    pub(crate) fn on_syn(
        &self,
        config: &EcnConfig,
        wanted: EcnUse,
        syn: &TcpHeader,
        mark: Mark,
    ) -> Option<Self> {
        let flags = syn.flags;
        let answers = flags.contains(TcpFlags::ACK);
        let mode = if answers {
            self.asked.on_syn_ack(wanted, flags)
        } else {
            negotiate::on_syn(config, wanted, flags, mark)
        };
        let scheme = match mode {
            Mode::Off => return None,
            Mode::Classic => Scheme::Echo(Echo::new(false)),
            Mode::Dctcp => Scheme::Echo(Echo::new(true)),
            Mode::Accurate if answers => Scheme::Accurate(Accurate::client(flags, mark, syn.options.accecn)),
            Mode::Accurate => Scheme::Accurate(Accurate::server(mark)),
        };
        let marked_syn = mode == Mode::Accurate && answers && ace::of(flags) == ace::MARKED;
        let knew_accurate = negotiate::accepts_accurate(config, wanted);
        Some(Self { asked: self.asked, scheme, knew_accurate, marked_syn, delivered_ce: 0 })
    }

    /// The peer's SYN arrived again, before the handshake was over. Returns false when it requests another
    /// kind of ECN than the first.
    #[must_use]
    pub(crate) fn on_repeated_syn(&mut self, flags: TcpFlags, mark: Mark) -> bool {
        if self.is_on() && negotiate::contradicts(self.accurate().is_some(), self.knew_accurate, flags) {
            return false;
        }
        if let Some(accurate) = self.accurate_mut() {
            accurate.on_repeated_syn(flags, mark);
        }
        true
    }

    /// The peer's SYN-ACK arrived again.
    pub(crate) fn on_repeated_syn_ack(&mut self, flags: TcpFlags, mark: Mark) {
        if let Some(accurate) = self.accurate_mut() {
            accurate.on_repeated_syn_ack(flags, mark);
        }
    }

    /// The flags, option and mark of our SYN-ACK after `retries` timeouts; `again`: a SYN-ACK has left
    /// before.
    pub(crate) fn stamp_syn_ack(&mut self, config: &EcnConfig, retries: u8, again: bool) -> Stamp {
        match &mut self.scheme {
            Scheme::Off => Stamp::NONE,
            Scheme::Echo(echo) => echo.stamp_syn_ack(),
            Scheme::Accurate(accurate) => accurate.stamp_syn_ack(config, retries, again),
        }
    }

    /// The segment that ends the handshake of a server arrived; `pure`: it is an ACK without data and SACK
    /// blocks. It reports whether our SYN-ACK arrived marked: by RFC 9768 table 4, or by ECE (RFC 5562 §3).
    pub(crate) fn on_handshake_ack(&mut self, header: &TcpHeader, pure: bool) {
        self.marked_syn = match &mut self.scheme {
            Scheme::Off => false,
            Scheme::Echo(echo) => echo.is_exact() && header.flags.contains(TcpFlags::ECE),
            Scheme::Accurate(accurate) => {
                accurate.on_handshake_ack(header.flags, header.options.accecn, pure)
            }
        };
        self.delivered_ce = self.delivered_ce.wrapping_add(u32::from(self.marked_syn));
    }

    /// Whether our SYN or SYN-ACK arrived marked, so that congestion control must respond (RFC 9768
    /// §3.2.2.2); true only once.
    pub(crate) fn take_marked_syn(&mut self) -> bool {
        core::mem::take(&mut self.marked_syn)
    }
}

/// Arriving segments.
impl Ecn {
    /// Whether the next segment is the first since the handshake. Its count is checked against the number of
    /// segments that it acknowledges, in [`SegmentIn::first_acks`].
    pub(crate) fn awaits_first(&self) -> bool {
        self.accurate().is_some_and(Accurate::awaits_first)
    }

    /// An acceptable segment arrived.
    pub(crate) fn on_segment(&mut self, segment: &SegmentIn) -> Urgency {
        match &mut self.scheme {
            Scheme::Echo(echo) if segment.taken => echo.on_data(segment),
            Scheme::Off | Scheme::Echo(_) => Urgency::None,
            Scheme::Accurate(accurate) => accurate.on_segment(segment),
        }
    }

    /// `bytes` bytes arrived again that had been acknowledged. A single byte may be that of a keepalive
    /// probe.
    pub(crate) fn on_repeated_data(&mut self, bytes: u64) {
        if let Some(accurate) = self.accurate_mut().filter(|_| bytes > 1) {
            accurate.on_repeated_data();
        }
    }

    /// The marks on our packets that an ACK reports, before recovery processes it. An ACK that was
    /// `overtaken` says nothing about marks, whatever its SACK blocks say (RFC 9768 §3.2.2.2).
    pub(crate) fn feedback(&self, header: &TcpHeader, overtaken: bool) -> Feedback {
        match &self.scheme {
            _ if overtaken => Feedback::None,
            Scheme::Echo(_) if header.flags.contains(TcpFlags::ECE) => Feedback::Echo,
            Scheme::Off | Scheme::Echo(_) => Feedback::None,
            Scheme::Accurate(accurate) => accurate.feedback(header.flags, header.options.accecn),
        }
    }

    /// Recovery has processed the ACK: it delivered `delivered` segments, of which `marked` were taken for
    /// marked. Not called for an ACK that acknowledged nothing new, which may have been overtaken (RFC 9768
    /// appendix A.1).
    pub(crate) fn on_ack(&mut self, feedback: Feedback, delivered: u32, marked: u32) {
        self.delivered_ce = self.delivered_ce.wrapping_add(marked);
        if let (Feedback::Counted(ack), Some(accurate)) = (feedback, self.accurate_mut()) {
            accurate.on_ack(ack, delivered, marked);
        }
    }
}

/// Leaving segments.
impl Ecn {
    /// The connection is asked for a packet at `now`; its smoothed round trip is `srtt`.
    pub(crate) fn before_packet(&mut self, config: &EcnConfig, now: Instant, srtt: Option<Duration>) {
        if let Some(accurate) = self.accurate_mut() {
            accurate.before_packet(config, now, srtt);
        }
    }

    /// Whether an ACK must leave before any other segment.
    pub(crate) fn has_turn(&self) -> bool {
        matches!(&self.scheme, Scheme::Echo(echo) if echo.has_turn())
    }

    /// The next ACK that must leave first.
    pub(crate) fn take_turn(&mut self) -> Option<Turn> {
        match &mut self.scheme {
            Scheme::Echo(echo) => echo.take_turn(),
            Scheme::Off | Scheme::Accurate(_) => None,
        }
    }

    /// The connection has ended: drops all waiting ACKs.
    pub(crate) fn forget_turns(&mut self) {
        if let Scheme::Echo(echo) = &mut self.scheme {
            echo.forget_turns();
        }
    }

    /// Whether the ACK of a client's handshake must leave before any other segment (RFC 9768 §3.2.2.1).
    pub(crate) fn acks_syn_first(&self) -> bool {
        self.accurate().is_some_and(Accurate::is_client)
    }

    /// Bytes that our option takes in the next segment with data.
    pub(crate) fn option_len(&self, beside: Beside) -> u32 {
        let carrier = Carrier::NewData { reduced: false };
        let option = self.accurate().and_then(|accurate| accurate.option(carrier, beside));
        option.map_or(0, |option| option.emitted_len() as u32)
    }

    /// Whether packets must hold one segment each: see [`accurate`].
    pub(crate) fn needs_single_segments(&self) -> bool {
        self.accurate().is_some_and(Accurate::needs_single_segments)
    }

    /// A segment leaves: returns its flags, option and mark.
    pub(crate) fn stamp(&mut self, carrier: Carrier, wanted: EcnUse, beside: Beside) -> Stamp {
        match &mut self.scheme {
            Scheme::Off => Stamp::NONE,
            Scheme::Echo(echo) => echo.stamp(carrier),
            Scheme::Accurate(accurate) => accurate.stamp(carrier, wanted, beside),
        }
    }

    /// The last segment did not leave after all.
    pub(crate) fn take_back(&mut self) {
        if let Some(accurate) = self.accurate_mut() {
            accurate.take_back();
        }
    }
}

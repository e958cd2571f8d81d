//! Processing an ACK in six steps, in the order of Linux's `tcp_ack`.
//! RFC 5681, 6298, 6582, 6675, 8985, 9937, each named at the line that implements it.
//! Called by the connection, once for every ACK that `ingress` accepted.
//!
//! ```text
//!   deliver ─▶ time ─▶ judge_tail_probe ─▶ undo_or_leave ─▶ detect ─▶ set_window
//!   arrived    RTT,    did it repair       spurious loss?   lost      cwnd, and a sample
//!   segments   RTO     a loss?             recovery over?   segments  of the delivery rate
//! ```

use core::ops::Range;

use taut_wire::SackBlocks;

use super::log::sent::{SACKED, segs_in};
use super::rack::DUP_THRESH;
use super::rules::frto::{Frto, FrtoAck};
use super::rules::rto;
use super::sack::{self, Delivered};
use super::states::Reduction;
use super::tail_probe::TailProbeOutcome;
use super::{Base, CaState, Feedback, Flight, Recovery, RecoveryConfig};
use crate::congestion::{AckEvent, Congestion, RateSample};
use crate::words::{Duration, Instant};

/// After the peer dropped data that it had acknowledged selectively, the head is retransmitted at least this
/// much later. Linux: 10 ms.
const RENEGING_DELAY: Duration = Duration::from_millis(10);

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
    /// There is unsent data, and the peer's window has room for it.
    pub(crate) may_send_new: bool,
    /// Its report about congestion marks.
    pub(crate) marks: Feedback,
}

/// The effects of an ACK.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckOutcome {
    /// `una` moved.
    pub(crate) advanced: bool,
    /// Segments newly delivered, cumulatively or selectively.
    pub(crate) delivered_segs: u32,
    pub(crate) rate: Option<RateSample>,
    /// A duplicate ACK in RFC 5681's sense.
    pub(crate) dup: bool,
    /// The peer reported data received twice.
    pub(crate) dsack: bool,
    /// Segments delivered that the peer reported as marked.
    pub(crate) delivered_ce: u32,
    /// A reduction was undone.
    pub(crate) undone: Option<Undone>,
    /// F-RTO found a timeout to be spurious. Counter: TCPSpuriousRTOs.
    pub(crate) spurious_timeout: bool,
    /// A tail loss probe had repaired a loss. Counter: TCPLossProbeRecovery.
    pub(crate) tail_probe_repaired: bool,
}

/// Which reduction was undone, as Linux distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undone {
    /// D-SACKs reported every retransmission as unnecessary. Counter: TCPDSACKUndo.
    Dsack,
    /// That of a timeout. Counter: TCPLossUndo.
    Timeout,
    /// That of a fast recovery, by the ACK that ended it. Counter: TCPFullUndo.
    Full,
    /// That of a fast recovery, before its end. Counter: TCPPartialUndo.
    Partial,
}

/// One ACK on its way through the steps.
struct Ack<'a> {
    now: Instant,
    cfg: &'a RecoveryConfig,
    input: &'a AckInput<'a>,
    /// It acknowledges everything below this position, which is never beyond the data sent.
    upto: u64,
    before: Before,
    delivered: &'a mut Delivered,
    found: Found,
    out: &'a mut AckOutcome,
}

/// The findings of the steps that later steps need.
#[derive(Default)]
struct Found {
    /// The range that the peer reports as received twice.
    dsack: Option<Range<u64>>,
    /// It reports a congestion mark.
    marked: bool,
    /// Round trip of the newest packet that it acknowledges.
    rtt: Option<Duration>,
    /// Segments newly found lost.
    newly_lost: u32,
}

/// Timestamps count milliseconds: an echo may measure this much more than has passed.
const ECHO_TICK: Duration = Duration::from_millis(1);

/// The state when the ACK arrived.
struct Before {
    in_flight: u32,
    total_lost: u32,
    /// The window was being reduced step by step.
    reducing: bool,
    /// When the first of the present retransmissions was sent or due, if that is known.
    resent_at: Option<Instant>,
}

impl Recovery {
    /// An ACK arrived.
    pub(crate) fn on_ack(
        &mut self,
        now: Instant,
        cc: &mut Congestion,
        input: &AckInput<'_>,
        cfg: &RecoveryConfig,
    ) -> AckOutcome {
        let Self { base, flight: Some(flight) } = self else { return AckOutcome::default() };
        let outcome = base.on_ack(flight, now, cc, input, cfg);
        if outcome.advanced || outcome.delivered_segs > 0 {
            base.arm_tail_probe(flight, now, cfg);
        }
        outcome
    }
}

impl Base {
    // If it were inlined into the connection's function for an ACK, that would have too few registers.
    #[inline(never)]
    fn on_ack(
        &mut self,
        f: &mut Flight,
        now: Instant,
        cc: &mut Congestion,
        input: &AckInput<'_>,
        cfg: &RecoveryConfig,
    ) -> AckOutcome {
        let mut out = AckOutcome::default();
        let (min_rtt, echo_rtt) = (self.rtt.min_rtt(), input.timestamp_echo_rtt);
        let mut delivered = Delivered::new(now, f.rack.fack, f.high_seq, min_rtt, echo_rtt);
        let mut ack = Ack {
            now,
            cfg,
            input,
            upto: input.ack.min(f.log.nxt()),
            before: Before {
                in_flight: f.log.in_flight(),
                total_lost: f.log.total_lost(),
                reducing: self.is_reducing(),
                resent_at: match (f.first_timeout_at, f.undo.first_retransmit()) {
                    (Some(timeout), Some(retransmit)) => Some(timeout.min(retransmit)),
                    (timeout, retransmit) => timeout.or(retransmit),
                },
            },
            delivered: &mut delivered,
            found: Found::default(),
            out: &mut out,
        };
        self.deliver(f, &mut ack);
        self.time(f, &mut ack);
        self.judge_tail_probe(f, cc, &mut ack);
        self.undo_or_leave(f, cc, &mut ack);
        self.detect(f, cc, &mut ack);
        self.set_window(f, cc, &mut ack);
        if f.log.is_empty() {
            f.rto_at = None;
            f.reorder_at = None;
        }
        out
    }

    // ---- deliver ----

    /// The segments that arrived: selectively, cumulatively, or (without SACK) inferred from a duplicate ACK.
    fn deliver(&mut self, f: &mut Flight, ack: &mut Ack<'_>) {
        let Ack { input, upto, delivered, out, .. } = ack;
        out.advanced = *upto > self.una;
        if self.sack_ok && !input.sack.is_empty() {
            ack.found.dsack = f.take_blocks(*upto, input.sack, delivered);
            out.dsack = ack.found.dsack.is_some();
        }
        if out.advanced {
            f.log.acknowledge(*upto, |record, segs| delivered.acked(record, segs, &mut f.rack));
            self.una = *upto;
            self.timeouts = 0;
            f.first_timeout_at = None;
            f.tail_probe_due = false;
            if f.log.is_empty() {
                f.rack.on_empty();
            }
        }
        if delivered.reordered {
            f.rack.on_reordering();
            f.rack.note_overtaken(delivered.overtaken, f.mss);
        }
        // RFC 5681 §2.
        out.dup = input.ack == self.una
            && !out.advanced
            && !input.carries_data
            && !input.window_changed
            && !f.log.is_empty();
        if !self.sack_ok {
            if out.advanced {
                delivered.segs = f.log.consume_dup_acks(delivered.acked_segs);
            } else if out.dup && f.log.add_dup_ack() {
                delivered.segs = 1;
            }
        }
        self.delivered += u64::from(delivered.segs);
        out.delivered_segs = delivered.segs;
        let marked = input.marks.marked(delivered.segs, out.advanced, u32::from(f.mss));
        ack.found.marked = marked.is_some();
        out.delivered_ce = marked.unwrap_or(0);
    }

    // ---- time ----

    /// The round-trip time, and the new timeout for the head.
    fn time(&mut self, f: &mut Flight, ack: &mut Ack<'_>) {
        let Ack { now, delivered, out, .. } = ack;
        ack.found.rtt = self.take_rtt(*now, delivered, ack.input, ack.before.resent_at, f.log.nxt(), ack.cfg);
        let head = f.log.first();
        if out.advanced {
            // RFC 6298 §5.2, §5.3. The new head may wait below TCP for its departure.
            f.rto_at = head.map(|head| head.sent_at.max(*now) + self.rto(ack.cfg));
            // RFC 2018 §8: the new head was acknowledged selectively, so the peer may have dropped it.
            f.reneging = head.is_some_and(|head| head.has(SACKED));
            if f.reneging {
                let patience = (self.rtt.srtt().unwrap_or(rto::RTO_INIT) / 2).max(RENEGING_DELAY);
                f.rto_at = Some(*now + patience);
            }
        } else if let (Some(sent_at), Some(head)) = (delivered.sacked_first, head)
            && sent_at < head.sent_at
        {
            // Packets that were sent before the last transmission of the head are still arriving: it is too
            // early for an answer to the head. (Linux.)
            f.rto_at = Some(head.sent_at.max(*now) + self.rto(ack.cfg));
        }
    }

    /// RTT samples of an ACK (Karn: never from retransmitted packets); returns that of the newest packet.
    fn take_rtt(
        &mut self,
        now: Instant,
        delivered: &Delivered,
        input: &AckInput<'_>,
        resent_at: Option<Instant>,
        nxt: u64,
        cfg: &RecoveryConfig,
    ) -> Option<Duration> {
        let clean = |at: Option<Instant>| if delivered.acked_retransmitted { None } else { at };
        let oldest = clean(delivered.acked_first).or(delivered.sacked_first).map(|at| now.since(at));
        let newest = clean(delivered.acked_last).or(delivered.sacked_last).map(|at| now.since(at));
        let (smoothed, newest) = match (oldest, newest) {
            (Some(oldest), Some(_)) => (oldest, newest),
            // RFC 7323 §4.3: a timestamp also measures retransmitted packets. Its clock is coarse, so it
            // comes last.
            _ => {
                let counts = self.una >= input.ack && delivered.acked_segs > 0;
                let echoed = input
                    .timestamp_echo_rtt
                    .filter(|&rtt| counts && rtt <= self.longest_echo(now, resent_at, cfg));
                (oldest.or(echoed)?, newest.or(echoed))
            }
        };
        if let Some(rtt) = newest {
            self.rtt.sample_min(now, rtt);
        }
        self.rtt.sample(smoothed, self.una, nxt, cfg.rto_min);
        // RFC 6298 §5.7: a fresh sample ends the backoff.
        self.backoff = 0;
        newest
    }

    /// What an echo can have measured. It is the peer's word, but nothing can have been echoed that left
    /// before what is acknowledged did. The first retransmission, or timeout, came within two RTOs of the
    /// first transmission: a tail loss probe, which sends something else, may have come before it.
    #[cold]
    fn longest_echo(&self, now: Instant, resent_at: Option<Instant>, cfg: &RecoveryConfig) -> Duration {
        let since = resent_at.map_or(Duration::ZERO, |at| now.since(at));
        since + rto::timeout(&self.rtt, 0, cfg.rto_max) * 2 + ECHO_TICK
    }

    // ---- judge_tail_probe ----

    /// The result of a tail loss probe. RFC 8985 §7.4.
    fn judge_tail_probe(&mut self, f: &mut Flight, cc: &mut Congestion, ack: &mut Ack<'_>) {
        let Some(probe) = f.tail_probe else { return };
        let pure_dup = ack.out.dup && ack.delivered.sacked_segs == 0;
        match probe.judge(ack.upto, ack.found.dsack.as_ref(), pure_dup) {
            TailProbeOutcome::Open => return,
            TailProbeOutcome::Needless => {}
            TailProbeOutcome::Repaired => {
                // RFC 8985 §7.4.2: the probe repaired a loss, for which the window is reduced once.
                ack.out.tail_probe_repaired = true;
                if self.state < CaState::Cwr {
                    self.begin_reduction(f, ack.now, cc, Reduction::REPAIRED, 0);
                    cc.end_reduction();
                    self.state = CaState::Open;
                }
            }
        }
        f.tail_probe = None;
    }

    // ---- undo_or_leave ----

    /// Undoes a reduction that was unnecessary, and ends one that is complete.
    fn undo_or_leave(&mut self, f: &mut Flight, cc: &mut Congestion, ack: &mut Ack<'_>) {
        if ack.found.marked {
            // The network is congested even if the losses turn out to be spurious: their reduction stays.
            cc.forget_prior();
            f.undo.end();
        }
        if (self.state >= CaState::Recovery || ack.out.dsack)
            && let Some(undone) = self.was_needless(f, ack)
            && f.log.may_unmark()
        {
            self.undo_reduction(f, ack.now, cc);
            ack.out.undone = Some(undone);
        }
        self.leave_if_complete(f, cc);
    }

    /// Whether a reduction was unnecessary, by the tests of RFC 4015 (timestamps), RFC 3708 (D-SACK) and RFC
    /// 5682 (order of arrival).
    fn was_needless(&self, f: &mut Flight, ack: &mut Ack<'_>) -> Option<Undone> {
        let recovered = self.una >= f.high_seq;
        let delayed = ack.out.advanced
            && self.state >= CaState::Recovery
            && (self.sack_ok || !recovered || f.undo.was_retransmitted())
            && f.undo.original_arrived(ack.now, ack.input.timestamp_echo_rtt);
        let reported =
            (ack.out.dsack || self.state == CaState::Loss && ack.out.advanced) && f.undo.all_reported();
        match self.state {
            CaState::Loss if delayed || reported => Some(Undone::Timeout),
            CaState::Loss => {
                ack.out.spurious_timeout = self.ask_frto(f, ack);
                ack.out.spurious_timeout.then_some(Undone::Timeout)
            }
            _ if reported => Some(Undone::Dsack),
            CaState::Recovery if delayed && recovered => Some(Undone::Full),
            CaState::Recovery if delayed => Some(Undone::Partial),
            _ => None,
        }
    }

    /// Whether F-RTO finds the timeout spurious with this ACK.
    fn ask_frto(&self, f: &mut Flight, ack: &Ack<'_>) -> bool {
        let Ack { input, delivered, out, .. } = ack;
        let nxt = f.log.nxt();
        let needless = f.frto.on_ack(&FrtoAck {
            // Without SACK, an ACK beyond a retransmission may be due to that alone, and to earlier arrivals
            // that no ACK could report.
            original_delivered: delivered.original && (self.sack_ok || !delivered.acked_retransmitted),
            advanced: out.advanced,
            recovered: self.una >= f.high_seq,
            new_data_out: nxt > f.high_seq,
            dup_or_sacked: out.dup || delivered.sacked_segs > 0,
            may_send_new: input.may_send_new,
        });
        if f.frto == Frto::SendNew {
            f.high_seq = nxt;
        }
        needless
    }

    // ---- detect ----

    /// Marks lost segments, and begins a reduction of the window for them or for a mark.
    fn detect(&mut self, f: &mut Flight, cc: &mut Congestion, ack: &mut Ack<'_>) {
        let segs = ack.delivered.segs;
        if ack.found.marked && self.state <= CaState::Disorder {
            self.begin_reduction(f, ack.now, cc, Reduction::MARK, segs);
        }
        self.mark_lost(f, ack.now, ack.out.advanced, ack.cfg);
        self.begin_repair(f, ack.now, cc, segs);
        if self.state <= CaState::Disorder {
            let clean = f.log.sacked_out() == 0 && f.log.lost_out() == 0;
            self.state = if clean { CaState::Open } else { CaState::Disorder };
        }
        ack.found.newly_lost = f.log.total_lost().wrapping_sub(ack.before.total_lost);
    }

    /// Marks lost segments.
    pub(super) fn mark_lost(&self, f: &mut Flight, now: Instant, advanced: bool, cfg: &RecoveryConfig) {
        if !self.sack_ok {
            // RFC 5681 §3.2, RFC 6582 §3.2: three duplicate ACKs, then every partial ACK.
            let fast =
                self.state < CaState::Recovery && f.log.sacked_out() >= DUP_THRESH && self.una > f.recover;
            let partial = self.state >= CaState::Recovery && advanced && self.una < f.high_seq;
            if fast || partial {
                f.log.mark_head_lost();
            }
            return;
        }
        let recovering = self.state >= CaState::Recovery;
        let (min_rtt, srtt) = (self.rtt.min_rtt(), self.rtt.srtt());
        let found = f.rack.detect(now, &mut f.log, recovering, min_rtt, srtt, cfg);
        f.reorder_at = found.timer;
    }

    // ---- set_window ----

    /// Sets the congestion window: during a reduction, by the number of segments delivered (RFC 9937); else
    /// as the congestion control decides.
    fn set_window(&mut self, f: &mut Flight, cc: &mut Congestion, ack: &mut Ack<'_>) {
        let Ack { now, before, delivered, found: Found { newly_lost, .. }, out, .. } = ack;
        out.rate = f.sampler.sample(
            *now,
            delivered.newest,
            self.delivered,
            delivered.segs,
            before.in_flight,
            *newly_lost,
            f.log.total_lost(),
            self.rtt.min_rtt(),
        );
        let reducing = self.is_reducing();
        if reducing && !cc.owns_cwnd() && delivered.segs > 0 {
            let safe = out.advanced && *newly_lost == 0;
            cc.set_cwnd(f.prr.on_ack(delivered.segs, f.log.in_flight(), cc.ssthresh(), safe));
        }
        // The ACK that ends a reduction leaves cwnd at ssthresh (RFC 9937 §6.4); in Linux this ACK already
        // makes it grow. cwnd grows by the segments delivered in order (RFC 5681 §3.1). On a path that
        // reorders, it grows by the segments delivered in any order (Linux: once the degree of reordering is
        // above its default).
        let progress = out.advanced || (delivered.segs > 0 && f.rack.knows_reordering());
        let may_grow = progress && !reducing && !before.reducing;
        f.log.take_lost(self.delivered, |packet| cc.on_lost(packet));
        if out.advanced || delivered.segs > 0 || *newly_lost > 0 {
            cc.on_ack(self.event(f, ack), may_grow);
            if cc.take_app_limited() {
                f.sampler.set_app_limited(self.delivered, f.log.in_flight());
            }
        }
    }

    /// The ACK in the form in which congestion control gets it.
    fn event<'a>(&self, f: &Flight, ack: &'a Ack<'_>) -> AckEvent<'a> {
        AckEvent {
            now: ack.now,
            mss: u32::from(f.mss),
            acked: ack.out.delivered_segs,
            newly_lost: ack.found.newly_lost,
            prior_in_flight: ack.before.in_flight,
            in_flight: f.log.in_flight(),
            total_delivered: self.delivered,
            total_lost: f.log.total_lost(),
            rtt: ack.found.rtt,
            srtt: self.rtt.srtt(),
            min_rtt: self.rtt.min_rtt(),
            una: self.una,
            nxt: f.log.nxt(),
            rate: ack.out.rate.as_ref(),
            ece: ack.found.marked,
            delivered_ce: ack.out.delivered_ce,
            // The send path reported it to congestion control, which fills it in.
            cwnd_limited: false,
            recovering: self.state >= CaState::Recovery,
            seed: f.seed,
        }
    }
}

impl Flight {
    /// Processes SACK blocks. Returns the one that reports data received twice, if there is one.
    fn take_blocks(
        &mut self,
        upto: u64,
        blocks: &[Range<u64>],
        delivered: &mut Delivered,
    ) -> Option<Range<u64>> {
        let dsack = sack::duplicate(upto, self.log.nxt(), blocks);
        if let Some(twice) = &dsack {
            self.note_dsack(upto, twice);
        }
        let rest = blocks.get(usize::from(dsack.is_some())..).unwrap_or(&[]);
        let rest = rest.get(..SackBlocks::MAX).unwrap_or(rest);
        sack::apply(&mut self.log, upto, rest, &mut self.rack, delivered);
        dsack
    }

    fn note_dsack(&mut self, upto: u64, twice: &Range<u64>) {
        let segs = segs_in(twice.end - twice.start, self.mss);
        self.dsack_segs = self.dsack_segs.saturating_add(segs);
        if self.dsack_segs > self.resent_segs {
            // More than was ever retransmitted: the network duplicates packets (RFC 3708 §3; Linux has the
            // same test).
            return;
        }
        self.undo.on_dsack(twice.end, segs);
        // A tail loss probe is often unnecessary: a D-SACK for it says nothing about reordering (Linux).
        if self.tail_probe.is_none_or(|probe| probe.end != twice.end) {
            self.rack.on_dsack(upto, self.log.nxt());
        }
    }
}

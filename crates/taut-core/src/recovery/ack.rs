//! What an ACK means: the steps in order, and the states they move between.
//! RFC 5681, 6298, 6582, 9937; the order and the states are those of Linux's `tcp_ack`.
//! Called by the connection, once for every ACK that ingress accepted.

use core::ops::Range;

use super::RecoveryConfig;
use super::frto::{Frto, FrtoAck};
use super::sack::{self, BLOCKS_MAX, Delivered};
use super::sent::{SACKED, segs_in};
use super::states::Reduction;
use super::tlp::Verdict;
use super::{Base, CaState, Feedback, Flight, Recovery, rto};
use crate::congestion::{AckEvent, Congestion, RateSample};
use crate::words::{Duration, Instant};

/// Duplicate ACKs that stand for a loss, without SACK. RFC 5681 §3.2.
const DUP_THRESH: u32 = 3;
/// After the peer threw away data it had sacked, its head is resent this much later at least. Linux: 10 ms.
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

impl Recovery {
    /// An ACK came in. The order is Linux's: what was delivered, how fast, what is lost, then the window.
    pub(crate) fn on_ack(
        &mut self,
        now: Instant,
        cc: &mut Congestion,
        ack: &AckInput<'_>,
        cfg: &RecoveryConfig,
    ) -> AckOutcome {
        let Self { base, flight: Some(flight) } = self else { return AckOutcome::default() };
        let outcome = base.on_ack(flight, now, cc, ack, cfg);
        if outcome.advanced || outcome.delivered_segs > 0 {
            base.arm_probe(flight, now, cfg);
        }
        outcome
    }
}

impl Base {
    // Not a part of the connection's function for an ACK, which has not registers enough for both.
    #[inline(never)]
    fn on_ack(
        &mut self,
        f: &mut Flight,
        now: Instant,
        cc: &mut Congestion,
        ack: &AckInput<'_>,
        cfg: &RecoveryConfig,
    ) -> AckOutcome {
        let mut out = AckOutcome::default();
        let prior_in_flight = f.log.in_flight();
        let prior_lost = f.log.total_lost();
        let was_reducing = matches!(self.state, CaState::Cwr | CaState::Recovery);
        let upto = ack.ack.min(f.log.nxt());
        out.advanced = upto > self.una;

        // 1. What was delivered.
        let mut news =
            Delivered::new(now, f.rack.fack, f.high_seq, self.rtt.min_rtt(), ack.timestamp_echo_rtt);
        let mut dsack = None;
        if self.sack_ok && !ack.sack.is_empty() {
            dsack = sack::duplicate(upto, f.log.nxt(), ack.sack);
            if let Some(twice) = &dsack {
                let segs = segs_in(twice.end - twice.start, f.mss);
                f.dsack_segs = f.dsack_segs.saturating_add(segs);
                // More than was ever sent again: the network duplicates (RFC 3708 §3; Linux, the same test).
                if f.dsack_segs <= f.resent_segs {
                    f.undo.on_dsack(twice.end, segs);
                    // A probe is a guess that may well be needless: it says nothing of reordering (Linux).
                    if f.probe.is_none_or(|probe| probe.end != twice.end) {
                        f.rack.on_dsack(upto, f.log.nxt());
                    }
                }
            }
            let rest = ack.sack.get(usize::from(dsack.is_some())..).unwrap_or(&[]);
            let rest = rest.get(..BLOCKS_MAX).unwrap_or(rest);
            sack::apply(&mut f.log, &mut f.cache, upto, rest, &mut f.rack, &mut news);
        }
        out.dsack = dsack.is_some();
        if out.advanced {
            f.log.acknowledge(upto, |record, segs| news.acked(record, segs, &mut f.rack));
            self.una = upto;
            self.timeouts = 0;
            f.first_timeout_at = None;
            if f.log.is_empty() {
                f.rack.on_empty();
            }
        }
        if news.reordered {
            f.rack.on_reordering();
        }
        // RFC 5681 §2.
        out.dup = ack.ack == self.una
            && !out.advanced
            && !ack.carries_data
            && !ack.window_changed
            && !f.log.is_empty();
        if !self.sack_ok {
            if out.advanced {
                news.segs = f.log.consume_dup_acks(news.acked_segs);
            } else if out.dup && f.log.add_dup_ack() {
                news.segs = 1;
            }
        }
        self.delivered += u64::from(news.segs);
        let marked = match ack.marks {
            Feedback::None => false,
            Feedback::Echo => {
                out.delivered_ce = news.segs;
                true
            }
            // An ACK that brings nothing may have been overtaken (RFC 9768 appendix A.1).
            Feedback::Counted(counted) if out.advanced || news.segs > 0 => {
                out.delivered_ce = counted.marked(news.segs, u32::from(f.mss));
                out.delivered_ce > 0
            }
            Feedback::Counted(_) => false,
        };
        out.delivered_segs = news.segs;

        // 2. How long it took.
        let newest_rtt = self.take_rtt(now, &news, ack, f.log.nxt(), cfg);
        out.rtt = newest_rtt;
        if out.advanced {
            // RFC 6298 §5.2, §5.3.
            f.rto_at = (!f.log.is_empty()).then(|| now + self.rto());
        } else if let (Some(sent_at), Some(head)) = (news.sacked_first, f.log.first())
            && sent_at < head.sent_at
        {
            // What was sent before the head last left is still arriving: no answer to the head can be here yet. (Linux.)
            f.rto_at = Some(now + self.rto());
        }

        // 3. Reneging: what now heads the log was acknowledged before. RFC 2018 §8.
        if out.advanced {
            f.reneging = f.log.first().is_some_and(|head| head.has(SACKED));
        }
        if out.advanced && f.reneging {
            let patience = (self.rtt.srtt().unwrap_or(rto::RTO_INIT) / 2).max(RENEGING_DELAY);
            f.rto_at = Some(now + patience);
        }

        // 4. What the tail loss probe found.
        self.judge_probe(f, now, cc, upto, dsack.as_ref(), news.sacked_segs, &mut out);

        // 5. What was needless, what is over, and what is lost.
        if marked {
            cc.forget_prior();
            f.undo.end();
        }
        if self.state >= CaState::Recovery || out.dsack {
            self.undo_if_needless(f, now, cc, ack, &news, &mut out);
        }
        self.leave_if_complete(f, cc);
        if marked && self.state <= CaState::Disorder {
            self.begin_reduction(f, now, cc, Reduction::MARK, news.segs);
        }
        self.detect(f, now, out.advanced, cfg);
        if f.judge_mtu_probe(self.una, self.state) {
            self.resend_without_reduction(f, cc);
        } else if f.log.pending() > 0 && self.state < CaState::Recovery {
            self.begin_reduction(f, now, cc, Reduction::LOSS, news.segs);
        }
        if self.state <= CaState::Disorder {
            let clean = f.log.sacked_out() == 0 && f.log.lost_out() == 0;
            self.state = if clean { CaState::Open } else { CaState::Disorder };
        }
        out.newly_lost_segs = f.log.total_lost().wrapping_sub(prior_lost);

        // 6. The window.
        out.rate = f.sampler.sample(
            now,
            news.newest,
            self.delivered,
            news.segs,
            prior_in_flight,
            out.newly_lost_segs,
            f.log.total_lost(),
            self.rtt.min_rtt(),
        );
        let reducing = matches!(self.state, CaState::Cwr | CaState::Recovery);
        if reducing && !cc.owns_cwnd() && news.segs > 0 {
            let safe = out.advanced && out.newly_lost_segs == 0;
            cc.set_cwnd(f.prr.on_ack(news.segs, f.log.in_flight(), cc.ssthresh(), safe));
        }
        // The ACK that ends a reduction leaves cwnd at ssthresh (RFC 9937 §6.4); Linux grows by it already.
        // Where packets overtake each other, what is delivered in any order shows that there is room (Linux: once the
        // degree of reordering is above its default); else only what is delivered in order (RFC 5681 §3.1).
        let progress = out.advanced || (news.segs > 0 && f.rack.knows_reordering());
        let may_grow = progress && !reducing && !was_reducing;
        let delivered = self.delivered;
        f.log.take_lost(delivered, |packet| cc.on_lost(packet));
        if out.advanced || news.segs > 0 || out.newly_lost_segs > 0 {
            cc.on_ack(self.event(f, now, &out, marked, prior_in_flight), may_grow);
            if cc.take_app_limited() {
                f.sampler.set_app_limited(self.delivered, f.log.in_flight());
            }
        }
        if f.log.is_empty() {
            f.rto_at = None;
            f.reorder_at = None;
        }
        out
    }

    /// What congestion control is told of the ACK.
    fn event<'a>(
        &self,
        f: &Flight,
        now: Instant,
        out: &'a AckOutcome,
        marked: bool,
        prior_in_flight: u32,
    ) -> AckEvent<'a> {
        AckEvent {
            now,
            mss: u32::from(f.mss),
            acked: out.delivered_segs,
            newly_lost: out.newly_lost_segs,
            prior_in_flight,
            in_flight: f.log.in_flight(),
            total_delivered: self.delivered,
            total_lost: f.log.total_lost(),
            rtt: out.rtt,
            srtt: self.rtt.srtt(),
            min_rtt: self.rtt.min_rtt(),
            una: self.una,
            nxt: f.log.nxt(),
            rate: out.rate.as_ref(),
            ece: marked,
            delivered_ce: out.delivered_ce,
            // Congestion control was told by the sender, and fills it in.
            cwnd_limited: false,
            recovering: self.state >= CaState::Recovery,
            seed: f.seed,
        }
    }

    /// RTT samples of an ACK (Karn: never from what was sent twice); returns that of the newest packet.
    fn take_rtt(
        &mut self,
        now: Instant,
        news: &Delivered,
        ack: &AckInput<'_>,
        nxt: u64,
        cfg: &RecoveryConfig,
    ) -> Option<Duration> {
        let clean = |at: Option<Instant>| if news.acked_retransmitted { None } else { at };
        let oldest = clean(news.acked_first).or(news.sacked_first).map(|at| now.since(at));
        let newest = clean(news.acked_last).or(news.sacked_last).map(|at| now.since(at));
        // RFC 7323 §4.3: a timestamp tells even for what was sent twice. Its clock is coarse, so it comes last.
        let echoed = ack.timestamp_echo_rtt.filter(|_| self.una >= ack.ack && news.acked_segs > 0);
        let smoothed = oldest.or(echoed)?;
        let newest = newest.or(echoed);
        if let Some(rtt) = newest {
            self.rtt.sample_min(now, rtt);
        }
        self.rtt.sample(smoothed, self.una, nxt, cfg.rto_min);
        // RFC 6298 §5.7: a fresh sample ends the backoff.
        self.backoff = 0;
        newest
    }

    #[expect(clippy::too_many_arguments, reason = "one step of on_ack, cut out to be read alone")]
    fn judge_probe(
        &mut self,
        f: &mut Flight,
        now: Instant,
        cc: &mut Congestion,
        ack: u64,
        dsack: Option<&Range<u64>>,
        sacked_segs: u32,
        out: &mut AckOutcome,
    ) {
        let Some(probe) = f.probe else { return };
        let pure_dup = out.dup && sacked_segs == 0;
        match probe.judge(ack, dsack, pure_dup) {
            Verdict::Open => return,
            Verdict::Needless => {}
            Verdict::Repaired => {
                // RFC 8985 §7.4.2: the loss was repaired, the window is reduced for it once.
                out.probe_repaired = true;
                if self.state < CaState::Cwr {
                    self.begin_reduction(f, now, cc, Reduction::REPAIRED, 0);
                    cc.end_reduction();
                    self.state = CaState::Open;
                }
            }
        }
        f.probe = None;
    }

    /// RFC 4015, RFC 3708 and RFC 5682 tests; gives the window back when one succeeds. The RTO stays backed off
    /// until an unambiguous sample ends that, as in Linux: a needless timeout was too short a one.
    fn undo_if_needless(
        &mut self,
        f: &mut Flight,
        now: Instant,
        cc: &mut Congestion,
        ack: &AckInput<'_>,
        news: &Delivered,
        out: &mut AckOutcome,
    ) {
        let recovered = self.una >= f.high_seq;
        let delayed = out.advanced
            && self.state >= CaState::Recovery
            && (self.sack_ok || !recovered || f.undo.was_retransmitted())
            && f.undo.original_arrived(now, ack.timestamp_echo_rtt);
        let reported = (out.dsack || self.state == CaState::Loss && out.advanced) && f.undo.all_reported();
        let undone = match self.state {
            _ if reported && self.state != CaState::Loss => Undone::Dsack,
            CaState::Loss if delayed || reported => Undone::Timeout,
            CaState::Loss => {
                let frto = FrtoAck {
                    // Without SACK an ACK beyond a retransmission may be for that alone, and then for arrivals that
                    // nothing told of.
                    original_delivered: news.original && (self.sack_ok || !news.acked_retransmitted),
                    advanced: out.advanced,
                    recovered,
                    new_data_out: f.log.nxt() > f.high_seq,
                    dup_or_sacked: out.dup || news.sacked_segs > 0,
                    may_send_new: ack.may_send_new,
                };
                let sends_new = f.log.nxt();
                if !f.frto.on_ack(&frto) {
                    if f.frto == Frto::SendNew {
                        f.high_seq = sends_new;
                    }
                    return;
                }
                out.spurious_timeout = true;
                Undone::Timeout
            }
            CaState::Recovery if delayed && recovered => Undone::Full,
            CaState::Recovery if delayed => Undone::Partial,
            _ => return,
        };
        cc.undo(now);
        f.cwr_due = false;
        f.undo.end();
        f.frto = Frto::Off;
        f.log.unmark_lost();
        f.rack.watch_again(&f.log);
        f.rack.on_reordering();
        self.timeouts = 0;
        f.first_timeout_at = None;
        out.undone = Some(undone);
        if self.state >= CaState::Cwr {
            self.state = CaState::Disorder;
        }
    }

    /// Marks what is lost.
    pub(super) fn detect(&self, f: &mut Flight, now: Instant, advanced: bool, cfg: &RecoveryConfig) {
        if !self.sack_ok {
            // RFC 5681 §3.2, RFC 6582 §3.2: three duplicates, then every partial ACK.
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
}

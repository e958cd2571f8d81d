//! BBR's response to loss: bounds on rate and volume, and how they are undone when the loss was spurious.
//! draft-ietf-ccwg-bbr-06 §5.5.10 and §5.5.11. Called by `bbr/mod.rs` for ACKs and for packets found lost.

use super::ambient::Ambient;
use super::cycle::State;
use super::params::PARAMS;
use super::path::Rate;
use super::{Bbr, UNBOUNDED};
use crate::congestion::RateSample;
use crate::congestion::controller::{AckEvent, LostPacket};

/// §2.8 to §2.10.
#[derive(Debug)]
pub(super) struct Bounds {
    /// The volume that was in flight when too much of it was lost; raised by probing. Segments.
    pub(super) inflight_longterm: u32,
    /// The volume delivered since the last probe, in rounds with loss.
    pub(super) inflight_shortterm: u32,
    pub(super) bw_shortterm: Rate,
    /// The maximum of this round.
    pub(super) inflight_latest: u32,
    pub(super) bw_latest: Rate,
    /// A round of loss ends with the ACK of a packet sent after this many segments were delivered.
    loss_round_delivered: u64,
    pub(super) loss_round_start: bool,
    pub(super) loss_in_round: bool,
    /// Ranges lost in this round.
    pub(super) ranges_lost: u32,
    /// The path's loss that does not depend on the load.
    pub(super) ambient: Ambient,
    /// The bounds to restore if the loss turns out to be spurious.
    undo: Undo,
}

#[derive(Clone, Copy, Debug)]
struct Undo {
    state: Option<State>,
    bw_shortterm: Rate,
    inflight_shortterm: u32,
    inflight_longterm: u32,
}

impl Bounds {
    pub(super) fn new() -> Self {
        Self {
            inflight_longterm: UNBOUNDED,
            inflight_shortterm: UNBOUNDED,
            bw_shortterm: Rate::INFINITE,
            inflight_latest: 0,
            bw_latest: Rate::ZERO,
            loss_round_delivered: 0,
            loss_round_start: false,
            loss_in_round: false,
            ranges_lost: 0,
            ambient: Ambient::default(),
            undo: Undo {
                state: None,
                bw_shortterm: Rate::INFINITE,
                inflight_shortterm: UNBOUNDED,
                inflight_longterm: UNBOUNDED,
            },
        }
    }

    /// Whether so much of the volume in flight was lost that it must be reduced. §5.5.10.2
    /// `IsInflightTooHigh`.
    pub(super) fn is_too_much(&self, lost: u32, tx_in_flight: u32) -> bool {
        let tolerated = self.ambient.at_most(tx_in_flight);
        u64::from(lost.saturating_sub(tolerated)) * 100
            > u64::from(tx_in_flight) * u64::from(PARAMS.loss_thresh)
    }

    /// §5.5.10.3 `UpdateLatestDeliverySignals`.
    pub(super) fn update_latest(&mut self, rs: &RateSample, total_delivered: u64) {
        self.bw_latest = self.bw_latest.max(Rate::of(rs));
        self.inflight_latest = self.inflight_latest.max(rs.delivered);
        self.loss_round_start = rs.prior_delivered >= self.loss_round_delivered;
        if self.loss_round_start {
            self.loss_round_delivered = total_delivered;
        }
    }

    /// §5.5.10.3 `AdvanceLatestDeliverySignals`.
    pub(super) fn advance_latest(&mut self, rs: &RateSample) {
        if self.loss_round_start {
            self.bw_latest = Rate::of(rs);
            self.inflight_latest = rs.delivered;
            self.ranges_lost = 0;
        }
    }

    /// §5.5.10.3 `ResetCongestionSignals`.
    pub(super) const fn reset_signals(&mut self) {
        self.loss_in_round = false;
        self.bw_latest = Rate::ZERO;
        self.inflight_latest = 0;
    }

    /// §5.5.10.3 `ResetShortTermModel`.
    pub(super) const fn reset_short_term(&mut self) {
        self.bw_shortterm = Rate::INFINITE;
        self.inflight_shortterm = UNBOUNDED;
    }

    /// §5.3.3.9 `InflightWithHeadroom`: the volume that leaves others some room.
    pub(super) fn inflight_with_headroom(&self) -> u32 {
        if self.inflight_longterm == UNBOUNDED {
            return UNBOUNDED;
        }
        let headroom = super::percent(u64::from(self.inflight_longterm), PARAMS.headroom) as u32;
        self.inflight_longterm.saturating_sub(headroom.max(1)).max(PARAMS.min_pipe_cwnd)
    }

    /// §5.5.11.1 `SaveStateUponLoss`, except for cwnd.
    pub(super) const fn save_for_undo(&mut self) {
        self.undo = Undo {
            state: None,
            bw_shortterm: self.bw_shortterm,
            inflight_shortterm: self.inflight_shortterm,
            inflight_longterm: self.inflight_longterm,
        };
    }

    /// A loss ended `state`.
    pub(super) const fn note_left(&mut self, state: State) {
        self.undo.state = Some(state);
    }
}

impl Bbr {
    /// §5.5.10.2 `HandleLostPacket`.
    pub(super) fn handle_lost_packet(&mut self, packet: &LostPacket) {
        if !self.bounds.loss_in_round {
            self.bounds.loss_round_delivered = packet.total_delivered;
            self.save_cwnd(self.cwnd);
            // §5.5.11.1: once for each episode. The first loss may end Up, with which a round of loss begins;
            // the rest of the burst must not take its bounds for those from before.
            if !self.in_recovery {
                self.bounds.save_for_undo();
            }
        }
        self.bounds.loss_in_round = true;
        self.bounds.ranges_lost = self.bounds.ranges_lost.saturating_add(1);
        if self.cycle.is_probe_sample && self.bounds.is_too_much(packet.lost, packet.tx_in_flight) {
            self.handle_inflight_too_high(packet);
        }
    }

    /// §5.5.10.2: once for each probe.
    fn handle_inflight_too_high(&mut self, packet: &LostPacket) {
        self.cycle.prev_probe_too_high = true;
        self.cycle.is_probe_sample = false;
        if !packet.is_app_limited {
            let least = super::percent(u64::from(self.target_inflight()), PARAMS.beta) as u32;
            self.bounds.inflight_longterm = inflight_at_loss(packet).max(least);
        }
        if self.cycle.state == State::Up {
            self.bounds.note_left(State::Up);
            self.start_down(packet.total_delivered);
        }
    }

    /// §5.5.10.3: once per round with loss, unless BBR is probing for more.
    pub(super) fn adapt_lower_bounds(&mut self, ack: &AckEvent<'_>) {
        self.bounds.ambient.on_ack(ack);
        if !self.bounds.loss_round_start {
            return;
        }
        let cruising = matches!(self.cycle.state, State::Cruise | State::Refill);
        let more = self.bounds.ambient.on_round(ack, cruising);
        let any = core::mem::take(&mut self.bounds.loss_in_round);
        if !any || !more || self.cycle.state.accelerates() {
            return;
        }
        let bounds = &mut self.bounds;
        if bounds.bw_shortterm == Rate::INFINITE {
            bounds.bw_shortterm = self.path.max_bw();
        }
        if bounds.inflight_shortterm == UNBOUNDED {
            bounds.inflight_shortterm = self.cwnd;
        }
        let least = super::percent(u64::from(bounds.inflight_shortterm), PARAMS.beta) as u32;
        bounds.inflight_shortterm = bounds.inflight_latest.max(least);
        bounds.bw_shortterm = bounds.bw_latest.max(bounds.bw_shortterm.percent(PARAMS.beta));
    }

    /// §5.5.11.2 `HandleSpuriousLossDetection`, except for cwnd.
    pub(super) fn handle_spurious_loss(&mut self) {
        let bounds = &mut self.bounds;
        bounds.loss_in_round = false;
        bounds.bw_shortterm = bounds.bw_shortterm.max(bounds.undo.bw_shortterm);
        bounds.inflight_shortterm = bounds.inflight_shortterm.max(bounds.undo.inflight_shortterm);
        bounds.inflight_longterm = bounds.inflight_longterm.max(bounds.undo.inflight_longterm);
        let left = bounds.undo.state.take();
        self.cycle.reset_full_bw();
        self.return_to(left);
    }
}

/// §5.5.10.2 `InflightAtLoss`: a lost packet may be a burst of many segments; returns the volume in flight at
/// which the share of lost segments crossed the threshold.
fn inflight_at_loss(packet: &LostPacket) -> u32 {
    let before = u64::from(packet.tx_in_flight.saturating_sub(packet.segs));
    let lost_before = u64::from(packet.lost.saturating_sub(packet.segs));
    let thresh = u64::from(PARAMS.loss_thresh);
    let prefix = (thresh * before).saturating_sub(100 * lost_before) / (100 - thresh);
    u32::try_from(before + prefix).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bbr_58_the_prefix_of_a_burst_that_crossed_the_threshold() {
        // 100 segments in flight, 40 of them this packet; one was lost before. 2 % of 60 is 1.2, so that the
        // first segment of the burst was too much already: (0.02 · 60 − 1) / 0.98 = 0.2.
        let packet =
            LostPacket { segs: 40, tx_in_flight: 100, lost: 41, total_delivered: 0, is_app_limited: false };
        assert_eq!(inflight_at_loss(&packet), 60);
        // Nothing was lost before; 1,000 segments in flight, 44 of them this packet: (0.02 · 956) / 0.98 =
        // 19.5.
        let packet = LostPacket { tx_in_flight: 1_000, segs: 44, lost: 44, ..packet };
        assert_eq!(inflight_at_loss(&packet), 956 + 19);
    }

    #[test]
    fn bbr_59_two_percent_is_not_too_much_and_a_little_more_is() {
        let bounds = Bounds::new();
        assert!(!bounds.is_too_much(2, 100));
        assert!(bounds.is_too_much(3, 100));
        assert!(bounds.is_too_much(1, 49));
    }
}

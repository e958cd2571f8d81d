//! The rate at which the network delivers: one sample per ACK.
//! draft-ietf-ccwg-bbr §4.1 (delivery rate estimation), in segments as Linux counts.
//! Called by `transmit.rs` for each packet and by `ack.rs` for each ACK; samples go to congestion control and
//! `TCP_INFO`.

use crate::congestion::RateSample;
use crate::words::{Duration, Instant};

/// The state when a packet was sent. Draft §4.1.2.2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TxSnapshot {
    /// Segments delivered until then.
    pub(crate) delivered: u64,
    /// When the last of them was delivered.
    pub(crate) delivered_at: Instant,
    /// When the packet of the last sample was sent.
    pub(crate) first_sent_at: Instant,
    /// Segments in flight, this packet included.
    pub(crate) in_flight: u32,
    /// Segments lost since the beginning, wrapping.
    pub(crate) lost: u32,
    /// The application had left the network short of data.
    pub(crate) app_limited: bool,
}

/// Connection state of the draft's §4.1.2.1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampler {
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Samples are app-limited until this many segments were delivered; 0 for not at all.
    app_limited_until: u64,
    /// This host slept: until then, what was in flight counts as app-limited too, as its ACKs were read late.
    stalled: bool,
}

impl Sampler {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { delivered_at: now, first_sent_at: now, app_limited_until: 0, stalled: false }
    }

    /// A packet is about to be sent; `in_flight` already counts it unless it is the first.
    pub(crate) fn on_transmit(
        &mut self,
        now: Instant,
        delivered: u64,
        idle: bool,
        in_flight: u32,
        lost: u32,
    ) -> TxSnapshot {
        if idle {
            // Draft §4.1.2.2: a flight begins; no interval includes idle time.
            self.delivered_at = now;
            self.first_sent_at = now;
        }
        TxSnapshot {
            delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            in_flight,
            lost,
            app_limited: self.app_limited_until != 0,
        }
    }

    /// The application has nothing more for now. Draft §4.1.2.4.
    pub(crate) fn set_app_limited(&mut self, delivered: u64, in_flight: u32) {
        self.app_limited_until = (delivered + u64::from(in_flight)).max(1);
    }

    /// This host slept although data was due. Neither the flight from before nor the next one says what the
    /// path can do.
    pub(crate) fn set_stalled(&mut self, delivered: u64, in_flight: u32) {
        self.set_app_limited(delivered, in_flight);
        self.stalled = true;
    }

    /// An ACK delivered `acked_sacked` segments, `newest` being the one sent last. Draft §4.1.2.3.
    #[expect(clippy::too_many_arguments, reason = "each is one term of the draft's rate sample")]
    pub(crate) fn sample(
        &mut self,
        now: Instant,
        newest: Option<(Instant, TxSnapshot)>,
        delivered: u64,
        acked_sacked: u32,
        prior_in_flight: u32,
        losses: u32,
        total_lost: u32,
        min_rtt: Option<Duration>,
    ) -> Option<RateSample> {
        if acked_sacked > 0 {
            self.delivered_at = now;
        }
        if self.app_limited_until != 0 && delivered > self.app_limited_until {
            self.app_limited_until = 0;
            self.stalled = false;
        }
        let (sent_at, packet) = newest?;
        self.first_sent_at = sent_at;
        let send_phase = sent_at.since(packet.first_sent_at);
        let ack_phase = now.since(packet.delivered_at);
        let interval = send_phase.max(ack_phase);
        // An interval below the shortest round trip means that the ACK was for another transmission.
        if interval.is_zero() || min_rtt.is_some_and(|least| interval < least) {
            return None;
        }
        Some(RateSample {
            delivered: u32::try_from(delivered - packet.delivered.min(delivered)).unwrap_or(u32::MAX),
            interval,
            is_app_limited: packet.app_limited || self.stalled,
            prior_in_flight,
            tx_in_flight: packet.in_flight,
            prior_delivered: packet.delivered,
            lost: total_lost.wrapping_sub(packet.lost),
            losses,
            acked_sacked,
        })
    }
}

//! TCP Small Queues: a connection keeps only about a millisecond of its rate below TCP. Linux 3.6
//! (46d3ceabd8d9), its rule as of 6.16, and a rate of taut's own choice. Called by `plan` as its last gate,
//! by `commit` to charge, and by the stack when a [`TxTicket`](crate::TxTicket) comes back.
//!
//! **Problem.** A sender with a large window pushes all of it into the device's queue. Every packet behind it
//! waits (50 ms on a 1 Gbit/s link, 132 ms at 100 Mbit/s, measured in 2012), and the sender's own decisions
//! about size and order are made long before a packet leaves. Bigger buffers make it worse, and the
//! round-trip time that the sender measures includes its own queue.
//!
//! **Rule.** Bytes are *below TCP* from hand-over until their completion reports that they have left the
//! host. A packet of truesize T (payload plus [`OVERHEAD`]) may join them while their sum is below
//!
//! ```text
//!   limit = min( max(2 · T, rate >> shift), tcp_limit_output_bytes ) << (1 for a retransmission)
//! ```
//!
//! Two packets keep the device busy while the completion of one is on its way back. `rate >> 10`, about a
//! millisecond of the rate, keeps it busy where completions come in batches; a link that sends in long bursts
//! asks for more with a smaller shift. The cap (4 MiB) bounds the queue of a fast flow. A
//! retransmission has twice the limit, because it is more urgent than the data queued in front of it.
//!
//! **Which rate.** Linux takes the pacing rate. On a local path nothing ends slow start: the window grows to
//! twice the data in flight, and the pacing rate is twice the window per round trip. A millisecond of that
//! rate is four milliseconds of the link. So the rate here is at most 9/8 of the delivery rate
//! ([`TsqMode::Delivered`]). The eighth leaves room to grow in each round trip, and two packets are always
//! allowed. Above a link that paces, it has what lasts until a thread that is late looks again, too:
//! [`paced`](super::paced).
//!
//! **Resume.** A connection that reaches the limit is *throttled*, and the next completion of a data packet
//! resumes it: it enters the stack's ready queue, and the gates are asked again from there, never from inside
//! the completion. The completion of a pure ACK ([`ACK_TRUESIZE`]) resumes nothing, unless nothing else is
//! left below.
//!
//! **Exemption.** With at most one packet unacknowledged, the gate is open whatever the counter says: no
//! further ACK would come to restart the flow if a slow device were late with its completion (Linux
//! f921a4a5bffa).
//!
//! **History.** 2012: a constant cap of 128 KiB, and super-packets of at most half of it so that two fit.
//! 3.12: the limit follows the rate, because 128 KiB is 100 ms at 10 Mbit/s and too little for completions in
//! batches at 40 Gbit/s. A rewrite of the retransmission queue lost half of the exemption in 4.15; flows on
//! slow links fell silent between super-packets until 2023. From 2018 to 6.15 the cap did not apply to flows
//! paced by fq, which then queued 2 ms.

use super::metered::Metered;
use crate::egress::blocked::Blocked;
use crate::words::{Duration, LinkCaps};

/// How much data of one connection may be below TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TsqMode {
    /// Everything that the windows allow: senders before 2012, and most stacks outside the kernel.
    Off,
    /// Linux 3.6: a constant, whatever the rate; super-packets are at most half of it.
    #[cfg(feature = "history")]
    Fixed {
        /// Bytes, overhead included. 2012's default is [`TsqMode::CAP_2012`].
        cap_bytes: u32,
    },
    /// Linux today: two packets or a millisecond of the pacing rate, under `tcp_limit_output_bytes`.
    RateScaled,
    /// The same with a rate of at most 9/8 of the delivery rate, once that is known.
    Delivered,
    /// What keeps the device busy until its next completion, measured.
    Measured,
    /// Measured on a link whose completions say when packets left
    /// ([`completes_on_departure`](crate::LinkCaps::completes_on_departure)), else delivered. Also delivered
    /// where the link honours departure times: a completion then also tells when its packet was due.
    #[default]
    Auto,
}

impl TsqMode {
    /// `tcp_limit_output_bytes` as it was in Linux 3.6.
    pub const CAP_2012: u32 = 131_072;

    /// Most payload bytes of one super-packet: in 2012, two had to fit under the cap.
    pub(crate) const fn super_packet_max(self) -> u32 {
        match self {
            #[cfg(feature = "history")]
            Self::Fixed { cap_bytes } => cap_bytes / 2,
            Self::Off | Self::RateScaled | Self::Delivered | Self::Measured | Self::Auto => u32::MAX,
        }
    }

    /// The name of the rule that holds on this link.
    pub(crate) fn rule(self, link: &LinkCaps) -> &'static str {
        match self {
            Self::Off => "off",
            #[cfg(feature = "history")]
            Self::Fixed { .. } => "fixed",
            Self::RateScaled => "rate-scaled",
            Self::Delivered => "delivered",
            Self::Measured | Self::Auto => {
                if self.measures(link) {
                    "measured"
                } else {
                    "delivered"
                }
            }
        }
    }

    /// Whether a connection with next to nothing unacknowledged passes the gate: since 2017.
    const fn exempts(self) -> bool {
        match self {
            #[cfg(feature = "history")]
            Self::Fixed { .. } => false,
            _ => true,
        }
    }

    /// Whether completions are measured on this link.
    pub(crate) fn measures(self, link: &LinkCaps) -> bool {
        match self {
            Self::Measured => true,
            Self::Auto => link.completes_on_departure && !link.paces,
            Self::Off | Self::RateScaled | Self::Delivered => false,
            #[cfg(feature = "history")]
            Self::Fixed { .. } => false,
        }
    }
}

/// The rate of the limit is at most this share of the delivery rate: 9/8. Room to grow by an eighth with each
/// sample; at 1 Gbit/s two super-packets, and not a third.
const DELIVERED_GAIN: (u64, u64) = (9, 8);

/// Bytes charged for every packet below TCP in addition to its payload: about the size of Linux's buffer and
/// its bookkeeping. Nothing depends on the exact value.
pub(crate) const OVERHEAD: u32 = 1_024;

/// Bytes charged for a pure ACK: next to nothing, and its completion resumes no connection.
pub(crate) const ACK_TRUESIZE: u32 = 2;

/// Linux's `truesize` of a packet with `payload` bytes.
pub(crate) const fn truesize(payload: u32) -> u32 {
    OVERHEAD + payload
}

/// The bytes that a connection has below TCP.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SmallQueue {
    /// Sum of the truesizes of all tickets that are out.
    outstanding: u32,
    /// The part of it that is measured, and whether the gate was found shut: then the next completion resumes
    /// the connection.
    pub(crate) metered: Metered,
}

impl SmallQueue {
    /// Bytes below TCP.
    pub(crate) const fn outstanding(self) -> u32 {
        self.outstanding
    }

    /// Whether the connection waits for a completion.
    pub(crate) const fn throttled(self) -> bool {
        self.metered.throttled() || self.metered.waits()
    }

    /// A packet was handed to the device.
    pub(crate) fn charge(&mut self, truesize: u32) {
        self.outstanding = self.outstanding.saturating_add(truesize);
    }

    /// A ticket came back. Returns whether the connection was waiting for one and should be resumed: one
    /// completion clears the flag, and the retry sets it again if the gate is still shut. That of an ACK does
    /// so only when nothing else is below: hundreds of ACKs weigh as much as a packet that something waits
    /// for.
    pub(crate) fn release(&mut self, truesize: u32) -> bool {
        debug_assert!(self.outstanding >= truesize, "more released than charged");
        self.outstanding = self.outstanding.saturating_sub(truesize);
        (truesize > ACK_TRUESIZE || self.outstanding == 0) && self.metered.throttle(false)
    }

    /// Notes that the connection waits for a completion. Returns whether it was not waiting before.
    pub(crate) fn throttle(&mut self) -> bool {
        !self.metered.throttle(true)
    }
}

/// Everything that the limit depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) mode: TsqMode,
    /// Truesize of the packet to be added.
    pub(crate) candidate: u32,
    /// Bytes per second; `u64::MAX` when unknown.
    pub(crate) pacing_rate: u64,
    /// What the network delivered, by the last sample; `None` when unknown.
    pub(crate) delivery_rate: Option<u64>,
    /// The link's [`pacing_shift`](crate::LinkCaps::pacing_shift).
    pub(crate) shift: u8,
    /// How late the stack may look at a link that paces ([`paced`](super::paced)).
    pub(crate) ahead: Duration,
    /// TCP_TX_DELAY in microseconds: bytes delayed on purpose do not count as a queue.
    pub(crate) tx_delay_us: u32,
    /// `tcp_limit_output_bytes`.
    pub(crate) cap: u32,
    pub(crate) retransmit: bool,
}

impl Limit {
    /// The rate of which a millisecond may be below TCP.
    pub(crate) fn rate(&self) -> u64 {
        match (self.mode, self.delivery_rate) {
            (TsqMode::Delivered | TsqMode::Auto, Some(rate)) => {
                let (times, over) = DELIVERED_GAIN;
                self.pacing_rate.min((rate / over).saturating_mul(times))
            }
            _ => self.pacing_rate,
        }
    }

    /// Bytes that last until a late thread looks again. Linux is never late.
    fn ahead(&self) -> u64 {
        match self.mode {
            _ if self.ahead.is_zero() => 0,
            TsqMode::Delivered | TsqMode::Auto => {
                self.rate().saturating_mul(self.ahead.as_nanos()) / 1_000_000_000
            }
            _ => 0,
        }
    }
}

/// How much may be below TCP before the candidate is added, in bytes.
pub(crate) fn limit(l: Limit) -> u64 {
    let limit = match l.mode {
        TsqMode::Off => return u64::MAX,
        // In 2012 a retransmission had no limit of its own.
        #[cfg(feature = "history")]
        TsqMode::Fixed { cap_bytes } => return u64::from(cap_bytes),
        // What is measured has a limit of its own.
        TsqMode::RateScaled | TsqMode::Delivered | TsqMode::Measured | TsqMode::Auto => {
            let rate_share = l.rate() >> u32::from(l.shift).min(63);
            let linux = rate_share.max(2 * u64::from(l.candidate));
            linux.saturating_add(l.ahead()).min(u64::from(l.cap))
        }
    };
    limit.saturating_add(delayed(l.pacing_rate, l.tx_delay_us)) << u32::from(l.retransmit)
}

/// Bytes that TCP_TX_DELAY holds below TCP on purpose, twice, in Linux's arithmetic: a microsecond is 2⁻²⁰ s.
pub(crate) const fn delayed(pacing_rate: u64, tx_delay_us: u32) -> u64 {
    match tx_delay_us {
        0 => 0,
        delay => pacing_rate.saturating_mul(delay as u64) >> 19,
    }
}

/// The gate's finding, if it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Room below TCP.
    Room,
    /// No room, and no event would announce any: the packet is let through.
    Exempt,
}

/// The gate. `records` counts packets sent and not acknowledged.
pub(crate) fn gate(mode: TsqMode, outstanding: u32, limit: u64, records: usize) -> Result<Pass, Blocked> {
    // Linux's counter starts at one, so that reaching the limit exactly already blocks.
    if u64::from(outstanding) < limit {
        Ok(Pass::Room)
    } else if records <= 1 && mode.exempts() {
        Ok(Pass::Exempt)
    } else {
        Err(Blocked::SmallQueue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Limit = Limit {
        mode: TsqMode::RateScaled,
        candidate: 3_920,
        pacing_rate: 1_250_000,
        delivery_rate: None,
        shift: 10,
        ahead: Duration::ZERO,
        tx_delay_us: 0,
        cap: 4 << 20,
        retransmit: false,
    };

    #[test]
    fn limit_is_two_packets_or_a_millisecond_of_the_rate_under_the_cap() {
        // 1.25 MB/s >> 10 is 1220: less than two packets.
        assert_eq!(limit(AT), 7_840);
        // 1.25 GB/s >> 10 = 1,220,703; the cap of 1 MiB wins, one of 4 MiB does not.
        let fast = Limit { pacing_rate: 1_250_000_000, ..AT };
        assert_eq!(limit(Limit { cap: 1 << 20, ..fast }), 1_048_576);
        assert_eq!(limit(fast), 1_220_703);
        // Doubled for a retransmission, after the cap.
        assert_eq!(limit(Limit { cap: 1 << 20, retransmit: true, ..fast }), 2_097_152);
        // Shift 7 is 8 times as much: 1.25e8 >> 7 = 976,562.
        assert_eq!(limit(Limit { pacing_rate: 125_000_000, shift: 7, ..AT }), 976_562);
        assert_eq!(limit(Limit { pacing_rate: u64::MAX, ..AT }), 4 << 20);
        // 10 ms of 1.25 MB/s, twice: 1,250,000 · 10,000 >> 19 = 23,841.
        assert_eq!(limit(Limit { tx_delay_us: 10_000, ..AT }), 7_840 + 23_841);
    }

    #[test]
    fn the_rate_is_at_most_nine_eighths_of_what_is_delivered() {
        let delivered = |rate| Limit {
            mode: TsqMode::Delivered,
            pacing_rate: 500_000_000,
            delivery_rate: Some(rate),
            ..AT
        };
        // 9/8 · 125 MB/s >> 10 = 137,329; of the pacing rate it would be 488,281.
        assert_eq!(limit(delivered(125_000_000)), 137_329);
        assert_eq!(limit(Limit { mode: TsqMode::RateScaled, ..delivered(125_000_000) }), 488_281);
        // A pacing rate below that is the smaller one, and two packets are always allowed.
        assert_eq!(limit(delivered(450_000_000)), 488_281);
        assert_eq!(limit(delivered(0)), 7_840);
        assert_eq!(limit(Limit { delivery_rate: None, ..delivered(0) }), 488_281, "no sample yet");
    }

    #[test]
    fn tsq_23_time_ahead_is_a_part_of_the_limit() {
        let ahead = Limit { mode: TsqMode::Auto, ahead: Duration::from_millis(20), ..AT };
        assert_eq!(limit(ahead), 7_840 + 25_000);
        assert_eq!(limit(Limit { cap: 10_000, ..ahead }), 10_000);
        // 9/8 of what is delivered, here as well: 112,500 bytes a second.
        assert_eq!(limit(Limit { delivery_rate: Some(100_000), ..ahead }), 7_840 + 2_250);
        assert_eq!(limit(Limit { mode: TsqMode::RateScaled, ..ahead }), 7_840, "Linux's rule");
    }

    #[cfg(feature = "history")]
    #[test]
    fn older_rules() {
        let fixed = TsqMode::Fixed { cap_bytes: TsqMode::CAP_2012 };
        assert_eq!(limit(Limit { mode: fixed, pacing_rate: 1_250_000_000, ..AT }), 131_072);
        assert_eq!(limit(Limit { mode: fixed, retransmit: true, ..AT }), 131_072);
        assert_eq!(TsqMode::Fixed { cap_bytes: 40_000 }.super_packet_max(), 20_000);
        assert_eq!(limit(Limit { mode: TsqMode::Off, ..AT }), u64::MAX);
        // The exemption is of 2017.
        assert_eq!(gate(fixed, 131_072, 131_072, 0), Err(Blocked::SmallQueue));
    }

    #[test]
    fn blocks_at_exactly_the_limit_with_two_records() {
        assert_eq!(gate(TsqMode::RateScaled, 7_839, 7_840, 2), Ok(Pass::Room));
        assert_eq!(gate(TsqMode::RateScaled, 7_840, 7_840, 2), Err(Blocked::SmallQueue));
    }

    #[test]
    fn never_blocks_with_at_most_one_record() {
        assert_eq!(gate(TsqMode::RateScaled, u32::MAX, 7_840, 0), Ok(Pass::Exempt));
        assert_eq!(gate(TsqMode::RateScaled, u32::MAX, 7_840, 1), Ok(Pass::Exempt));
    }

    #[test]
    fn one_completion_consumes_the_flag_and_an_ack_does_not() {
        let mut queue = SmallQueue::default();
        queue.charge(5_000);
        queue.charge(5_000);
        queue.charge(ACK_TRUESIZE);
        assert!(queue.throttle());
        assert!(!queue.throttle(), "only the first call is new");
        assert!(!queue.release(ACK_TRUESIZE));
        assert!(queue.release(5_000));
        assert!(!queue.release(5_000));
        assert_eq!(queue.outstanding(), 0);
    }

    /// 600 ACKs weigh more than a packet of a hundred bytes, so something may wait for them.
    #[test]
    fn ac_14_the_last_of_many_acks_resumes() {
        let mut queue = SmallQueue::default();
        (0..600).for_each(|_| queue.charge(ACK_TRUESIZE));
        assert!(queue.outstanding() > truesize(100) && queue.throttle());
        assert!((1..600).all(|_| !queue.release(ACK_TRUESIZE)));
        assert!(queue.release(ACK_TRUESIZE));
    }
}

//! TCP_NOTSENT_LOWAT with hysteresis: how much unsent data a connection may hold, and when to ask for more.
//! Linux 3.12 (c9bee3b7fdec), wake-up below half since 5.0 (a74f0fa082b7), space checked after transmissions
//! since 5.18 (4bfe744ff164); called by writes, by `writable` and after every transmission and ACK.
//!
//! **Problem.** A send buffer is sized for the network: bytes stay in it until they are acknowledged,
//! megabytes on a long path. An application that fills it has decided seconds too early what to send (which
//! video quality, which of its HTTP/2 streams), and a hundred such connections hold gigabytes. The network
//! needs only that *unsent* data never runs out.
//!
//! **Rule.** With a mark of X bytes, a write may start a new buffer while fewer than X bytes are unsent (and
//! the send buffer has room); it always fills the last buffer, so up to a super-packet more may be queued.
//! Writability is signalled only below X/2, so that a wake-up is worth X/2 bytes of writing. The check runs
//! after ACKs and after every transmission that moved bytes from unsent to sent, since otherwise a queue
//! could run dry without a wake-up. An application is woken only if it was refused: by a write that found no
//! room, or by a negative answer from `writable`.
//!
//! A third of the send buffer must be free, too: the same hysteresis in memory rather than in unsent bytes.
//! An application whose mark follows the rate is refused by the mark long before the buffer is full, so that
//! it would never use the last third. In a buffer that is larger than Linux's, because the path needs it,
//! room for the mark is therefore enough. Below that size the third stays: a path that needs less only gets a
//! longer queue from it.
//!
//! **A socket without a mark** gets one that follows its rate, taut's own ([`Refill`]); Linux has none there.
//! Its application is woken below three quarters of the mark, which must last until it writes. So the mark
//! grows with the time for which the application left the queue alone although there was room:
//!
//! ```text
//!   X = 64 KiB + min(rate · 20 ms, 256 KiB) + rate · 2t     rate: the last sample of the delivery rate
//!   t = the longest of late, between 250 µs and 4 ms        decays by a sixteenth with each wake-up
//! ```
//!
//! It counts from the wake-up to the first write, and from each write to the next, until one finds no room.
//!
//! On a busy machine, with more threads than processors, a writing thread waits for its turn for tens of
//! milliseconds, with 64 KiB written or nothing. So t may be up to 100 ms, as far as the connection then
//! holds no more than two bandwidth-delay products and half a megabyte:
//!
//! ```text
//!   X' = min(64 KiB + rate · 3t/2, 2 · rate · least RTT + 384 KiB − unacknowledged)      if larger than X
//! ```
//!
//! Three quarters of that last for t. An application that comes back when everything has been acknowledged
//! was not late: it had nothing to write. Its t is 4 ms at most after a wake-up, and between writes it does
//! not count.
//!
//! While losses are repaired, what was sent after a hole must be kept until the hole is filled, although most
//! of it has been delivered (RFC 2018 §8). CUBIC with a queue of one bandwidth-delay product then holds 3.4
//! of them: two in flight when the loss is found, and 0.7 times as much sent in the round trip that repairs
//! it. Unsent data gives way, so that the sum stays near two products and half a megabyte:
//!
//! ```text
//!   X = min(X or X', 2 · rate · least RTT + 384 KiB − unacknowledged), but at least 64 KiB + rate · 2t
//! ```
//!
//! `SO_SNDBUF` switches it off, as it does the tuning of the buffer, and so does a TCP_NOTSENT_LOWAT of
//! 4294967295, which is Linux's default. (A mark of 0 bytes would stop every write, so that 0 is free to
//! stand for this rule.)
//!
//! **History.** Until 5.0 the wake-up came at X. Every ACK frees a little, so every ACK woke the application
//! for a few kilobytes. Users then set X to megabytes to save CPU time, or left the option alone: 100 flows
//! at 100 ms held 54 MB each; with X = 2 MiB and wake-ups below half of it, 3.5 MB, for twice the context
//! switches of no mark at all.

use super::sndbuf;
use crate::words::{Duration, Instant};

/// No mark.
pub(crate) const UNSET: u32 = u32::MAX;
/// The mark follows the rate.
pub(crate) const BY_RATE: u32 = 0;

/// The mark of a socket without a rate: a packet as large as a device takes. With a rate, [`SPAN`] of that is
/// added.
const MARK_MIN: u64 = 64 << 10;
const SPAN: Duration = Duration::from_millis(20);
/// The most that [`SPAN`] adds. With [`MARK_MIN`] and a buffer that exceeds the mark, it is less than 400 kB.
const SPAN_BYTES_MAX: u64 = 256 << 10;
/// What a connection that repairs losses holds beyond two bandwidth-delay products, unless it must: the
/// mark's 320 KiB, and 64 KiB for the last buffer, which may exceed it.
const BEYOND_PATH: u64 = MARK_MIN + SPAN_BYTES_MAX + MARK_MIN;
/// An application is never taken to need less than this to write, in µs.
const ANSWER_MIN: u32 = 250;
/// Up to here, the mark lasts for twice as long, whatever the path holds: a few tens of milliseconds at any
/// rate above 50 Mbit/s.
const PROMPT_MAX: u32 = 4_000;
/// Nor does it need more than this: a thread waits for its turn about as long on an overloaded machine.
const ANSWER_MAX: u32 = 100_000;
/// The share by which the memory of a late answer fades with each wake-up.
const FADE: u32 = 16;

/// How long the application leaves the queue alone although there is room, and the mark that follows from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refill {
    /// When the application was woken, in µs, wrapping and odd, or wrote last since then, rounded to an even
    /// number; 0 from the time on at which there is no room.
    since: u32,
    /// The longest of late, in µs.
    answer: u32,
}

/// The values of the connection that the mark depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    /// Bytes per second.
    pub(crate) rate: u64,
    pub(crate) least_rtt: Option<Duration>,
    /// Bytes sent and not acknowledged.
    pub(crate) unacked: u64,
    pub(crate) is_repairing: bool,
}

/// The time in microseconds, rounded to an odd number.
const fn odd_us(now: Instant) -> u32 {
    (now.as_nanos() / 1_000) as u32 | 1
}

impl Refill {
    pub(crate) const fn new() -> Self {
        Self { since: 0, answer: ANSWER_MIN }
    }

    /// The application is notified that there is room.
    pub(crate) fn on_woken(&mut self, now: Instant) {
        self.since = odd_us(now);
        self.answer = (self.answer - self.answer / FADE).max(ANSWER_MIN);
    }

    /// The application writes. `was_empty`: everything had been acknowledged, so it was not late, but had
    /// nothing to write. After a wake-up, it may still have been late.
    pub(crate) fn on_write(&mut self, now: Instant, was_empty: bool) {
        if self.since == 0 {
            return;
        }
        let is_first = self.since % 2 == 1;
        let most = match (was_empty, is_first) {
            (false, _) => ANSWER_MAX,
            (true, true) => PROMPT_MAX,
            (true, false) => 0,
        };
        let now = odd_us(now);
        self.answer = self.answer.max(now.wrapping_sub(self.since).min(most));
        self.since = now - 1;
    }

    /// It finds no room.
    pub(crate) const fn on_full(&mut self) {
        self.since = 0;
    }

    /// The mark.
    pub(crate) fn mark(&self, flow: &Flow) -> u32 {
        let prompt = self.prompt_mark(flow.rate);
        if self.answer <= PROMPT_MAX && !flow.is_repairing {
            return clamped(prompt);
        }
        let late = MARK_MIN.saturating_add(flow.rate.saturating_mul(3 * u64::from(self.answer)) / 2_000_000);
        let least = if flow.is_repairing { self.least_mark(flow.rate) } else { prompt };
        clamped(prompt.max(late).min(flow.room().max(least)))
    }

    /// The mark that lasts for a few tens of milliseconds.
    fn prompt_mark(&self, rate: u64) -> u64 {
        self.least_mark(rate) + (rate / (1_000 / SPAN.as_millis())).min(SPAN_BYTES_MAX)
    }

    /// What lasts for twice the time that the application takes.
    fn least_mark(&self, rate: u64) -> u64 {
        MARK_MIN + rate.saturating_mul(2 * u64::from(self.answer.min(PROMPT_MAX))) / 1_000_000
    }
}

impl Flow {
    /// The bytes that two bandwidth-delay products and [`BEYOND_PATH`] leave to unsent data.
    fn room(&self) -> u64 {
        let path = self.rate.saturating_mul(self.least_rtt.map_or(0, Duration::as_micros)) / 1_000_000;
        path.saturating_mul(2).saturating_add(BEYOND_PATH).saturating_sub(self.unacked)
    }
}

fn clamped(mark: u64) -> u32 {
    u32::try_from(mark).unwrap_or(UNSET - 1)
}

/// When a socket with a mark becomes writable again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LowatMode {
    /// Linux 3.12 to 4.20: as soon as fewer than X bytes are unsent.
    #[cfg(feature = "history")]
    WakeAtMark,
    /// Today: below X/2, or three quarters of a mark that follows the rate.
    #[default]
    WakeAtHalf,
}

/// The send side's buffer accounting at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Bytes in the write queue and in flight, overhead included.
    pub(crate) queued: u32,
    /// The limit of `queued`.
    pub(crate) sndbuf: u32,
    /// Bytes written and never sent.
    pub(crate) unsent: u64,
    /// TCP_NOTSENT_LOWAT, the stack's, or the one that follows the rate.
    pub(crate) lowat: u32,
    /// It is the last of these.
    pub(crate) by_rate: bool,
    pub(crate) mode: LowatMode,
}

impl Room {
    /// Whether a write may start another buffer.
    pub(crate) const fn may_start_buffer(self) -> bool {
        self.queued < self.sndbuf && self.unsent < self.lowat as u64
    }

    /// The answer of poll(2) and epoll: a third of the buffer is free, or, in a large one, room for a mark
    /// that follows the rate; and less than half of the mark is unsent, or three quarters of that one.
    pub(crate) const fn is_writable(self) -> bool {
        let lowat = self.lowat as u64;
        let below = match self.mode {
            #[cfg(feature = "history")]
            LowatMode::WakeAtMark => lowat,
            LowatMode::WakeAtHalf if self.by_rate => lowat / 4 * 3,
            LowatMode::WakeAtHalf => lowat.div_ceil(2),
        };
        let third = self.queued / 2;
        let is_large = self.by_rate && self.sndbuf > sndbuf::FOLLOWS_MAX;
        let free = if is_large && self.lowat < third { self.lowat } else { third };
        self.queued < self.sndbuf && self.sndbuf - self.queued >= free && self.unsent < below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_buffer_must_be_free() {
        let mode = LowatMode::WakeAtHalf;
        let room = |queued| Room { queued, sndbuf: 87_040, unsent: 0, lowat: UNSET, by_rate: false, mode };
        assert!(room(58_027).is_writable());
        assert!(!room(58_028).is_writable());
        assert!(room(87_039).may_start_buffer());
        assert!(!room(87_040).may_start_buffer());
    }

    #[test]
    fn writes_fill_to_the_mark_and_wake_below_half() {
        let mode = LowatMode::WakeAtHalf;
        let room = |unsent| Room { queued: 0, sndbuf: 1 << 20, unsent, lowat: 16_384, by_rate: false, mode };
        assert!(room(16_383).may_start_buffer());
        assert!(!room(16_384).may_start_buffer());
        assert!(!room(8_192).is_writable());
        assert!(room(8_191).is_writable());
        let by_rate = |unsent| Room { by_rate: true, ..room(unsent) };
        assert!(by_rate(12_287).is_writable());
        assert!(!by_rate(12_288).is_writable());
    }

    #[cfg(feature = "history")]
    #[test]
    fn before_5_0_any_room_below_the_mark_was_signalled() {
        let mode = LowatMode::WakeAtMark;
        let room = |unsent| Room { queued: 0, sndbuf: 1 << 20, unsent, lowat: 16_384, by_rate: false, mode };
        assert!(room(16_383).is_writable());
        assert!(!room(16_384).is_writable());
    }

    /// 125 MB/s: the usual mark is 320 KiB and 500 µs of it, the least 64 KiB and these. Two products of 1 ms
    /// are 250 kB; without a round trip there is no product.
    #[test]
    fn lowat_13_while_losses_are_repaired_the_mark_has_what_is_left_of_two_products() {
        let (usual, least) = (390_180, 128_036);
        for (rtt_us, unacked, mark) in [
            (None, 3_036, usual),
            (None, 3_037, usual - 1),
            (None, 265_180, least),
            (None, 10_000_000, least),
            (Some(1_000), 253_036, usual),
            (Some(1_000), 253_037, usual - 1),
            (Some(1_000), 515_180, least),
            (Some(1_000), 10_000_000, least),
        ] {
            let least_rtt = rtt_us.map(Duration::from_micros);
            let flow = Flow { rate: 125_000_000, least_rtt, unacked, is_repairing: true };
            assert_eq!(Refill::new().mark(&flow), mark, "{rtt_us:?} {unacked}");
            assert_eq!(Refill::new().mark(&Flow { is_repairing: false, ..flow }), usual);
        }
    }

    #[test]
    fn the_mark_follows_the_rate_and_the_slowest_answer_of_late() {
        let mut refill = Refill::new();
        let kib = |count: u32| count << 10;
        let flow = |rate| Flow { rate, least_rtt: None, unacked: 0, is_repairing: false };
        // No rate; 8 Mbit/s: 20 ms and twice 250 µs of it; 1 Gbit/s: 256 KiB, and twice 250 µs.
        assert_eq!(refill.mark(&flow(0)), kib(64));
        assert_eq!(refill.mark(&flow(1_000_000)), kib(64) + 20_000 + 500);
        assert_eq!(refill.mark(&flow(125_000_000)), kib(320) + 62_500);
        // An application that takes 3 ms: twice that.
        let at = |us: u64| Instant::from_nanos(us * 1_000);
        refill.on_woken(at(1_000));
        refill.on_write(at(4_000), false);
        refill.on_full();
        assert_eq!(refill.mark(&flow(125_000_000)), kib(320) + 750_000);
        refill.on_write(at(900_000), false);
        assert_eq!(
            refill.mark(&flow(125_000_000)),
            kib(320) + 750_000,
            "a write that nothing asked for says nothing"
        );
        // Prompt answers: 3 ms · (15/16)⁴ = 2.317 ms, but for rounding to microseconds.
        for turn in 1..=4 {
            refill.on_woken(at(turn * 1_000_000));
            refill.on_write(at(turn * 1_000_000 + 10), false);
            refill.on_full();
        }
        assert!(
            refill.mark(&flow(125_000_000)).abs_diff(kib(320) + 579_350) < 1_000,
            "{}",
            refill.mark(&flow(125_000_000))
        );
        // One that wrote, and wrote more when everything had been acknowledged, was not late.
        let before = refill.mark(&flow(125_000_000));
        refill.on_woken(at(5_000_000));
        refill.on_write(at(5_000_010), false);
        refill.on_write(at(6_000_000), true);
        assert!(refill.mark(&flow(125_000_000)) < before);
        // One that went away for a minute is not waited for.
        refill.on_woken(at(10_000_000));
        refill.on_write(at(70_000_000), true);
        assert_eq!(refill.mark(&flow(125_000_000)), kib(320) + 1_000_000);
        assert_eq!(refill.mark(&flow(u64::MAX)), UNSET - 1);
    }
}

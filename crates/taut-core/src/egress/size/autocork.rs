//! Autocorking: small writes coalesce while an earlier packet of the connection is still below TCP.
//! Linux 3.14 (f54b311142a9), head rule and re-test a181ceb501b3, today's form 114f39feab36; called when a
//! write ends, by `Sender::push`, and ended by the completion of any data packet.
//!
//! **Problem.** An application that writes a hundred bytes at a time makes packets of a hundred bytes,
//! although the device is busy anyway and the packet gains nothing by leaving TCP now.
//!
//! **Rule.** The end of a write does not start a transmission while a packet is below TCP whose completion
//! will start it, unless the tail is a full buffer, ends a record, or is larger than the data below (a tail
//! of equal size waits, one byte more does not: such a small packet completes soon, or nothing is gained by
//! waiting longer). A pure ACK below TCP weighs 2 bytes, and however many there are, they hold nothing.
//! TCP_NODELAY does not switch autocorking off: the wait costs no round trip, only a completion.
//!
//! **Never the head.** With nothing unacknowledged, data leaves at once, whatever is below TCP.
//!
//! **Except in a stream.** Where packets are acknowledged within microseconds (a TUN interface runs the
//! peer's whole receive path in the write), a program that writes 64 bytes after the other never gets far:
//! its tail soon outgrows the small packets below, an ACK releases it, and the next write is the head again.
//! Each packet costs the same, whatever its size. So once an application has written [many times](Stream) in
//! quick succession, each time less than a segment, and without an answer from the peer, only a completion, a
//! full buffer or the end of a record releases the tail. A request and its response are no stream: the
//! response ends it. taut's own; of 1,000 packets of 64-byte writes on a TUN interface, 540 to 630 left
//! because the tail had outgrown what was below, and 60 to 200 by an ACK or as the head after it.
//!
//! **History.** The first version held the head, too. A NIC that delays its completions by 16 µs so as to
//! raise fewer interrupts then held *every* request of a request/response exchange: the answer overtook the
//! completion of the request, the next request waited for that completion, and a mean of 23 µs became one of
//! 1050 µs. The fix asked whether the tail was the head of the queue, and asked again after setting the flag
//! that makes a completion resume the connection: a completion in between could have been the last. When 4.15
//! moved sent data to a queue of its own, "is the head" was always true and autocorking never happened,
//! unnoticed for months; since then the question is whether anything is unacknowledged.

use crate::egress::small_queue;
use crate::words::Instant;

/// What small writes wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AutocorkMode {
    /// Nothing, as with `tcp_autocorking = 0`.
    Off,
    /// Linux 3.14 at first: a completion, even with nothing else to wait for.
    #[cfg(feature = "history")]
    MayHoldHead,
    /// Linux today: a completion, but never at the head of the connection.
    Fixed,
    /// The same, and in a stream of small writes nothing but a completion.
    #[default]
    Stream,
}

/// Whether the application writes small pieces one after the other. It counts them; a pause takes some off,
/// so that a thread that was interrupted goes on with its stream, and short messages never become one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// Small writes in succession, up to [`MOST`](Self::MOST), less what pauses took off.
    run: u8,
    /// When the last one was, in µs, wrapping.
    wrote_at: u32,
    /// The last one belonged to a stream.
    on: bool,
}

impl Stream {
    /// So many are a stream. A message is seldom written in so many pieces, and the 320 µs that they take as
    /// packets of their own on a TUN interface (10 µs each) are a small part of a stream.
    const RUN: u8 = 32;

    /// The count goes no further.
    const MOST: u8 = 64;

    /// A pause takes so many off.
    const PAUSE: u8 = 16;

    /// A pause is longer, in µs. Two writes in succession may be as far apart as it takes to send a packet to
    /// a TUN interface (10 µs), on a core that others use, too.
    const PAUSE_US: u32 = 50;

    /// A longer pause ends the stream. A thread that shares its core waits a few milliseconds for its turn.
    const END_US: u32 = 10_000;

    pub(crate) const fn new() -> Self {
        Self { run: 0, wrote_at: 0, on: false }
    }

    /// The application wrote; `is_small`: less than a segment.
    pub(crate) const fn on_write(&mut self, now: Instant, is_small: bool) {
        let since = self.since_write(now);
        self.wrote_at = now.as_micros() as u32;
        self.run = if !is_small || since > Self::END_US {
            0
        } else if since > Self::PAUSE_US {
            self.run.saturating_sub(Self::PAUSE)
        } else if self.run < Self::MOST {
            self.run + 1
        } else {
            Self::MOST
        };
        // What follows a pause is the head again.
        self.on = self.run >= Self::RUN && since <= Self::PAUSE_US;
    }

    /// The peer sent data.
    pub(crate) const fn on_answer(&mut self) {
        (self.run, self.on) = (0, false);
    }

    const fn since_write(self, now: Instant) -> u32 {
        (now.as_micros() as u32).wrapping_sub(self.wrote_at)
    }

    /// Whether the application is in the middle of a stream.
    pub(crate) const fn goes_on(self, now: Instant) -> bool {
        self.on && self.since_write(now) <= Self::PAUSE_US
    }
}

/// Everything on which the decision depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Autocork {
    /// [`AutocorkMode::Off`] when `tcp_autocorking` is.
    pub(crate) mode: AutocorkMode,
    /// Payload bytes in the tail buffer.
    pub(crate) tail_len: u32,
    /// Bytes that were never sent: the tail, and full buffers before it.
    pub(crate) unsent: u64,
    pub(crate) size_goal: u32,
    /// Packets sent and not acknowledged.
    pub(crate) records: usize,
    /// Bytes below TCP.
    pub(crate) outstanding: u32,
    /// The tail ends a record.
    pub(crate) tail_is_eor: bool,
    /// The application is in the middle of a [`Stream`].
    pub(crate) in_stream: bool,
}

/// Whether a packet is below TCP whose completion resumes the connection: some data, and not ACKs alone.
pub(crate) const fn data_is_below(outstanding: u32) -> bool {
    outstanding >= small_queue::truesize(1)
}

/// Whether the tail waits for a completion.
pub(crate) fn holds(input: Autocork) -> bool {
    let in_stream = input.mode == AutocorkMode::Stream && input.in_stream;
    let mode_holds = match input.mode {
        AutocorkMode::Off => false,
        #[cfg(feature = "history")]
        AutocorkMode::MayHoldHead => true,
        AutocorkMode::Fixed | AutocorkMode::Stream => input.records > 0 || in_stream,
    };
    let waits = if in_stream {
        data_is_below(input.outstanding) && input.unsent < u64::from(input.size_goal)
    } else {
        // Linux's counter has a bias of one, so that equal sizes hold.
        input.outstanding.saturating_add(1) > small_queue::truesize(input.tail_len)
    };
    mode_holds && waits && input.tail_len < input.size_goal && !input.tail_is_eor
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDING: Autocork = Autocork {
        mode: AutocorkMode::Stream,
        tail_len: 50,
        unsent: 50,
        size_goal: 65_160,
        records: 1,
        outstanding: small_queue::truesize(100),
        tail_is_eor: false,
        in_stream: false,
    };

    #[test]
    fn every_condition_opens_the_gate_alone() {
        assert!(holds(HOLDING));
        assert!(holds(Autocork { tail_len: 100, ..HOLDING }), "equal sizes hold");
        assert!(!holds(Autocork { tail_len: 101, ..HOLDING }), "the tail is larger than the data below");
        assert!(!holds(Autocork { mode: AutocorkMode::Off, ..HOLDING }));
        assert!(!holds(Autocork { records: 0, ..HOLDING }), "never hold the head");
        assert!(
            !holds(Autocork { outstanding: small_queue::ACK_TRUESIZE, ..HOLDING }),
            "an ACK holds nothing"
        );
        assert!(!holds(Autocork { size_goal: 50, ..HOLDING }), "a full buffer leaves");
        assert!(!holds(Autocork { tail_is_eor: true, ..HOLDING }));
    }

    #[test]
    fn in_a_stream_neither_the_head_nor_a_large_tail_leaves() {
        let stream = Autocork { in_stream: true, ..HOLDING };
        let more = [
            Autocork { records: 0, ..stream },
            Autocork { tail_len: 65_159, ..stream },
            Autocork { outstanding: small_queue::truesize(1), ..stream },
        ];
        for input in more {
            assert!(holds(input), "{input:?}");
            assert!(!holds(Autocork { mode: AutocorkMode::Fixed, records: 0, ..input }), "{input:?}");
        }
        for input in [
            Autocork { tail_len: 65_160, ..stream },
            Autocork { unsent: 65_160, ..stream },
            Autocork { tail_is_eor: true, ..stream },
            Autocork { outstanding: small_queue::truesize(0), ..stream },
            Autocork { mode: AutocorkMode::Off, ..stream },
        ] {
            assert!(!holds(input), "{input:?}");
        }
    }

    const fn at(us: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + us * 1_000)
    }

    /// `count` small writes 50 µs apart, the last one at `end_us`.
    fn written(count: u64, end_us: u64) -> Stream {
        let mut stream = Stream::new();
        for n in (0..count).rev() {
            stream.on_write(at(end_us - 50 * n), true);
        }
        stream
    }

    #[test]
    fn a_stream_is_many_small_writes_without_a_pause_or_an_answer() {
        let now = 10_000;
        // The first one follows nothing.
        assert!(!written(32, now).goes_on(at(now)));
        let stream = written(33, now);
        assert!(stream.goes_on(at(now)) && stream.goes_on(at(now + 50)));
        assert!(!stream.goes_on(at(now + 51)), "a pause");
        let mut long = stream;
        long.on_write(at(now), false);
        long.on_write(at(now), true);
        assert!(!long.goes_on(at(now)), "a write of a segment");
        let mut answered = stream;
        answered.on_answer();
        assert!(!answered.goes_on(at(now)), "an answer");
        answered.on_write(at(now), true);
        assert!(!answered.goes_on(at(now)), "an answer");
    }

    #[test]
    fn a_pause_costs_sixteen_writes_and_a_long_one_all() {
        let now = 10_000;
        for (pause, needed) in [(51, 1), (10_000, 1), (10_001, 32)] {
            // 48 or more.
            let mut stream = written(49, now);
            stream.on_write(at(now + pause), true);
            for n in 0..needed {
                assert!(!stream.goes_on(at(now + pause)), "{pause} µs, {n}");
                stream.on_write(at(now + pause), true);
            }
            assert!(stream.goes_on(at(now + pause)), "{pause} µs");
        }
        // The count ends at 64: after three pauses, 16 are left.
        let mut stream = written(200, 100_000);
        for n in 1..=3 {
            stream.on_write(at(100_000 + 51 * n), true);
        }
        for _ in 0..16 {
            assert!(!stream.goes_on(at(100_153)));
            stream.on_write(at(100_153), true);
        }
        assert!(stream.goes_on(at(100_153)));
    }

    #[cfg(feature = "history")]
    #[test]
    fn the_first_version_held_the_head() {
        assert!(holds(Autocork { mode: AutocorkMode::MayHoldHead, records: 0, ..HOLDING }));
    }
}

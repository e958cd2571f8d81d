//! The receive path: what is believed, put in order, acknowledged and handed to the application.
//!
//! The order in which these are asked is RFC 9293 §3.10.7's and stands in [`conn::arrival`](crate::conn).

mod config;
pub(crate) mod delayed_ack;
pub(crate) mod payload;
pub(crate) mod read_queue;
pub(crate) mod reassembly;
pub(crate) mod recv_window;
pub(crate) mod validate;

use crate::buffers::BufferPool;
use crate::words::{Duration, Instant};
pub use config::ReceiveConfig;
use delayed_ack::DelayedAck;
use payload::Payload;
use read_queue::ReadQueue;
use reassembly::{Reassembly, SackBlocks};
use recv_window::RecvWindow;

/// No FIN was seen.
const NO_FIN: u64 = u64::MAX;

/// RFC 7323 timestamps, this side's view.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timestamps {
    pub(crate) on: bool,
    /// TS.Recent.
    pub(crate) recent: u32,
    /// When that was received, in seconds: it matters whether it is 24 days ago.
    pub(crate) recent_at_s: u32,
    /// Added to our millisecond clock, so that connections cannot be told to share a host (RFC 7323 §5.4).
    pub(crate) offset: u32,
}

impl Timestamps {
    /// TS.Recent is `value` from now on.
    pub(crate) const fn remember(&mut self, now: Instant, value: u32) {
        self.recent = value;
        self.recent_at_s = (now.as_millis() / 1_000) as u32;
    }

    /// When TS.Recent was received, to the second.
    pub(crate) fn recent_at(&self) -> Instant {
        Instant::ZERO + Duration::from_secs(self.recent_at_s.into())
    }

    /// What we would send at `now`.
    pub(crate) const fn value(&self, now: Instant) -> u32 {
        (now.as_millis() as u32).wrapping_add(self.offset)
    }
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) window: RecvWindow,
    pub(crate) queue: ReadQueue,
    pub(crate) reassembly: Reassembly,
    pub(crate) delayed_ack: DelayedAck,
    pub(crate) timestamps: Timestamps,
    /// RCV.NXT when the last ACK left (RFC 7323's Last.ACK.sent).
    pub(crate) last_ack_sent: u64,
    /// Position of the peer's FIN.
    fin_at: u64,
    /// The application reads no more: data is acknowledged and thrown away.
    pub(crate) shut: bool,
    /// We offered SACK and, once the peer's SYN came, both do.
    pub(crate) sack: bool,
    pub(crate) bytes_received: u64,
    /// Wraps, as Linux's does.
    pub(crate) data_segs_in: u32,
}

/// What an arrived payload meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes that became readable.
    pub(crate) in_order: u64,
    /// The FIN was reached.
    pub(crate) fin: bool,
    /// Out of order, duplicate, or filling a hole: the peer should know at once (RFC 5681 §4.2).
    pub(crate) ack_now: bool,
    /// New data beyond a hole, and nothing else.
    pub(crate) reordered: bool,
}

impl Receiver {
    /// A receiver that has not seen the peer's SYN.
    pub(crate) fn new(window: RecvWindow, timestamps: Timestamps, sack: bool) -> Self {
        Self {
            window,
            queue: ReadQueue::new(0),
            reassembly: Reassembly::new(),
            delayed_ack: DelayedAck::new(),
            timestamps,
            last_ack_sent: 0,
            fin_at: NO_FIN,
            shut: false,
            sack,
            bytes_received: 0,
            data_segs_in: 0,
        }
    }

    /// The peer's SYN stands before `rcv_nxt`; `mss` is the one we announced.
    pub(crate) fn begin(&mut self, now: Instant, rcv_nxt: u64, scale: u8, mss: u16) {
        self.window.establish(now, rcv_nxt, scale, mss);
        self.queue = ReadQueue::new(rcv_nxt);
        self.last_ack_sent = rcv_nxt;
    }

    /// RCV.NXT.
    pub(crate) fn nxt(&self) -> u64 {
        self.window.rcv_nxt()
    }

    /// Whether everything the peer will ever send is here.
    pub(crate) fn fin_received(&self) -> bool {
        self.fin_at < self.nxt()
    }

    /// Takes the payload at `seq`, trimmed to the window, and the FIN behind it.
    pub(crate) fn take(
        &mut self,
        seq: u64,
        mut payload: Payload<'_>,
        fin: bool,
        pool: &mut BufferPool,
    ) -> Taken {
        let mut taken = Taken::default();
        let nxt = self.nxt();
        let end = seq + payload.len() as u64;
        // A FIN before what the peer has already sent contradicts it, and is none.
        let after_all = self.reassembly.end().is_none_or(|held| held <= end);
        if fin && self.fin_at == NO_FIN && end <= self.window.edge() && after_all {
            self.fin_at = end;
        }
        // What lies beyond the peer's own FIN cannot be meant.
        let right = self.window.edge().min(self.fin_at).max(nxt);
        if end > right {
            payload.truncate(right.saturating_sub(seq) as usize);
            taken.ack_now = true;
        }
        if payload.is_empty() {
            taken.ack_now |= seq != nxt;
        } else if seq <= nxt && end > nxt && self.reassembly.is_empty() {
            // The usual case: exactly what was awaited.
            payload.trim_front((nxt - seq) as usize);
            taken.ack_now |= seq != nxt;
            taken.in_order = payload.len() as u64;
            self.queue.push(payload, pool);
            self.window.advance_to(nxt + taken.in_order);
        } else {
            taken.ack_now = true;
            let inserted = self.reassembly.insert(seq, payload, nxt, pool);
            let reached = self.reassembly.take_in_order(nxt, &mut self.queue, pool);
            taken.in_order = reached - nxt;
            self.window.advance_to(reached);
            taken.reordered = reached == nxt && inserted.duplicate.is_none() && self.sack;
        }
        if self.shut {
            self.queue.discard_all(pool);
        }
        self.bytes_received += taken.in_order;
        if self.nxt() == self.fin_at {
            self.window.advance_to(self.fin_at + 1);
            taken.fin = true;
            taken.ack_now = true;
            taken.reordered = false;
        }
        taken
    }

    /// SACK blocks that fit into a header (RFC 2018 §3).
    fn sack_blocks_max(&self) -> usize {
        if self.timestamps.on { reassembly::SACK_BLOCKS_MAX - 1 } else { reassembly::SACK_BLOCKS_MAX }
    }

    /// Blocks to report, the most recent first (RFC 2018 §4, RFC 2883 §4).
    #[inline]
    pub(crate) fn sack_blocks(&self) -> SackBlocks {
        if self.sack && self.reassembly.has_news() {
            self.reassembly.sack_blocks(self.sack_blocks_max())
        } else {
            SackBlocks::default()
        }
    }

    /// Whether an ACK has all to report that fits into it.
    #[inline]
    pub(crate) fn has_full_report(&self) -> bool {
        self.sack && self.reassembly.is_full(self.sack_blocks_max())
    }

    /// A segment with these blocks was sent. If there are more to report, another ACK follows.
    pub(crate) fn on_ack_sent(&mut self) {
        self.last_ack_sent = self.nxt();
        self.delayed_ack.on_ack_sent();
        if self.reassembly.on_sack_sent(self.sack_blocks_max()) && self.sack {
            self.delayed_ack.ack_now();
        }
    }
}

//! The sending half of a connection: its state, and the application's side of it. RFC 9293 §3.3.1's send variables, and
//! Linux 6.12's `tcp_sendmsg` for how a write fills the queue. Called by the connection.

use alloc::boxed::Box;

use super::SendConfig;
use super::autocork::{self, Autocork, AutocorkMode};
use super::chrono::Kind;
use super::nagle::Nagle;
use super::notsent_lowat::Room;
use super::pacing::{Pacing, Status};
use super::sndbuf::SendBuffer;
use super::tsq::{self, SmallQueue};
use super::write_queue::WriteQueue;
use super::{AutosizeMode, Gate, Ledger, PeerWindow, SendCx, tso_autosize};
use crate::buffers::BufferPool;
use crate::congestion::Congestion;
use crate::options::WriteFlags;
use crate::recovery::Recovery;
use crate::words::Instant;

/// Whether the end of a write starts a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Push {
    /// Yes.
    Go,
    /// A completion will. `throttled`: nobody waited for one already.
    Held { throttled: bool },
}

/// The sending half of a connection. Every written byte lies in `queue` until acknowledged; `nxt` divides it into
/// sent (remembered by `recovery`) and unsent.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) queue: WriteQueue,
    pub(crate) recovery: Recovery,
    pub(crate) congestion: Congestion,
    /// SND.NXT: the next position never sent.
    pub(crate) nxt: u64,
    /// End of the data that a write completed: PSH goes there.
    pub(super) pushed: u64,
    pub(crate) window: PeerWindow,
    pub(crate) nagle: Nagle,
    pub(crate) pacing: Pacing,
    pub(crate) small_queue: SmallQueue,
    pub(crate) buffer: SendBuffer,
    /// TCP_NOTSENT_LOWAT; 0 follows the stack's.
    pub(crate) lowat: u32,
    /// The application will write no more; FIN stands at the queue's end.
    pub(crate) fin_queued: bool,
    /// A tail loss probe is owed.
    pub(crate) probe_due: bool,
    /// A maximum rate was set; never unwanted again.
    pub(crate) pacing_wanted: bool,
    /// The next packet may be smaller than a segment, so as to fit the peer's window.
    pub(crate) squeeze: bool,
    /// Which gate was shut when it was last asked for a packet.
    pub(crate) blocked: Gate,
    /// Something was sent since that was last noted.
    pub(super) sent: bool,
    /// Where bytes wait and why; made at the first write.
    pub(crate) ledger: Option<Box<Ledger>>,
    /// Segments with data, wrapping as Linux's counter does.
    pub(crate) data_segs_out: u32,
    /// Segments of any kind, wrapping as Linux's counter does.
    pub(crate) segs_out: u32,
}

impl Sender {
    /// A sender whose first data byte has position `first`.
    pub(crate) fn new(
        now: Instant,
        first: u64,
        sack: bool,
        congestion: Congestion,
        config: &SendConfig,
    ) -> Self {
        Self {
            queue: WriteQueue::new(first),
            recovery: Recovery::new(now, first, sack),
            congestion,
            nxt: first,
            pushed: first,
            window: PeerWindow::default(),
            nagle: Nagle::default(),
            pacing: Pacing::new(),
            small_queue: SmallQueue::default(),
            buffer: SendBuffer::new(config.wmem.initial),
            lowat: 0,
            fin_queued: false,
            probe_due: false,
            pacing_wanted: false,
            squeeze: false,
            blocked: Gate::NoData,
            sent: false,
            ledger: None,
            data_segs_out: 0,
            segs_out: 0,
        }
    }

    /// SND.UNA.
    pub(crate) fn una(&self) -> u64 {
        self.recovery.una()
    }

    /// End of everything there is to send, FIN included.
    pub(crate) fn end(&self) -> u64 {
        self.queue.end() + u64::from(self.fin_queued)
    }

    /// Right edge of the peer's window.
    pub(crate) fn window_end(&self) -> u64 {
        self.una() + u64::from(self.window.bytes)
    }

    /// Bytes that the peer's window has room for now.
    pub(super) fn window_room(&self) -> u32 {
        self.window_end().saturating_sub(self.nxt).min(u64::from(u32::MAX)) as u32
    }

    /// Whether the peer's window has room for the next segment: a full one, or all that is left (RFC 9293
    /// §3.8.6.2.1).
    pub(crate) fn window_fits(&self, mss: u32) -> bool {
        let next = self.unsent().min(u64::from(mss)).max(1);
        u64::from(self.window_room()) >= next
    }

    /// Bytes written and never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.queue.end().saturating_sub(self.nxt)
    }

    /// Whether anything was never sent, FIN included.
    pub(crate) fn has_unsent(&self) -> bool {
        self.nxt < self.end()
    }

    /// Whether our FIN was acknowledged.
    pub(crate) fn fin_acked(&self) -> bool {
        self.fin_queued && self.una() == self.end()
    }

    /// What `mss` becomes under a small peer window.
    pub(crate) fn bounded_mss(&self, mss: u32) -> u32 {
        tso_autosize::half_window_bound(mss, self.window.max)
    }

    /// Bytes that a buffer of the queue is filled to.
    pub(crate) fn size_goal(&self, cx: &SendCx<'_>) -> u32 {
        let goal =
            tso_autosize::size_goal(cx.mss, cx.link.gso_max_bytes, cx.link.gso_max_segs, self.window.max);
        match cx.config.autosizing {
            AutosizeMode::AtWrite => goal.min(self.rate_sized_segs(cx).saturating_mul(cx.mss)),
            AutosizeMode::Off | AutosizeMode::AtTransmit => goal,
        }
    }

    /// Who spaces this connection's packets.
    pub(super) fn pacing_status(&self, cx: &SendCx<'_>) -> Status {
        cx.config.pacing.status(self.pacing_wanted || self.congestion.paces(), cx.link.paces)
    }

    /// Bytes held by the send side at `size_goal`, for the limits of [`notsent_lowat`].
    pub(crate) fn room(&self, size_goal: u32, config: &SendConfig) -> Room {
        let unsent = self.unsent();
        let buffers = unsent.div_ceil(u64::from(size_goal.max(1))) + self.recovery.records() as u64;
        let queued = self.queue.len() + buffers * u64::from(tsq::OVERHEAD);
        Room {
            queued: u32::try_from(queued).unwrap_or(u32::MAX),
            sndbuf: self.buffer.limit,
            unsent,
            lowat: if self.lowat == 0 { config.notsent_lowat } else { self.lowat },
            mode: config.lowat,
        }
    }

    /// Takes as much of `data` as there is room for, and returns how much that was. Follow with
    /// [`push`](Self::push).
    ///
    /// Data is appended to the tail buffer while that is short of the size goal, whatever the limits say; only a new
    /// buffer asks for room.
    pub(crate) fn write(
        &mut self,
        cx: &SendCx<'_>,
        data: &[u8],
        flags: WriteFlags,
        pool: &mut BufferPool,
    ) -> usize {
        self.note_app_limited(cx);
        let before = self.queue.end();
        let goal = self.size_goal(cx).max(1);
        let mut taken = 0;
        while taken < data.len() {
            let end = self.queue.end();
            let tail_start = self.queue.tail_start().max(self.nxt.min(end));
            let tail_len = (end - tail_start) as u32;
            let tail_open = tail_len > 0 && tail_len < goal && !self.queue.tail_has_eor();
            if !tail_open {
                if !self.room(goal, cx.config).may_start_buffer() {
                    break;
                }
                self.queue.start_tail();
                if cx.config.autosizing == AutosizeMode::AtWrite {
                    self.queue.mark_cut();
                }
                self.nagle.push = false;
            }
            let room = if tail_open { goal - tail_len } else { goal } as usize;
            let piece = room.min(data.len() - taken);
            self.queue.append(&data[taken..taken + piece], pool);
            taken += piece;
            // Half of the largest window unpushed: the peer should hand over what it has.
            if self.queue.end() > self.pushed + u64::from(self.window.max / 2) {
                self.pushed = self.queue.end();
            }
        }
        if flags.eor && taken == data.len() {
            self.queue.mark_eor();
        }
        self.nagle.more = flags.more;
        if taken > 0 {
            let ledger = self.ledger.get_or_insert_with(|| Box::new(Ledger::new(cx.now)));
            ledger.on_written(cx.now, before);
            ledger.chrono.start(cx.now, Kind::Busy);
        }
        taken
    }

    /// The end of a write: marks PSH and decides whether the tail may go now. When a completion is to come first, says
    /// so, and whether nobody waited for one already.
    pub(crate) fn push(&mut self, cx: &SendCx<'_>) -> Push {
        if !self.nagle.more {
            self.pushed = self.queue.end();
        }
        let tail_start = self.queue.tail_start().max(self.nxt);
        let input = Autocork {
            mode: if cx.config.autocorking { cx.config.autocork } else { AutocorkMode::Off },
            tail_len: self.queue.end().saturating_sub(tail_start) as u32,
            size_goal: self.size_goal(cx),
            records: self.recovery.records(),
            outstanding: self.small_queue.outstanding(),
            tail_is_eor: self.queue.tail_has_eor(),
        };
        if autocork::holds(input) {
            // What was meant for this push only: a completion flushes by the socket's own rules.
            self.nagle.more = false;
            return Push::Held { throttled: self.small_queue.throttle() };
        }
        Push::Go
    }

    /// The tail was held back long enough: it goes, as if its write were complete.
    pub(crate) fn release_tail(&mut self) {
        self.nagle.push = true;
        self.pushed = self.queue.end();
    }

    /// Delivery-rate samples taken while the application has too little to send say nothing about the path
    /// (draft-ietf-ccwg-bbr §4.1.2.4; asked, as in Linux, when a write begins).
    fn note_app_limited(&mut self, cx: &SendCx<'_>) {
        if self.unsent() < u64::from(cx.mss)
            && self.small_queue.outstanding() < tsq::truesize(1)
            && self.recovery.in_flight() < self.congestion.cwnd()
            && self.recovery.lost_out() <= self.recovery.retrans_out()
        {
            self.recovery.set_app_limited();
        }
    }
}

//! The application's writes: how they fill the queue, what autocorking holds back, and when there is room
//! again. Linux 6.12's `tcp_sendmsg`. Called by the connection.

use alloc::boxed::Box;
use core::ops::Range;
use core::task::Poll;

use bytes::{Buf, Bytes};

use super::books::chrono::Kind;
use super::queue::loans::{Completion, LEND_MIN, Loans};
use super::queue::notsent_lowat::{self, Room};
use super::queue::sndbuf::{Path, SNDBUF_MIN};
use super::queue::write_queue::WriteQueue;
use super::size::autocork::{self, Autocork, AutocorkMode};
use super::size::tso_autosize;
use super::small_queue;
use super::writer::Writer;
use super::{Gate, SendCx, Sender, Totals};
use crate::buffers::{BufferPool, CHUNK_MIN, CHUNK_OVERHEAD};
use crate::recovery::Mode;
use crate::words::{Holders, Instant, Memory};

/// The flags of a write; `MSG_MORE` and `MSG_EOR` of `send(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// More data follows: hold back a partial segment, once.
    pub more: bool,
    /// End of record: later data does not share a buffer with this data.
    pub eor: bool,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Written {
    /// Bytes that were accepted.
    pub(crate) bytes: usize,
    /// Set if autocorking holds them back: a completion will send them.
    pub(crate) held: Option<Held>,
}

/// A write that autocorking holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// The connection did not already wait for a completion.
    pub(crate) throttled: bool,
}

impl Sender {
    /// Takes as much of `data` as there is room for, and decides whether it may leave now.
    ///
    /// Data is appended to the tail buffer while that is short of the size goal, whatever the limits say;
    /// only a new buffer asks for room.
    pub(crate) fn write(
        &mut self,
        cx: &SendCx<'_>,
        data: &[u8],
        flags: WriteFlags,
        pool: &mut BufferPool,
        totals: &mut Totals,
    ) -> Written {
        self.take(cx, data.len(), flags, pool, totals, |queue, range, pool| {
            queue.append(&data[range], pool);
        })
    }

    /// [`write`](Self::write) without a copy: the bytes that were taken are removed from the front of `data`,
    /// and the queue holds their memory. Returns also the write's number, if anything was taken.
    pub(crate) fn write_bytes(
        &mut self,
        cx: &SendCx<'_>,
        data: &mut Bytes,
        flags: WriteFlags,
        pool: &mut BufferPool,
        totals: &mut Totals,
    ) -> (Written, Option<u32>) {
        let (written, receipt) = if data.len() < LEND_MIN {
            (self.write(cx, data, flags, pool, totals), None)
        } else {
            // Positions in a chunk have 32 bits.
            let (memory, receipt) = Memory::lent(data.slice(..data.len().min(u32::MAX as usize)));
            let written = self.take(cx, memory.len(), flags, pool, totals, |queue, range, pool| {
                queue.append_lent(&memory, range, pool);
            });
            (written, Some(receipt))
        };
        if written.bytes == 0 {
            return (written, None);
        }
        data.advance(written.bytes);
        let end = self.queue.end();
        let number =
            self.writer.as_mut().map(|writer| writer.loans.get_or_insert_default().add(end, receipt));
        (written, number)
    }

    /// The next writes whose bytes are free; `Ready(None)` if every one was reported.
    pub(crate) fn poll_free(
        &mut self,
        now: Instant,
        over: bool,
        holders: &mut Holders,
    ) -> Poll<Option<Completion>> {
        let una = self.una();
        self.loans().map_or(Poll::Ready(None), |loans| loans.poll(now, una, over, holders))
    }

    /// Lent bytes may be free now. `over`: the connection has ended. Returns whether the application must be
    /// notified.
    #[inline]
    pub(crate) fn settle_loans(&mut self, now: Instant, over: bool, holders: &mut Holders) -> bool {
        let una = self.una();
        self.loans().is_some_and(|loans| loans.settle(now, una, over, holders))
    }

    /// When to call that again, if nothing happens before; never for most connections.
    pub(crate) fn look_at_loans(&self) -> Instant {
        let loans = self.writer.as_ref().and_then(|writer| writer.loans.as_ref());
        loans.map_or(Instant::NEVER, |loans| loans.look_at())
    }

    fn loans(&mut self) -> Option<&mut Loans> {
        self.writer.as_mut()?.loans.as_deref_mut()
    }

    /// Takes as much of `len` bytes as there is room for: `put` adds a range of them to the queue.
    fn take(
        &mut self,
        cx: &SendCx<'_>,
        len: usize,
        flags: WriteFlags,
        pool: &mut BufferPool,
        totals: &mut Totals,
        put: impl FnMut(&mut WriteQueue, Range<usize>, &mut BufferPool),
    ) -> Written {
        let was_empty = !self.has_unsent() && self.recovery.packets_out() == 0;
        let bytes = self.append(cx, len, flags, pool, put);
        if let Some(writer) = &mut self.writer {
            if bytes > 0 {
                writer.refill.on_write(cx.now, was_empty);
            }
            if bytes < len {
                writer.refill.on_full();
            }
        }
        self.buffer.nospace |= bytes < len;
        if bytes == 0 {
            return Written { bytes, held: None };
        }
        if was_empty {
            self.restart_after_idle(cx);
        }
        let held = self.push(cx);
        match held {
            Some(_) => {
                self.note_held(cx.now, Gate::Autocork, totals);
                // An ACK may just have found nothing to release.
                self.due &= !self.is_held_in_stream(cx);
            }
            None => self.due = true,
        }
        Written { bytes, held }
    }

    /// Nothing is in flight, and data will be sent: RFC 5681 §4.1, a window that was not used for an RTO says
    /// nothing about the path.
    pub(crate) fn restart_after_idle(&mut self, cx: &SendCx<'_>) {
        if self.data_segs_out > 0 {
            let (sent_at, rto) = (self.recovery.last_sent_at(), self.recovery.rto(cx.recovery));
            self.congestion.on_idle_restart(cx.now, sent_at, rto, cx.max_pacing_rate, cx.congestion);
        }
    }

    fn append(
        &mut self,
        cx: &SendCx<'_>,
        len: usize,
        flags: WriteFlags,
        pool: &mut BufferPool,
        mut put: impl FnMut(&mut WriteQueue, Range<usize>, &mut BufferPool),
    ) -> usize {
        self.note_app_limited(cx);
        let before = self.queue.end();
        let goal = self.size_goal(cx).max(1);
        let mut taken = 0;
        while taken < len {
            let end = self.queue.end();
            let tail_start = self.queue.tail_start().max(self.nxt.min(end));
            let tail_len = (end - tail_start) as u32;
            let tail_open = tail_len > 0 && tail_len < goal && !self.queue.tail_has_eor();
            if !tail_open && !self.room(goal, cx).may_start_buffer() {
                break;
            }
            let room = if tail_open { goal - tail_len } else { goal } as usize;
            let mut piece = room.min(len - taken);
            self.buffer.squeezed = false;
            if pool.budget.is_pressed() {
                piece = self.affordable(piece, cx.config.wmem.min, pool);
                if piece == 0 {
                    self.buffer.squeezed = true;
                    break;
                }
            }
            if !tail_open {
                self.queue.start_tail();
                if cx.config.autosizing.is_at_write() {
                    self.queue.mark_cut();
                }
                self.nagle.on_new_buffer();
            }
            put(&mut self.queue, taken..taken + piece, pool);
            taken += piece;
            // Half of the largest window unpushed: the peer should hand over the data that it has.
            if self.queue.end() > self.pushed + u64::from(self.window.max() / 2) {
                self.pushed = self.queue.end();
            }
        }
        let all = taken == len;
        if flags.eor && all {
            self.queue.mark_eor();
        }
        // Without room for more, cork has nothing to wait for.
        self.nagle.on_write_end(flags.more && all);
        if taken > 0 {
            let writer = self.writer.get_or_insert_with(|| Box::new(Writer::new(cx.now)));
            writer.ledger.on_written(cx.now, before);
            writer.stream.on_write(cx.now, taken < cx.mss as usize);
            writer.ledger.chrono.start(cx.now, Kind::Busy);
        }
        taken
    }

    /// How many of `piece` bytes the stack's memory allows to be written while it is scarce: at least `least`
    /// may be kept.
    #[cold]
    fn affordable(&self, piece: usize, least: u32, pool: &BufferPool) -> usize {
        let least = least.max(SNDBUF_MIN);
        let piece = piece.min(least as usize);
        let cost = (piece.max(CHUNK_MIN) + CHUNK_OVERHEAD) as u64;
        let free = self.queue.len() < u64::from(least);
        if free || pool.budget.allows(self.queue.memory() as u64, cost, 0) { piece } else { 0 }
    }

    /// The end of a write: marks PSH and asks autocorking.
    fn push(&mut self, cx: &SendCx<'_>) -> Option<Held> {
        if !self.nagle.expects_more() {
            self.pushed = self.queue.end();
        }
        let tail_start = self.queue.tail_start().max(self.nxt);
        let input = Autocork {
            mode: if cx.config.autocorking { cx.config.autocork } else { AutocorkMode::Off },
            tail_len: self.queue.end().saturating_sub(tail_start) as u32,
            unsent: self.unsent(),
            size_goal: self.size_goal(cx),
            records: self.recovery.records(),
            outstanding: self.small_queue.outstanding(),
            tail_is_eor: self.queue.tail_has_eor(),
            in_stream: self.is_in_stream(cx.now),
        };
        autocork::holds(input).then(|| {
            // MSG_MORE was meant for this push only: a completion flushes by the socket's own rules.
            self.nagle.forget_more();
            Held { throttled: self.small_queue.throttle() }
        })
    }

    /// Whether the application is in the middle of a stream of small writes.
    fn is_in_stream(&self, now: Instant) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.stream.goes_on(now))
    }

    /// Whether an ACK leaves the tail to the completion that is still to come: autocorking holds it, and the
    /// application goes on writing.
    pub(super) fn is_held_in_stream(&self, cx: &SendCx<'_>) -> bool {
        self.blocked == Gate::Autocork
            && cx.config.autocork == AutocorkMode::Stream
            && self.small_queue.throttled()
            && autocork::data_is_below(self.small_queue.outstanding())
            && self.recovery.mode() == Mode::Normal
            && self.is_in_stream(cx.now)
    }

    /// The peer sent data: an answer, maybe.
    pub(crate) const fn note_answer(&mut self) {
        if let Some(writer) = &mut self.writer {
            writer.stream.on_answer();
        }
    }

    /// Delivery-rate samples taken while the application has too little to send say nothing about the path
    /// (draft-ietf-ccwg-bbr §4.1.2.4; checked, as in Linux, when a write begins).
    fn note_app_limited(&mut self, cx: &SendCx<'_>) {
        if self.unsent() < u64::from(cx.mss)
            && self.small_queue.outstanding() < small_queue::truesize(1)
            && self.recovery.in_flight() < self.congestion.cwnd()
            && self.recovery.lost_out() <= self.recovery.retrans_out()
        {
            self.recovery.set_app_limited();
        }
    }

    /// Whether a write is worthwhile now; if not, the application is notified once it is.
    pub(crate) fn poll_writable(&mut self, cx: &SendCx<'_>) -> bool {
        let writable = self.is_writable(cx);
        if !writable {
            self.buffer.nospace = true;
            if let Some(writer) = &mut self.writer {
                writer.refill.on_full();
            }
        }
        writable
    }

    fn is_writable(&self, cx: &SendCx<'_>) -> bool {
        self.room(self.size_goal(cx), cx).is_writable()
    }

    /// Whether the application waits for room.
    pub(crate) const fn lacks_space(&self) -> bool {
        self.buffer.nospace
    }

    /// Checks whether there is now room for an application that waits for it.
    pub(crate) fn check_space(&mut self, cx: &SendCx<'_>) -> bool {
        if self.recovery.in_flight() < self.congestion.cwnd() && !cx.spare.pressed {
            self.expand_buffer(cx);
        }
        let has_room = self.is_writable(cx);
        if has_room {
            self.buffer.nospace = false;
            if let Some(writer) = &mut self.writer {
                writer.refill.on_woken(cx.now);
                writer.ledger.chrono.stop(cx.now, Kind::SendBuffer, false);
            }
        }
        has_room
    }

    /// The send buffer follows the congestion window.
    pub(crate) fn expand_buffer(&mut self, cx: &SendCx<'_>) {
        /// The reordering, in segments, that Linux assumes at first (`tcp_reordering`).
        const REORDERING: u32 = 3;
        let windows = u64::from(self.congestion.send_buffer_windows());
        let cwnd = self.congestion.cwnd();
        let path = Path {
            tuning: cx.buffers,
            delivery_rate: self.delivery_rate().unwrap_or(0),
            least_rtt: self.recovery.min_rtt(),
            is_doubling: cwnd < self.congestion.ssthresh(),
            sacked: self.recovery.sacked_out(),
        };
        self.buffer.expand(cx.full_mss, cwnd, REORDERING, windows, &path, cx.config.wmem.max);
    }

    /// Bytes that a buffer of the queue is filled to.
    fn size_goal(&self, cx: &SendCx<'_>) -> u32 {
        let goal =
            tso_autosize::size_goal(cx.mss, cx.link.gso_max_bytes, cx.link.gso_max_segs, self.window.max());
        if !cx.config.autosizing.is_at_write() {
            return goal;
        }
        let rate = self.congestion.pacing_rate();
        let segs = tso_autosize::segs_at_write(rate, cx.mss, cx.config.min_tso_segs);
        goal.min(segs.saturating_mul(cx.mss))
    }

    /// Bytes held by the send side, for `TCP_INFO`.
    pub(crate) fn held_bytes(&self, cx: &SendCx<'_>) -> Room {
        self.room(self.size_goal(cx), cx)
    }

    /// Bytes held by the send side at `size_goal`, for the limits of
    /// [`notsent_lowat`](super::queue::notsent_lowat).
    fn room(&self, size_goal: u32, cx: &SendCx<'_>) -> Room {
        let unsent = self.unsent();
        let buffers = unsent.div_ceil(u64::from(size_goal.max(1))) + self.recovery.records() as u64;
        let queued = self.queue.len() + buffers * u64::from(small_queue::OVERHEAD);
        let (lowat, by_rate) = self.mark(cx);
        Room {
            queued: u32::try_from(queued).unwrap_or(u32::MAX),
            sndbuf: self.buffer.limit_now(cx.spare),
            unsent,
            lowat,
            by_rate,
            mode: cx.config.lowat,
        }
    }

    /// The unsent bytes at which the application should stop writing, and whether they follow the rate.
    fn mark(&self, cx: &SendCx<'_>) -> (u32, bool) {
        let set = if self.lowat == 0 { cx.config.notsent_lowat } else { self.lowat };
        match &self.writer {
            _ if set != notsent_lowat::BY_RATE => (set, false),
            Some(writer) if !self.buffer.locked => {
                let flow = notsent_lowat::Flow {
                    rate: writer.delivery_rate,
                    least_rtt: self.recovery.min_rtt(),
                    unacked: self.nxt - self.una(),
                    is_repairing: self.recovery.is_repairing(),
                };
                (writer.refill.mark(&flow), true)
            }
            _ => (notsent_lowat::UNSET, false),
        }
    }
}

//! The sending half of a connection: its state, and the application's verbs. RFC 9293 §3.3.1's send
//! variables, and Linux 6.12's `tcp_sendmsg` for how a write fills the queue. Called by the connection.
//!
//! The fields are for this folder alone. The application's verbs are here, the device's in `commit.rs`, the
//! network's in `acked.rs`.

use alloc::boxed::Box;
use core::ops::Range;
use core::task::Poll;

use bytes::{Buf, Bytes};

use super::autocork::{self, Autocork, AutocorkMode};
use super::chrono::Kind;
use super::loans::{Completion, LEND_MIN, Loans};
use super::nagle::Nagle;
use super::notsent_lowat::{self, Room};
use super::pacing::{Owed, Pacing, Status, UNLIMITED};
use super::peer_window::PeerWindow;
use super::sndbuf::{Path, SNDBUF_MIN, SendBuffer};
use super::tsq::{self, SmallQueue};
use super::write_queue::WriteQueue;
use super::{AutosizeMode, Blocked, Gate, Ledger, SendConfig, SendCx, Totals, tso_autosize};
use crate::buffers::{BufferPool, CHUNK_MIN, CHUNK_OVERHEAD};
use crate::congestion::{Algorithm, Congestion};
use crate::options::WriteFlags;
use crate::recovery::{Mode, Recovery};
use crate::words::{Gather, Holders, Instant, Memory};

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

/// The sending half of a connection. Every written byte stays in `queue` until it is acknowledged; `nxt`
/// divides the queue into sent (remembered by `recovery`) and unsent.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(super) queue: WriteQueue,
    pub(super) recovery: Recovery,
    pub(super) congestion: Congestion,
    /// SND.NXT: the next position never sent.
    pub(super) nxt: u64,
    /// End of the data that a write completed: the packet that ends there carries PSH.
    pub(super) pushed: u64,
    pub(super) window: PeerWindow,
    pub(super) nagle: Nagle,
    pub(super) pacing: Pacing,
    pub(super) small_queue: SmallQueue,
    pub(super) buffer: SendBuffer,
    /// TCP_NOTSENT_LOWAT; 0 follows the stack's value.
    lowat: u32,
    /// The application will write no more; a FIN stands at the queue's end.
    pub(super) fin_queued: bool,
    /// A maximum rate was set once; pacing stays wanted from then on.
    pacing_wanted: bool,
    /// The next packet may be smaller than a segment, to fit the peer's window.
    pub(super) squeeze: bool,
    /// Data may be able to leave: the gates will be asked.
    pub(super) due: bool,
    /// The connection waits for the pacing gate.
    pub(super) paced: bool,
    /// Which gate was shut when the connection was last asked for a packet.
    pub(super) blocked: Gate,
    /// Something was sent since that was last noted.
    pub(super) sent: bool,
    /// Where bytes wait and why; made at the first write.
    pub(super) ledger: Option<Box<Ledger>>,
    /// How late the pacing timer was.
    pub(super) owed: Owed,
    /// Segments with data, wrapping as Linux's counter does.
    pub(super) data_segs_out: u32,
    /// Segments of any kind, wrapping as Linux's counter does.
    pub(super) segs_out: u32,
}

impl Sender {
    /// A sender whose first data byte has position `first`.
    pub(crate) fn new(now: Instant, first: u64, algorithm: Algorithm, config: &SendConfig) -> Self {
        Self {
            queue: WriteQueue::new(first),
            recovery: Recovery::new(now, first, false),
            congestion: Congestion::new(algorithm),
            nxt: first,
            pushed: first,
            window: PeerWindow::default(),
            nagle: Nagle::new(first),
            pacing: Pacing::new(),
            small_queue: SmallQueue::default(),
            buffer: SendBuffer::new(config.wmem.initial),
            lowat: 0,
            fin_queued: false,
            pacing_wanted: false,
            squeeze: false,
            due: false,
            paced: false,
            blocked: Gate::NoData,
            sent: false,
            ledger: None,
            owed: Owed::default(),
            data_segs_out: 0,
            segs_out: 0,
        }
    }

    /// The peer's SYN came, offering `window` bytes. Only our SYN has been sent: recovery begins here, with
    /// or without SACK.
    pub(crate) fn begin(&mut self, now: Instant, first: u64, sack: bool, window: u16) {
        self.recovery = Recovery::new(now, first, sack);
        self.window = PeerWindow::of_syn(window.into());
    }

    /// The SYN-ACK answers a SYN that carried data: the first `acked` bytes in the queue are delivered, the next `again`
    /// bytes are unsent, although they were sent once.
    pub(crate) fn on_syn_data(
        &mut self,
        now: Instant,
        sack: bool,
        (acked, again): (u32, u32),
        pool: &mut BufferPool,
        totals: &mut Totals,
    ) {
        let start = self.nxt;
        let una = (start + u64::from(acked)).min(self.queue.end());
        self.recovery = Recovery::new(now, una, sack);
        self.queue.release_until(una, pool);
        self.nxt = una;
        self.data_segs_out = self.data_segs_out.wrapping_add(1);
        if let Some(ledger) = &mut self.ledger {
            ledger.bytes_retrans += u64::from(again);
            if acked > 0 {
                ledger.on_sent(now, start, una, totals);
                ledger.on_acked(now, una, totals);
            }
            if una == self.queue.end() {
                ledger.chrono.stop(now, Kind::Busy, true);
            }
        }
    }

    // ---- the application ----

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

    /// [`write`](Self::write) without a copy: the bytes that were taken are removed from the front of `data`, and the
    /// queue holds their memory. Returns also the write's number, if anything was taken.
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
            self.ledger.as_mut().map(|ledger| ledger.loans.get_or_insert_default().add(end, receipt));
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

    /// Lent bytes may be free now. `over`: the connection has ended. Returns whether the application must be notified.
    #[inline]
    pub(crate) fn settle_loans(&mut self, now: Instant, over: bool, holders: &mut Holders) -> bool {
        let una = self.una();
        self.loans().is_some_and(|loans| loans.settle(now, una, over, holders))
    }

    /// When to call that again, if nothing happens before; never for most connections.
    pub(crate) fn look_at_loans(&self) -> Instant {
        let loans = self.ledger.as_ref().and_then(|ledger| ledger.loans.as_ref());
        loans.map_or(Instant::NEVER, |loans| loans.look_at())
    }

    fn loans(&mut self) -> Option<&mut Loans> {
        self.ledger.as_mut()?.loans.as_deref_mut()
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
        if let Some(ledger) = &mut self.ledger {
            if bytes > 0 {
                ledger.refill.on_write(cx.now, was_empty);
            }
            if bytes < len {
                ledger.refill.on_full();
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

    /// Nothing is in flight, and data will be sent: RFC 5681 §4.1, a window that was not used for an RTO says nothing about
    /// the path.
    pub(crate) fn restart_after_idle(&mut self, cx: &SendCx<'_>) {
        if self.data_segs_out > 0 {
            let (sent_at, rto) = (self.recovery.last_sent_at(), self.recovery.rto());
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
                if cx.config.autosizing == AutosizeMode::AtWrite {
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
            let ledger = self.ledger.get_or_insert_with(|| Box::new(Ledger::new(cx.now)));
            ledger.on_written(cx.now, before);
            ledger.stream.on_write(cx.now, taken < cx.mss as usize);
            ledger.chrono.start(cx.now, Kind::Busy);
        }
        taken
    }

    /// How many of `piece` bytes the stack's memory allows to be written while it is scarce: at least `least` may be kept.
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
        self.ledger.as_ref().is_some_and(|ledger| ledger.stream.goes_on(now))
    }

    /// Whether an ACK leaves the tail to the completion that is still to come: autocorking holds it, and the application
    /// goes on writing.
    pub(super) fn is_held_in_stream(&self, cx: &SendCx<'_>) -> bool {
        self.blocked == Gate::Autocork
            && cx.config.autocork == AutocorkMode::Stream
            && self.small_queue.throttled()
            && self.small_queue.outstanding() > tsq::ACK_TRUESIZE
            && self.recovery.mode() == Mode::Normal
            && self.is_in_stream(cx.now)
    }

    /// The peer sent data: an answer, maybe.
    pub(crate) const fn note_answer(&mut self) {
        if let Some(ledger) = &mut self.ledger {
            ledger.stream.on_answer();
        }
    }

    /// Delivery-rate samples taken while the application has too little to send say nothing about the path
    /// (draft-ietf-ccwg-bbr §4.1.2.4; checked, as in Linux, when a write begins).
    fn note_app_limited(&mut self, cx: &SendCx<'_>) {
        if self.unsent() < u64::from(cx.mss)
            && self.small_queue.outstanding() < tsq::truesize(1)
            && self.recovery.in_flight() < self.congestion.cwnd()
            && self.recovery.lost_out() <= self.recovery.retrans_out()
        {
            self.recovery.set_app_limited();
        }
    }

    /// TCP_NODELAY.
    pub(crate) fn set_nodelay(&mut self, on: bool) {
        self.due |= self.nagle.set_nodelay(on);
    }

    /// TCP_NODELAY of a connection that begins: there is nothing to flush.
    pub(crate) fn begin_with_nodelay(&mut self, on: bool) {
        self.nagle.begin_with_nodelay(on);
    }

    /// TCP_CORK.
    pub(crate) fn set_cork(&mut self, on: bool) {
        self.due |= self.nagle.set_cork(on);
    }

    /// The tail was held back long enough: it leaves, as if its write were complete.
    pub(crate) fn release_tail(&mut self) {
        self.nagle.release();
        self.pushed = self.queue.end();
    }

    /// The window has stayed smaller than a segment: the next packet may be cut to fit it.
    pub(crate) const fn squeeze(&mut self) {
        self.squeeze = true;
    }

    /// FIN follows the queued data. Returns whether the application was waiting for room; it no longer needs
    /// any.
    pub(crate) fn queue_fin(&mut self) -> bool {
        self.fin_queued = true;
        self.nagle.forget_more();
        self.due = true;
        core::mem::take(&mut self.buffer.nospace)
    }

    /// TCP_NOTSENT_LOWAT; 0 follows the stack's value.
    pub(crate) const fn set_lowat(&mut self, bytes: u32) {
        self.lowat = bytes;
    }

    /// SO_SNDBUF.
    pub(crate) fn set_sndbuf(&mut self, bytes: u32, wmem_max: u32) {
        self.buffer.set(bytes, wmem_max);
    }

    /// SO_MAX_PACING_RATE.
    pub(crate) fn set_max_pacing_rate(&mut self, rate: u64) {
        self.pacing_wanted |= rate != UNLIMITED;
        self.congestion.clamp_pacing_rate(rate);
    }

    /// TCP_CONGESTION.
    pub(crate) fn set_algorithm(&mut self, algorithm: Algorithm) {
        self.congestion.set_algorithm(algorithm);
    }

    /// Whether a write is worthwhile now; if not, the application is notified once it is.
    pub(crate) fn poll_writable(&mut self, cx: &SendCx<'_>) -> bool {
        let writable = self.is_writable(cx);
        if !writable {
            self.buffer.nospace = true;
            if let Some(ledger) = &mut self.ledger {
                ledger.refill.on_full();
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
        if self.recovery.in_flight() < self.congestion.cwnd() && !cx.pressed {
            self.expand_buffer(cx);
        }
        let has_room = self.is_writable(cx);
        if has_room {
            self.buffer.nospace = false;
            if let Some(ledger) = &mut self.ledger {
                ledger.refill.on_woken(cx.now);
                ledger.chrono.stop(cx.now, Kind::SendBuffer, false);
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

    /// Forgets the packets in flight and stops the timers.
    pub(crate) fn stop(&mut self) {
        self.recovery.discard();
        self.paced = false;
    }

    /// Forgets everything queued and in flight: the connection is over.
    pub(crate) fn discard(&mut self, pool: &mut BufferPool) {
        self.stop();
        self.release(pool);
        self.due = false;
    }

    /// Releases every buffer.
    pub(crate) fn release(&mut self, pool: &mut BufferPool) {
        self.queue.discard_all(pool);
    }

    /// The invariants that hold between any two calls; for assertions. `over`: the connection is closed.
    pub(crate) fn invariants(&self, over: bool) {
        let (una, nxt, end) = (self.una(), self.nxt, self.end());
        assert!(una <= nxt && nxt <= end, "una {una} nxt {nxt} end {end}");
        // Exactly the unacknowledged bytes are kept; FIN takes a position, but no byte.
        assert!(over || self.queue.start() == una.min(self.queue.end()), "the queue does not begin at una");
        let recovery = &self.recovery;
        assert_eq!(recovery.packets_out() == 0, recovery.records() == 0);
        assert!(recovery.sacked_out() + recovery.lost_out() <= recovery.packets_out());
        assert!(recovery.retrans_out() <= recovery.packets_out());
        if let Some(logged) = recovery.logged_until() {
            assert!(over || logged == nxt, "the log ends at {logged}, nxt is {nxt}");
        }
    }

    // ---- what it wants, and getters ----

    /// Whether the gates should be asked.
    pub(crate) const fn wants_output(&self) -> bool {
        self.due
    }

    /// The earliest of its timers.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let recovery = self.recovery.deadline().map(|(at, _)| at);
        let pacing = self.paced.then(|| self.pacing.next_departure());
        match (recovery, pacing) {
            (Some(recovery), Some(pacing)) => Some(recovery.min(pacing)),
            (recovery, pacing) => recovery.or(pacing),
        }
    }

    /// The packets in flight, the losses and the measurements.
    pub(crate) const fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The congestion window and the algorithm that moves it.
    pub(crate) const fn congestion(&self) -> &Congestion {
        &self.congestion
    }

    /// Where bytes waited and why; `None` until the first write.
    pub(crate) fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_deref()
    }

    /// Which gate was shut when the connection was last asked for a packet.
    pub(crate) const fn blocked(&self) -> Gate {
        self.blocked
    }

    /// The same, with its time, for pacing.
    pub(crate) const fn reason(&self) -> Blocked {
        self.blocked.reason(self.pacing.next_departure())
    }

    /// SND.UNA.
    pub(crate) fn una(&self) -> u64 {
        self.recovery.una()
    }

    /// SND.NXT.
    pub(crate) const fn nxt(&self) -> u64 {
        self.nxt
    }

    /// End of the written data.
    pub(crate) const fn written_until(&self) -> u64 {
        self.queue.end()
    }

    /// Position of the oldest byte that is kept.
    pub(crate) const fn kept_from(&self) -> u64 {
        self.queue.start()
    }

    /// End of everything to send, FIN included.
    pub(crate) fn end(&self) -> u64 {
        self.queue.end() + u64::from(self.fin_queued)
    }

    /// The bytes at these positions, as they lie in the write queue.
    pub(crate) fn payload(&self, range: core::ops::Range<u64>) -> Gather<'_> {
        self.queue.gather(range)
    }

    /// SND.WND.
    pub(crate) const fn window_bytes(&self) -> u32 {
        self.window.bytes()
    }

    /// The largest window the peer ever offered.
    pub(crate) const fn window_max(&self) -> u32 {
        self.window.max()
    }

    /// Right edge of the peer's window.
    pub(crate) fn window_end(&self) -> u64 {
        self.una() + u64::from(self.window.bytes())
    }

    /// Bytes that the peer's window has room for now.
    pub(super) fn window_room(&self) -> u32 {
        self.window_end().saturating_sub(self.nxt).min(u64::from(u32::MAX)) as u32
    }

    /// Whether the peer's window has room for the next segment: a full one, or all the data left (RFC 9293
    /// §3.8.6.2.1).
    pub(crate) fn window_fits(&self, mss: u32) -> bool {
        let next = self.unsent().min(u64::from(mss)).max(1);
        u64::from(self.window_room()) >= next
    }

    /// Bytes written and not acknowledged.
    pub(crate) const fn queued(&self) -> u64 {
        self.queue.len()
    }

    /// Bytes written and never sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.queue.end().saturating_sub(self.nxt)
    }

    /// Whether anything is unsent, FIN included.
    pub(crate) fn has_unsent(&self) -> bool {
        self.nxt < self.end()
    }

    /// Whether FIN stands at the queue's end.
    pub(crate) const fn fin_queued(&self) -> bool {
        self.fin_queued
    }

    /// Whether our FIN was acknowledged.
    pub(crate) fn fin_acked(&self) -> bool {
        self.fin_queued && self.una() == self.end()
    }

    /// Segments with data, and of any kind.
    pub(crate) const fn segs_out(&self) -> (u32, u32) {
        (self.data_segs_out, self.segs_out)
    }

    /// Bytes below TCP, overhead included.
    pub(crate) const fn outstanding(&self) -> u32 {
        self.small_queue.outstanding()
    }

    /// Whether it waits for a ticket: the next one to come back resumes it.
    pub(crate) const fn awaits_ticket(&self) -> bool {
        self.small_queue.throttled()
    }

    /// What the small queue allows below TCP: payload of all connections where completions are measured, else bytes of this
    /// one with overhead, for its next full packet. `None` if there is no limit.
    pub(crate) fn tsq_limit(&self, cx: &SendCx<'_>) -> Option<u64> {
        let limit = match cx.device {
            Some(device) => self.measured_limit(cx, device),
            None => self.small_queue_limit(cx, self.autosized_segs(cx).saturating_mul(cx.mss), false),
        };
        (limit < u64::MAX).then_some(limit)
    }

    /// `mss`, bounded by half of a small peer window.
    pub(crate) fn bounded_mss(&self, mss: u32) -> u32 {
        tso_autosize::half_window_bound(mss, self.window.max())
    }

    /// Bytes that a buffer of the queue is filled to.
    fn size_goal(&self, cx: &SendCx<'_>) -> u32 {
        let goal =
            tso_autosize::size_goal(cx.mss, cx.link.gso_max_bytes, cx.link.gso_max_segs, self.window.max());
        match cx.config.autosizing {
            AutosizeMode::AtWrite => {
                let rate = self.congestion.pacing_rate();
                let segs = tso_autosize::segs_at_write(rate, cx.mss, cx.config.min_tso_segs);
                goal.min(segs.saturating_mul(cx.mss))
            }
            AutosizeMode::Off | AutosizeMode::AtTransmit => goal,
        }
    }

    /// What spaces this connection's packets.
    pub(super) fn pacing_status(&self, cx: &SendCx<'_>) -> Status {
        cx.config.pacing.status(self.pacing_wanted || self.congestion.paces(), cx.link.paces)
    }

    /// Bytes held by the send side, for `TCP_INFO`.
    pub(crate) fn held_bytes(&self, cx: &SendCx<'_>) -> Room {
        self.room(self.size_goal(cx), cx)
    }

    /// Bytes held by the send side at `size_goal`, for the limits of [`notsent_lowat`](super::notsent_lowat).
    fn room(&self, size_goal: u32, cx: &SendCx<'_>) -> Room {
        let unsent = self.unsent();
        let buffers = unsent.div_ceil(u64::from(size_goal.max(1))) + self.recovery.records() as u64;
        let queued = self.queue.len() + buffers * u64::from(tsq::OVERHEAD);
        let (lowat, by_rate) = self.mark(cx);
        Room {
            queued: u32::try_from(queued).unwrap_or(u32::MAX),
            sndbuf: self.buffer.limit_now(cx.pressed),
            unsent,
            lowat,
            by_rate,
            mode: cx.config.lowat,
        }
    }

    /// The unsent bytes at which the application should stop writing, and whether they follow the rate.
    fn mark(&self, cx: &SendCx<'_>) -> (u32, bool) {
        let set = if self.lowat == 0 { cx.config.notsent_lowat } else { self.lowat };
        match &self.ledger {
            _ if set != notsent_lowat::BY_RATE => (set, false),
            Some(ledger) if !self.buffer.locked => {
                let flow = notsent_lowat::Flow {
                    rate: ledger.delivery_rate,
                    least_rtt: self.recovery.min_rtt(),
                    unacked: self.nxt - self.una(),
                    is_repairing: self.recovery.is_repairing(),
                };
                (ledger.refill.mark(&flow), true)
            }
            _ => (notsent_lowat::UNSET, false),
        }
    }
}

//! The receiving half of a connection: its state and its verbs.
//! RFC 9293 §3.3.1's receive variables. Called by the connection: by arrival for segments, by output for the
//! contents of an ACK, by the application for reads.

use core::ops::Range;

use bytes::Bytes;

use super::ReceiveConfig;
use super::delayed_ack::{Arrival, DelayedAck};
use super::payload::Payload;
use super::read_queue::ReadQueue;
use super::reassembly::{Reassembly, SackBlocks};
use super::recv_window::RecvWindow;
use super::rmem::Squeezed;
use crate::buffers::{BufferPool, Growth};
use crate::words::{Duration, Instant, seq};

/// No FIN was seen.
const NO_FIN: u64 = u64::MAX;

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(super) window: RecvWindow,
    pub(super) queue: ReadQueue,
    pub(super) reassembly: Reassembly,
    delayed_ack: DelayedAck,
    /// RCV.NXT when the last ACK left (Last.ACK.sent of RFC 7323), as it went on the wire.
    last_ack_sent: u32,
    /// The peer's initial sequence number.
    irs: u32,
    /// Position of the peer's FIN.
    fin_at: u64,
    /// Wraps, as Linux's does.
    data_segs_in: u32,
    /// The SACK blocks for which a header has room; 0 without SACK.
    sack_blocks_max: u8,
    /// The application reads no more: data is acknowledged and dropped.
    shut: bool,
    /// A pure ACK must leave, regardless of the delayed-ACK rules.
    ack_due: bool,
}

/// The context of an arrival: values that the rest of the connection knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveCx<'a> {
    pub(crate) now: Instant,
    pub(crate) config: &'a ReceiveConfig,
    /// Round-trip time measured with the segment's timestamp, if any.
    pub(crate) echo_rtt: Option<Duration>,
    /// As the sending half knows them.
    pub(crate) srtt: Option<Duration>,
    pub(crate) rto: Duration,
    pub(crate) growth: Growth,
    /// MSS we announced: no segment is longer.
    pub(crate) announced_mss: u16,
}

/// What an arrival changed, for the rest of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(crate) struct Received {
    /// More can be read.
    pub(crate) readable: bool,
    /// The peer's FIN was reached.
    pub(crate) fin: bool,
    /// SACK has as much to report as fits: the ACK must leave before more segments are taken.
    pub(crate) full_report: bool,
    /// What became of it for lack of memory.
    pub(crate) squeezed: Squeezed,
}

/// The effect of an arrived payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    /// Bytes that became readable.
    in_order: u64,
    /// The FIN was reached.
    fin: bool,
    /// Out of order, duplicate, or filling a hole: must be acknowledged at once (RFC 5681 §4.2).
    ack_now: bool,
    /// New data beyond a hole, and nothing else.
    reordered: bool,
    squeezed: Squeezed,
}

impl Receiver {
    /// A receiver that has not seen the peer's SYN. `tuned`: its buffer may grow from `rcvbuf` to
    /// `rcvbuf_max`.
    pub(crate) fn new(rcvbuf: u32, rcvbuf_max: u32, tuned: bool) -> Self {
        Self {
            window: RecvWindow::new(rcvbuf, rcvbuf_max, tuned),
            queue: ReadQueue::new(0),
            reassembly: Reassembly::new(),
            delayed_ack: DelayedAck::new(),
            last_ack_sent: 0,
            irs: 0,
            fin_at: NO_FIN,
            data_segs_in: 0,
            sack_blocks_max: 0,
            shut: false,
            ack_due: false,
        }
    }

    /// The peer's SYN stands before `rcv_nxt`; `mss` is the one we announced, and headers have room for
    /// `sack_blocks_max` SACK blocks (none without SACK).
    pub(crate) fn begin(&mut self, now: Instant, rcv_nxt: u64, scale: u8, mss: u16, sack_blocks_max: u8) {
        self.window.establish(now, rcv_nxt, scale, mss);
        self.queue = ReadQueue::new(rcv_nxt);
        self.last_ack_sent = seq::wire(rcv_nxt);
        self.irs = seq::wire(rcv_nxt - 1);
        self.sack_blocks_max = sack_blocks_max;
    }

    /// The handshake is complete.
    pub(crate) const fn on_established(&mut self, now: Instant) {
        self.delayed_ack.on_established(now);
    }

    // ---- what arrives ----

    /// Whether a segment lies in the window (RFC 9293 §3.10.7.4, first).
    pub(crate) fn accepts(&self, range: &Range<u64>) -> bool {
        self.window.accepts(range)
    }

    /// Duplicate data arrived: the next ACK reports that (RFC 2883).
    pub(crate) fn note_duplicate(&mut self, range: Range<u64>) {
        if self.sacks() {
            self.reassembly.note_duplicate(range);
        }
    }

    /// An acceptable segment's payload and FIN. `gso_size` is the segment size of a super-packet, 0 of an
    /// ordinary one.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        cx: &ReceiveCx<'_>,
        start: u64,
        payload: Payload<'_>,
        fin: bool,
        gso_size: u16,
        pool: &mut BufferPool,
    ) -> Received {
        let len = payload.len();
        if len > 0 {
            self.data_segs_in = self.data_segs_in.wrapping_add(payload.segments(gso_size) as u32);
        }
        let segs = payload.segments(gso_size) as u32;
        let taken = self.take(start, payload, fin, cx.config.rmem.min, pool);
        if taken.reordered {
            self.reassembly.gap_segs = self.reassembly.gap_segs.wrapping_add(segs);
            let end = self.reassembly.end().unwrap_or(0);
            self.window.on_reordered(end, self.delayed_ack.rcv_mss(), cx.growth);
        }
        if taken.in_order > 0 {
            // Timestamps tick in milliseconds; our own segments measure a shorter path better.
            let rtt = cx.echo_rtt.filter(|rtt| rtt.as_millis() > 1).or(cx.srtt);
            self.window.on_data(cx.now, rtt);
        }
        let arrival = Arrival {
            len,
            gso_size,
            in_order: !taken.ack_now,
            fin: taken.fin,
            advmss: cx.announced_mss,
            rcv_wnd: self.window.window(),
            can_grow: self.window.can_grow(
                self.queue.len(),
                self.delayed_ack.rcv_mss(),
                pool.budget.is_pressed(),
            ),
            srtt: cx.srtt,
            rto: cx.rto,
            reordered: taken.reordered,
            rcv_rtt: self.window.rtt(),
            compression: cx.config.compression(),
        };
        self.delayed_ack.on_data(cx.now, &arrival);
        // Linux: `tcp_sack_new_ofo_skb`, which sends the withheld ACK before there are more blocks than fit.
        let full_report = self.has_full_report();
        if taken.ack_now && (full_report || !taken.reordered) {
            self.delayed_ack.ack_now();
        }
        Received { readable: taken.in_order > 0, fin: taken.fin, full_report, squeezed: taken.squeezed }
    }

    /// Takes the payload at `seq`, trimmed to the window, and the FIN behind it. `least`: memory that the connection may
    /// hold in any case.
    fn take(
        &mut self,
        seq: u64,
        mut payload: Payload<'_>,
        fin: bool,
        least: u32,
        pool: &mut BufferPool,
    ) -> Taken {
        let mut taken = Taken::default();
        let nxt = self.nxt();
        let end = seq + payload.len() as u64;
        // A FIN before data that the peer has already sent contradicts that data, and is ignored.
        let after_all = self.reassembly.end().is_none_or(|held| held <= end);
        if fin && self.fin_at == NO_FIN && end <= self.window.edge() && after_all {
            self.fin_at = end;
        }
        // Data beyond the peer's own FIN is invalid.
        let right = self.window.edge().min(self.fin_at).max(nxt);
        if end > right {
            payload.truncate(right.saturating_sub(seq) as usize);
            taken.ack_now = true;
        }
        let mut room = usize::MAX;
        // It is acceptable, so it does not end before RCV.NXT.
        let is_next = seq <= nxt;
        if !payload.is_empty() && (!is_next || !self.reassembly.is_empty() || pool.budget.is_pressed()) {
            let from = if is_next { nxt } else { end };
            room = self.make_room(is_next, from, payload.len(), least, &mut taken.squeezed, pool);
            if room == 0 {
                // The peer retransmits it.
                payload.truncate(0);
                taken.ack_now = true;
            }
        }
        if payload.is_empty() {
            taken.ack_now |= seq != nxt;
        } else if is_next && self.reassembly.is_empty() {
            // The usual case: exactly the next bytes.
            if seq < nxt {
                // RFC 2883 §4.2.1: a part of it came before.
                payload.trim_front((nxt - seq) as usize);
                self.note_duplicate(seq..nxt);
                taken.ack_now = true;
            }
            taken.in_order = payload.len() as u64;
            self.queue.push(payload, pool);
            self.window.advance_to(nxt + taken.in_order);
        } else {
            taken.ack_now = true;
            let inserted = self.reassembly.insert(seq, payload, nxt, room, pool);
            taken.squeezed.ofo_drop |= inserted.refused > 0;
            let reached = self.reassembly.take_in_order(nxt, &mut self.queue, pool);
            taken.in_order = reached - nxt;
            self.window.advance_to(reached);
            taken.reordered = reached == nxt && inserted.duplicate.is_none() && self.sacks();
        }
        if self.shut {
            self.queue.discard_all(pool);
        }
        if self.nxt() == self.fin_at {
            self.window.advance_to(self.fin_at + 1);
            taken.fin = true;
            taken.ack_now |= !fin; // It waited for what fills the hole.
            taken.reordered = false;
        }
        taken
    }

    /// A pure ACK must leave.
    pub(crate) const fn owe_ack(&mut self) {
        self.ack_due = true;
    }

    /// The pending ACK should not wait; `quick`: nor should the next few.
    pub(crate) fn hasten_ack(&mut self, quick: bool) {
        if quick {
            self.delayed_ack.quicken();
        }
        self.delayed_ack.ack_now();
    }

    // ---- the application ----

    /// Moves received bytes to `into`.
    pub(crate) fn read(&mut self, into: &mut [u8], pool: &mut BufferPool) -> usize {
        self.queue.read(into, pool)
    }

    /// Moves at most `max` received bytes out, in the memory in which they arrived.
    pub(crate) fn read_chunk(&mut self, max: usize, pool: &mut BufferPool) -> Bytes {
        self.queue.read_chunk(max, pool)
    }

    /// Copies received bytes and keeps them for a later read.
    pub(crate) fn peek(&self, into: &mut [u8]) -> usize {
        self.queue.peek(into)
    }

    /// The next received bytes that are contiguous in memory.
    pub(crate) fn chunk(&self) -> &[u8] {
        self.queue.chunk()
    }

    /// Drops the first `count` unread bytes, or all if there are fewer. Returns how many there were.
    pub(crate) fn consume(&mut self, count: usize, pool: &mut BufferPool) -> usize {
        let count = count.min(usize::try_from(self.queue.len()).unwrap_or(usize::MAX));
        self.queue.consume(count, pool);
        count
    }

    /// The application has read bytes: the window may open far enough to notify the peer. No `tuning` while memory is scarce.
    pub(crate) fn on_consumed(&mut self, now: Instant, count: usize, (tuning, least_rtt): Growth) {
        let mss = self.delayed_ack.rcv_mss();
        let unread = self.queue.len();
        self.window.on_copied_to_user(now, count, unread, mss, tuning, least_rtt);
        self.delayed_ack.on_read();
        self.ack_due |= self.window.window_update_due(unread, mss, tuning.is_none());
    }

    /// The application reads no more.
    pub(crate) const fn shut(&mut self) {
        self.shut = true;
    }

    /// TCP_QUICKACK.
    pub(crate) const fn set_quickack(&mut self, on: bool) {
        self.delayed_ack.set_quickack(on);
    }

    /// SO_RCVBUF, doubled.
    pub(crate) const fn lock_rcvbuf(&mut self, bytes: u32) {
        self.window.lock_rcvbuf(bytes);
    }

    /// Forgets out-of-order data and pending ACKs: the connection is over. The bytes received in order stay.
    pub(crate) fn discard(&mut self, pool: &mut BufferPool) {
        self.reassembly.discard_all(pool);
        self.stop();
        self.ack_due = false;
    }

    /// Stops the timer.
    pub(crate) const fn stop(&mut self) {
        self.delayed_ack.on_ack_sent();
    }

    /// Releases every buffer.
    pub(crate) fn release(&mut self, pool: &mut BufferPool) {
        self.queue.discard_all(pool);
        self.reassembly.discard_all(pool);
    }

    // ---- what leaves ----

    /// Whether a pure ACK should leave now.
    pub(crate) const fn ack_wanted(&self) -> bool {
        self.ack_due || self.delayed_ack.must_ack_now()
    }

    /// Whether one must leave regardless of the delayed-ACK rules.
    pub(crate) const fn owes_ack(&self) -> bool {
        self.ack_due
    }

    /// Whether something received is not yet acknowledged.
    pub(crate) const fn is_ack_pending(&self) -> bool {
        self.delayed_ack.is_pending()
    }

    /// The window field of the segment that leaves now; of a SYN, see [`syn_window`](Self::syn_window). `pressed`: the
    /// stack's memory is scarce.
    pub(crate) fn window_field(&mut self, pressed: bool) -> u16 {
        self.window.select(self.queue.len(), self.delayed_ack.rcv_mss(), pressed)
    }

    /// The window field of our SYN.
    pub(crate) fn syn_window(&self) -> u16 {
        self.window.syn_field()
    }

    /// Blocks to report, the most recent first (RFC 2018 §4, RFC 2883 §4), if there are any.
    #[inline]
    pub(crate) fn sack_blocks(&self) -> Option<SackBlocks> {
        let due = self.sacks() && self.reassembly.has_news();
        due.then(|| self.reassembly.sack_blocks(self.sack_blocks_max.into()))
    }

    /// How many of them there are.
    #[inline]
    pub(crate) fn sack_block_count(&self) -> usize {
        self.sack_blocks().map_or(0, |blocks| blocks.as_slice().len())
    }

    /// Whether the next ACK has as much to report as fits.
    #[inline]
    fn has_full_report(&self) -> bool {
        self.sacks() && self.reassembly.is_full(self.sack_blocks_max.into())
    }

    const fn sacks(&self) -> bool {
        self.sack_blocks_max > 0
    }

    /// A segment with these blocks and this window leaves. If there are more to report, another ACK follows.
    /// Returns how many withheld ACKs it replaces.
    pub(crate) fn on_ack_sent(&mut self) -> u8 {
        let compressed = self.delayed_ack.compressed();
        self.ack_due = false;
        self.last_ack_sent = seq::wire(self.nxt());
        self.delayed_ack.on_ack_sent();
        if self.reassembly.on_sack_sent(self.sack_blocks_max.into()) && self.sacks() {
            self.delayed_ack.ack_now();
        }
        compressed
    }

    /// Data left, and the ACK with it: the connection may be interactive.
    pub(crate) fn on_data_sent(&mut self, now: Instant) {
        self.delayed_ack.on_data_sent(now);
    }

    /// When a delayed ACK is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.delayed_ack.deadline()
    }

    /// Does what is due. Returns whether a delayed ACK is.
    pub(crate) fn on_timeout(&mut self, now: Instant) -> bool {
        if self.delayed_ack.deadline().is_none_or(|at| at > now) {
            return false;
        }
        self.delayed_ack.on_timeout(now);
        self.delayed_ack.must_ack_now()
    }

    // ---- getters ----

    /// RCV.NXT.
    pub(crate) const fn nxt(&self) -> u64 {
        self.window.rcv_nxt()
    }

    /// The peer's initial sequence number, as it came on the wire.
    pub(crate) const fn irs(&self) -> u32 {
        self.irs
    }

    /// Right edge of the window.
    pub(crate) const fn edge(&self) -> u64 {
        self.window.edge()
    }

    /// RCV.WND, in bytes.
    pub(crate) const fn window(&self) -> u64 {
        self.window.window()
    }

    /// RCV.WND as a header field, for the TIME-WAIT entry that outlives this connection.
    pub(crate) fn last_window_field(&self) -> u16 {
        (self.window.window() >> self.window.scale()).min(u64::from(u16::MAX)) as u16
    }

    /// RCV.NXT when the last ACK left.
    pub(crate) const fn last_ack_sent(&self) -> u64 {
        seq::expand(self.nxt(), self.last_ack_sent)
    }

    /// Whether everything that the peer will ever send has arrived.
    pub(crate) const fn fin_received(&self) -> bool {
        self.fin_at < self.nxt()
    }

    /// The FIN has arrived and data in front of it has not, unless there is other data out of order than what ends with it.
    pub(crate) fn has_early_fin(&self) -> bool {
        let is_early = self.fin_at != NO_FIN && !self.fin_received();
        is_early && self.reassembly.holds_only_up_to(self.fin_at)
    }

    /// Whether the application reads no more.
    pub(crate) const fn is_shut(&self) -> bool {
        self.shut
    }

    /// Bytes that can be read.
    pub(crate) const fn unread(&self) -> u64 {
        self.queue.len()
    }

    /// Bytes held beyond a gap.
    pub(crate) fn out_of_order(&self) -> u64 {
        self.reassembly.len()
    }

    /// Payload bytes received in order, and segments with data, wrapping.
    pub(crate) const fn received(&self) -> (u64, u32) {
        // The SYN and the FIN take a position each.
        let first = seq::FIRST + self.irs as u64 + 1 + self.fin_received() as u64;
        (self.nxt().saturating_sub(first), self.data_segs_in)
    }

    /// Segments that arrived beyond a gap, wrapping; and the most bytes that the application read in a round trip.
    pub(crate) const fn tcp_info(&self) -> (u32, u32) {
        (self.reassembly.gap_segs, self.window.space())
    }

    /// Receive buffer, in bytes.
    pub(crate) const fn rcvbuf(&self) -> u32 {
        self.window.rcvbuf()
    }

    /// Round-trip time as this half measures it.
    pub(crate) const fn rtt(&self) -> Option<Duration> {
        self.window.rtt()
    }

    /// The state of delayed ACKs, and the estimate of the peer's segment size.
    pub(crate) const fn delayed_ack(&self) -> &DelayedAck {
        &self.delayed_ack
    }

    /// The invariants that hold between any two calls; for assertions. `synchronized`: the peer's SYN came.
    pub(crate) fn invariants(&self, synchronized: bool) {
        assert!(self.window.rcv_nxt() <= self.window.edge());
        assert!(self.last_ack_sent() <= self.nxt());
        if synchronized && !self.shut {
            let fin = u64::from(self.fin_received());
            assert_eq!(self.queue.end() + fin, self.nxt(), "read queue and window disagree");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingress::delayed_ack::tests::{T0, arrival, settled};
    use crate::words::Frame;
    use crate::words::seq::FIRST;

    /// A receiver with a window of `rcvbuf` bytes that waits for byte [`FIRST`].
    fn receiver(rcvbuf: u32) -> Receiver {
        let mut rx = Receiver::new(rcvbuf, rcvbuf, false);
        rx.begin(Instant::from_nanos(1), FIRST, 0, 1_460, 4);
        rx
    }

    fn take(rx: &mut Receiver, seq: u64, len: usize, fin: bool, pool: &mut BufferPool) -> Taken {
        let data = [7; 20_000];
        rx.take(seq, Payload::new(Frame::Slice(&data), 0, len), fin, 4_096, pool)
    }

    #[test]
    fn only_data_beyond_the_window_is_acknowledged_at_once() {
        // RFC 5681 §4.2: an ACK may be delayed for data in order. RFC 9293 §3.10.7.4: what lies outside is cut off.
        for (len, in_order, ack_now) in
            [(9_999, 9_999, false), (10_000, 10_000, false), (10_001, 10_000, true)]
        {
            let mut pool = BufferPool::new();
            let taken = take(&mut receiver(10_000), FIRST, len, false, &mut pool);
            assert_eq!((taken.in_order, taken.ack_now), (in_order, ack_now), "{len} bytes");
        }
    }

    #[test]
    fn a_bare_fin_behind_a_hole_is_acknowledged_at_once() {
        // RFC 5681 §4.2: a segment out of order is.
        let mut pool = BufferPool::new();
        let taken = take(&mut receiver(10_000), FIRST + 100, 0, true, &mut pool);
        assert!(taken.ack_now && !taken.fin);
    }

    /// A FIN stands behind all data of the peer, and in the window with it (RFC 9293 §3.10.7.4). One that
    /// contradicts data that has come is none.
    #[test]
    fn a_fin_ends_the_data_and_no_data_comes_after_it() {
        let mut pool = BufferPool::new();
        for (len, fin) in [(9_999, true), (10_000, true), (10_001, false)] {
            let taken = take(&mut receiver(10_000), FIRST, len, true, &mut pool);
            assert_eq!(taken.fin, fin, "{len} bytes in a window of 10,000");
        }
        for (held, is_early) in [(99, true), (100, true), (101, false)] {
            let mut rx = receiver(10_000);
            let _ = take(&mut rx, FIRST + 100, held, false, &mut pool);
            let _ = take(&mut rx, FIRST + 100, 100, true, &mut pool);
            assert_eq!(rx.has_early_fin(), is_early, "{held} bytes had come");
        }
        let mut rx = receiver(10_000);
        let _ = take(&mut rx, FIRST + 200, 0, true, &mut pool);
        let taken = take(&mut rx, FIRST + 100, 200, false, &mut pool);
        assert_eq!((rx.out_of_order(), taken.ack_now), (100, true), "data beyond the FIN");
    }

    /// The SYN and the FIN take a position each, and are no bytes.
    #[test]
    fn received_bytes_are_those_of_data() {
        let (mut rx, mut pool) = (receiver(10_000), BufferPool::new());
        rx.begin(Instant::from_nanos(1), FIRST + 1_000, 0, 1_460, 4);
        assert_eq!(rx.received().0, 0);
        let _ = take(&mut rx, FIRST + 1_000, 100, false, &mut pool);
        assert_eq!(rx.received().0, 100);
        let _ = take(&mut rx, FIRST + 1_100, 50, true, &mut pool);
        assert_eq!((rx.received().0, rx.fin_received()), (150, true));
    }

    /// RFC 5681 §4.2: a delayed ACK waits for its own time, whatever else is due.
    #[test]
    fn a_delayed_ack_is_not_early() {
        let mut rx = receiver(10_000);
        rx.delayed_ack = settled();
        let at = |ms| T0 + Duration::from_millis(ms);
        rx.delayed_ack.on_data(T0, &arrival(100));
        assert_eq!(rx.deadline(), Some(at(40)));
        assert!(!rx.on_timeout(at(39)) && rx.deadline().is_some());
        assert!(rx.on_timeout(at(40)));
        // One that leaves at once was not delayed.
        let mut rx = receiver(10_000);
        rx.hasten_ack(false);
        assert!(!rx.on_timeout(T0));
    }

    /// Linux's quick-ack mode: a peer that waits for an ACK gets the next ones at once, too.
    #[test]
    fn an_ack_that_hastens_may_hasten_the_next() {
        for quick in [false, true] {
            let mut rx = receiver(10_000);
            rx.delayed_ack = settled();
            rx.hasten_ack(quick);
            assert!(rx.ack_wanted());
            rx.delayed_ack.on_ack_sent();
            rx.delayed_ack.on_data(T0, &arrival(100));
            assert_eq!(rx.delayed_ack.must_ack_now(), quick);
        }
    }

    #[test]
    fn a_connection_that_is_over_owes_no_ack() {
        let mut rx = receiver(10_000);
        rx.hasten_ack(false);
        assert!(rx.ack_wanted());
        rx.discard(&mut BufferPool::new());
        assert!(!rx.ack_wanted());
    }

    #[test]
    fn all_memory_is_given_back() {
        let (mut rx, mut pool) = (receiver(10_000), BufferPool::new());
        let _ = take(&mut rx, FIRST, 100, false, &mut pool);
        let _ = take(&mut rx, FIRST + 200, 100, false, &mut pool);
        // Two chunks of 512 bytes, each with 192 more.
        assert_eq!(pool.budget.usage().bytes, 2 * 704);
        rx.release(&mut pool);
        assert_eq!(pool.budget.usage().bytes, 0);
    }

    #[test]
    fn the_last_window_field_is_what_is_left_up_to_the_largest() {
        // RFC 9293 §3.1: the field has 16 bits.
        assert_eq!(receiver(10_000).last_window_field(), 10_000);
        assert_eq!(receiver(1 << 20).last_window_field(), u16::MAX);
    }
}

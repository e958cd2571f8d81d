//! The sending half of a connection: its state (RFC 9293 §3.3.1's send variables), and what the application
//! sets. Called by the connection.
//!
//! The fields are for this folder alone. The application's writes are in `write.rs`, the device's verbs in
//! `commit.rs`, the network's in `acked.rs`.

use alloc::boxed::Box;

use super::books::chrono::Kind;
use super::pacing::{LateMax, Owed, Pacing, Status, UNLIMITED};
use super::peer_window::PeerWindow;
use super::queue::sndbuf::SendBuffer;
use super::queue::write_queue::WriteQueue;
use super::size::nagle::Nagle;
use super::size::tso_autosize;
use super::small_queue::SmallQueue;
use super::writer::Writer;
use super::{Blocked, Gate, Ledger, SendConfig, SendCx, Totals};
use crate::buffers::BufferPool;
use crate::congestion::{Algorithm, Congestion};
use crate::recovery::Recovery;
use crate::words::{Gather, Instant};

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
    pub(super) lowat: u32,
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
    /// Made at the first write.
    pub(super) writer: Option<Box<Writer>>,
    /// How late the pacing timer was.
    pub(super) owed: Owed,
    pub(super) late_max: LateMax,
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
            writer: None,
            owed: Owed::default(),
            late_max: LateMax::new(),
            data_segs_out: 0,
            segs_out: 0,
        }
    }

    /// The peer's SYN came, offering `window` bytes. Only our SYN has been sent: recovery begins here, with
    /// or without SACK.
    pub(crate) fn begin(&mut self, now: Instant, first: u64, sack: bool, window: u32) {
        self.recovery = Recovery::new(now, first, sack);
        self.window = PeerWindow::of_syn(window);
    }

    /// Another stack had so many segments in flight.
    pub(crate) fn resume_flight(&mut self, now: Instant, segs: u32) {
        self.congestion.resume(now, segs);
    }

    /// The SYN-ACK answers a SYN that carried data: the first `acked` bytes in the queue are delivered, the
    /// next `again` bytes are unsent, although they were sent once.
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
        if let Some(writer) = &mut self.writer {
            writer.ledger.bytes_retrans += u64::from(again);
            if acked > 0 {
                writer.ledger.on_sent(now, start, una, totals);
                writer.ledger.on_acked(now, una, totals);
            }
            if una == self.queue.end() {
                writer.ledger.chrono.stop(now, Kind::Busy, true);
            }
        }
    }

    // ---- the application's settings; its writes are in write.rs ----

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
        self.writer.as_ref().map(|writer| &writer.ledger)
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

    /// What the small queue allows below TCP: payload of all connections where completions are measured, else
    /// bytes of this one with overhead, for its next full packet. `None` if there is no limit.
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

    /// What spaces this connection's packets.
    pub(super) fn pacing_status(&self, cx: &SendCx<'_>) -> Status {
        cx.config.pacing.status(self.pacing_wanted || self.congestion.paces(), cx.link.paces)
    }
}

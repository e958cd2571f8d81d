//! The send path: app → write queue → segment → pacing → small queue → device.
//!
//! `plan` decides and changes nothing: it is one list of gates, in the order in which Linux asks them.
//! `Sender::commit` acts and is the only writer. [`Blocked`] says which gate was shut. Each gate is a file of its
//! own that takes values and returns a value; none knows the connection.

pub(crate) mod autocork;
mod blocked;
pub(crate) mod emit;
pub(crate) mod nagle;
pub(crate) mod notsent_lowat;
pub(crate) mod pacing;
pub(crate) mod sndbuf;
pub(crate) mod tso_autosize;
pub(crate) mod tso_defer;
pub(crate) mod tsq;
pub(crate) mod write_queue;

use core::ops::Range;

pub use blocked::Blocked;
pub(crate) use blocked::Gate;

use crate::buffers::BufferPool;
use crate::config::StackConfig;
use crate::congestion::Congestion;
use crate::conn::options::WriteFlags;
use crate::link::LinkCaps;
use crate::recovery::{CaState, Recovery, SendKind};
use crate::units::{Duration, Instant};
use autocork::Autocork;
use nagle::Nagle;
use notsent_lowat::Room;
use pacing::Pacing;
use sndbuf::SendBuffer;
use tso_autosize::Autosize;
use tso_defer::Defer;
use tsq::SmallQueue;
use write_queue::WriteQueue;

/// What surrounds a decision: everything that is not the connection's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) link: &'a LinkCaps,
    pub(crate) config: &'a StackConfig,
    /// Payload bytes a segment can hold now, all options of this moment counted.
    pub(crate) mss: u32,
}

/// The peer's window (RFC 9293 §3.3.1: SND.WND, SND.WL1, SND.WL2).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeerWindow {
    /// Bytes from `una` on.
    pub(crate) bytes: u32,
    /// The largest the peer ever offered.
    pub(crate) max: u32,
    /// Sequence number of the segment that last changed it.
    pub(crate) changed_by_seq: u64,
}

/// One transmission, decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Sequence space, FIN included.
    pub(crate) range: Range<u64>,
    /// Bytes of it that are data.
    pub(crate) payload: u32,
    pub(crate) fin: bool,
    pub(crate) psh: bool,
    /// Segment size of the super-packet.
    pub(crate) mss: u32,
    pub(crate) kind: SendKind,
}

impl Plan {
    /// Segments on the wire.
    pub(crate) fn segs(&self) -> u32 {
        self.payload.div_ceil(self.mss.max(1)).max(1)
    }
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
    pushed: u64,
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
    /// The next packet may be smaller than a segment, so as to fit the peer's window.
    pub(crate) squeeze: bool,
    /// Which gate was shut when it was last asked for a packet.
    pub(crate) blocked: Gate,
    /// Bytes per second, by the latest sample.
    pub(crate) delivery_rate: u64,
    pub(crate) data_segs_out: u64,
    pub(crate) bytes_retrans: u64,
}

impl Sender {
    /// A sender whose first data byte has position `first`.
    pub(crate) fn new(
        now: Instant,
        first: u64,
        sack: bool,
        congestion: Congestion,
        config: &StackConfig,
    ) -> Self {
        Self {
            queue: WriteQueue::new(first),
            recovery: Recovery::new(now, first, sack),
            congestion,
            nxt: first,
            pushed: first,
            window: PeerWindow::default(),
            nagle: Nagle::default(),
            pacing: Pacing::new(pacing::UNLIMITED),
            small_queue: SmallQueue::default(),
            buffer: SendBuffer::new(config.tcp_wmem.initial),
            lowat: 0,
            fin_queued: false,
            probe_due: false,
            squeeze: false,
            blocked: Gate::NoData,
            delivery_rate: 0,
            data_segs_out: 0,
            bytes_retrans: 0,
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
    fn window_room(&self) -> u32 {
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
    pub(crate) fn size_goal(&self, cx: &Context<'_>) -> u32 {
        tso_autosize::size_goal(cx.mss, cx.link.gso_max_bytes, cx.link.gso_max_segs, self.window.max)
    }

    /// Bytes held by the send side at `size_goal`, for the limits of [`notsent_lowat`].
    pub(crate) fn room(&self, size_goal: u32, config: &StackConfig) -> Room {
        let unsent = self.unsent();
        let buffers = unsent.div_ceil(u64::from(size_goal.max(1))) + self.recovery.records() as u64;
        let queued = self.queue.len() + buffers * u64::from(tsq::OVERHEAD);
        Room {
            queued: u32::try_from(queued).unwrap_or(u32::MAX),
            sndbuf: self.buffer.limit,
            unsent,
            lowat: if self.lowat == 0 { config.tcp_notsent_lowat } else { self.lowat },
        }
    }

    /// Takes as much of `data` as there is room for, and returns how much that was. Follow with
    /// [`push`](Self::push).
    ///
    /// Data is appended to the tail buffer while that is short of the size goal, whatever the limits say; only a new
    /// buffer asks for room.
    pub(crate) fn write(
        &mut self,
        cx: &Context<'_>,
        data: &[u8],
        flags: WriteFlags,
        pool: &mut BufferPool,
    ) -> usize {
        self.note_app_limited(cx);
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
        taken
    }

    /// The end of a write: marks PSH and decides whether the tail may go now.
    ///
    /// # Errors
    ///
    /// [`Blocked::Autocork`] when a completion is to come first.
    pub(crate) fn push(&mut self, cx: &Context<'_>) -> Result<(), Blocked> {
        if !self.nagle.more {
            self.pushed = self.queue.end();
        }
        let tail_start = self.queue.tail_start().max(self.nxt);
        let input = Autocork {
            enabled: cx.config.tcp_autocorking,
            tail_len: self.queue.end().saturating_sub(tail_start) as u32,
            size_goal: self.size_goal(cx),
            records: self.recovery.records(),
            outstanding: self.small_queue.outstanding(),
            tail_is_eor: self.queue.tail_has_eor(),
        };
        if autocork::holds(input) {
            self.small_queue.throttle();
            return Err(Blocked::Autocork);
        }
        Ok(())
    }

    /// The tail was held back long enough: it goes, as if its write were complete.
    pub(crate) fn release_tail(&mut self) {
        self.nagle.push = true;
        self.pushed = self.queue.end();
    }

    /// Delivery-rate samples taken while the application has too little to send say nothing about the path
    /// (draft-ietf-ccwg-bbr §4.1.2.4; asked, as in Linux, when a write begins).
    fn note_app_limited(&mut self, cx: &Context<'_>) {
        if self.unsent() < u64::from(cx.mss)
            && self.small_queue.outstanding() < tsq::truesize(1)
            && self.recovery.in_flight() < self.congestion.cwnd()
            && self.recovery.lost_out() <= self.recovery.retrans_out()
        {
            self.recovery.set_app_limited();
        }
    }

    fn autosized_segs(&self, cx: &Context<'_>) -> u32 {
        if let Some(bytes) = self.congestion.send_quantum() {
            return (bytes / cx.mss).clamp(1, u32::from(cx.link.gso_max_segs));
        }
        tso_autosize::segs(Autosize {
            pacing_rate: self.congestion.pacing_rate(),
            min_rtt: self.recovery.min_rtt(),
            mss: cx.mss,
            gso_max_bytes: cx.link.gso_max_bytes,
            gso_max_segs: cx.link.gso_max_segs,
            min_tso_segs: cx.config.tcp_min_tso_segs,
            tso_rtt_log: cx.config.tcp_tso_rtt_log,
        })
    }

    /// Remembers a refusal that only a completion can end.
    pub(crate) fn note_blocked(&mut self, cx: &Context<'_>, why: Blocked) {
        if why == Blocked::SmallQueue {
            self.small_queue.throttle();
        }
        let limited = why == Blocked::Cwnd
            || (why == Blocked::TsoDefer && self.recovery.in_flight() >= self.congestion.cwnd());
        self.congestion.note_limited(cx.now, self.recovery.packets_out(), self.nxt, self.una(), limited);
        if self.recovery.state() == CaState::Open && !self.buffer.nospace {
            self.congestion.restrain_unused(cx.now, self.recovery.rto(), cx.config);
        }
    }

    /// Acts on a plan: the packet is below TCP from now on. Returns its departure time and its truesize.
    pub(crate) fn commit(&mut self, cx: &Context<'_>, plan: &Plan) -> (Instant, u32) {
        let segs = plan.segs();
        if plan.kind == SendKind::New {
            self.nxt = plan.range.end;
            self.squeeze = false;
            self.nagle.note_sent(plan.payload, plan.mss, plan.range.start + u64::from(plan.payload));
        } else {
            self.bytes_retrans += u64::from(plan.payload);
        }
        self.data_segs_out += u64::from(segs);
        let truesize = tsq::truesize(plan.payload);
        self.small_queue.charge(truesize);
        let rate = self.congestion.pacing_rate();
        let departure = self.pacing.note_sent(cx.now, plan.payload, rate, self.data_segs_out);
        self.recovery.on_transmit(
            departure,
            plan.range.clone(),
            plan.mss,
            plan.kind,
            &self.congestion,
            cx.config,
        );
        (departure, truesize)
    }

    /// Takes back what the device refused at once: as if [`commit`](Self::commit) had never happened, but for the
    /// departure time, which nobody can have seen. Returns how many segments that were.
    pub(crate) fn revoke(&mut self, range: Range<u64>, truesize: u32, kind: SendKind, mss: u32) -> u32 {
        let _ = self.small_queue.release(truesize);
        let payload = truesize.saturating_sub(tsq::OVERHEAD);
        let segs = payload.div_ceil(mss.max(1)).max(1);
        if kind != SendKind::New {
            self.bytes_retrans -= u64::from(payload);
        } else if self.nxt == range.end {
            self.nxt = range.start;
        }
        self.data_segs_out -= u64::from(segs);
        self.recovery.on_refused(&range, kind);
        segs
    }
}

/// What to send next, or why nothing.
///
/// # Errors
///
/// The first gate that is shut.
pub(crate) fn plan(s: &Sender, cx: &Context<'_>) -> Result<Plan, Blocked> {
    match plan_retransmit(s, cx) {
        // Lost data goes before new data (RFC 6675 §5).
        Some(decided) => decided,
        None => plan_new(s, cx),
    }
}

/// The gates for new data, in Linux's order (6.12, `tcp_write_xmit`).
fn plan_new(s: &Sender, cx: &Context<'_>) -> Result<Plan, Blocked> {
    if !s.has_unsent() {
        return Err(Blocked::NoData);
    }
    // ① Not before its time.
    s.pacing.gate(cx.now)?;
    // ② Not more than the network is thought to hold.
    let quota = cwnd_quota(s)?.min(s.autosized_segs(cx));
    // ③ The candidate: the bytes up to the end of the record. They are contiguous, so it need not grow.
    let start = s.nxt;
    let data_end = s.queue.end();
    let record_end = s.queue.next_eor_after(start).unwrap_or(data_end).min(data_end);
    let len = record_end.saturating_sub(start) as u32;
    let is_tail = record_end == data_end;
    let fin = is_tail && s.fin_queued;
    // ④ Not beyond the peer's window.
    let window = s.window_room();
    let least = if s.squeeze { 1 } else { len.min(cx.mss).max(1) };
    if window < least {
        return Err(Blocked::PeerWindow);
    }
    // ⑤ Not a partial segment that should wait, nor a super-packet that will soon be bigger.
    if len <= cx.mss {
        if len < cx.mss && is_tail && !fin {
            s.nagle.gate(s.una(), s.nxt)?;
        }
    } else if !s.nagle.push && !s.probe_due {
        tso_defer::gate(defer_input(s, cx, len, is_tail, window))?;
    }
    // ⑥ Cut.
    let payload = split_point(s, cx, len, is_tail && !fin, window, quota);
    // ⑦ Not more below TCP than keeps the device busy.
    let cap = cx.config.tcp_limit_output_bytes;
    let rate = s.congestion.pacing_rate();
    let limit = tsq::limit(tsq::truesize(payload), rate, tsq::PACING_SHIFT, cap, false);
    tsq::gate(s.small_queue.outstanding(), limit, s.recovery.records())?;

    let end = start + u64::from(payload);
    let fin = fin && end == data_end && s.window_end() > end;
    let psh = payload > cx.mss || (start < s.pushed && s.pushed <= end);
    let range = start..end + u64::from(fin);
    Ok(Plan { range, payload, fin, psh, mss: cx.mss, kind: SendKind::New })
}

/// Segments that the congestion window allows now: at most half of it at once, so that two bursts a window keep the
/// ACK clock running.
fn cwnd_quota(s: &Sender) -> Result<u32, Blocked> {
    if s.probe_due {
        return Ok(1);
    }
    let cwnd = s.congestion.cwnd();
    let in_flight = s.recovery.in_flight();
    if in_flight >= cwnd {
        return Err(Blocked::Cwnd);
    }
    Ok((cwnd / 2).max(1).min(cwnd - in_flight))
}

/// Where to cut a candidate of `len` bytes.
fn split_point(s: &Sender, cx: &Context<'_>, len: u32, tail: bool, window: u32, quota: u32) -> u32 {
    let most = cx.mss.saturating_mul(quota);
    let needed = len.min(window);
    if most <= needed {
        return most;
    }
    let partial = needed % cx.mss;
    let withheld = tail && needed > partial && partial != 0 && s.nagle.gate(s.una(), s.nxt).is_err();
    // A window that cuts off a partial segment makes a silly one (RFC 9293 §3.8.6.2.1).
    let silly = needed < len && needed > partial;
    if withheld || silly { needed - partial } else { needed }
}

fn defer_input(s: &Sender, cx: &Context<'_>, len: u32, tail: bool, window: u32) -> Defer {
    let cwnd_bytes = s.congestion.cwnd().saturating_mul(cx.mss);
    let in_flight_bytes = s.recovery.in_flight().saturating_mul(cx.mss);
    Defer {
        now: cx.now,
        last_departure: s.pacing.next_departure(),
        recovering: matches!(s.recovery.state(), CaState::Recovery | CaState::Loss),
        len,
        tail,
        ends: s.fin_queued || s.queue.tail_has_eor(),
        send_window: window,
        cong_window: cwnd_bytes.saturating_sub(in_flight_bytes),
        whole_window: s.window.bytes.min(cwnd_bytes),
        mss: cx.mss,
        segs: s.autosized_segs(cx),
        divisor: cx.config.tcp_tso_win_divisor,
        head_departure: s.recovery.head_sent_at(),
        srtt: s.recovery.srtt().unwrap_or(Duration::ZERO),
    }
}

/// The gates for a retransmission: fewer, since it is wanted now. `None` when nothing is to be resent.
fn plan_retransmit(s: &Sender, cx: &Context<'_>) -> Option<Result<Plan, Blocked>> {
    let segs = s.autosized_segs(cx);
    let range = if s.probe_due && !s.has_unsent() {
        s.recovery.probe_range(cx.mss)?
    } else {
        s.recovery.next_retransmit(s.congestion.cwnd(), segs, s.window_end())?
    };
    // The head's retransmission after a timeout is never held back.
    let urgent = s.probe_due || (s.recovery.state() == CaState::Loss && s.recovery.retrans_out() == 0);
    if !urgent && let Err(why) = s.pacing.gate(cx.now) {
        return Some(Err(why));
    }
    // Its original has not even left this host.
    if s.recovery.in_device(&range) {
        return Some(Err(Blocked::SmallQueue));
    }
    let fin = s.fin_queued && range.end == s.end();
    let payload = (range.end - range.start - u64::from(fin)) as u32;
    let cap = cx.config.tcp_limit_output_bytes;
    let rate = s.congestion.pacing_rate();
    let limit = tsq::limit(tsq::truesize(payload), rate, tsq::PACING_SHIFT, cap, true);
    if let Err(why) = tsq::gate(s.small_queue.outstanding(), limit, s.recovery.records()) {
        return Some(Err(why));
    }
    let kind = if s.probe_due { SendKind::Probe } else { SendKind::Retransmit };
    let psh = payload > cx.mss || range.end >= s.pushed;
    Some(Ok(Plan { range, payload, fin, psh, mss: cx.mss, kind }))
}

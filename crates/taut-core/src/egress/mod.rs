//! The send path: app → write queue → segment → pacing → small queue → device.
//!
//! `plan` decides and changes nothing: it is one list of gates, in the order in which Linux asks them.
//! `Sender::commit` acts and is the only writer. [`Blocked`] says which gate was shut. Each gate is a file of its
//! own that takes values and returns a value; none knows the connection. The page of each file is a short course on its
//! mechanism: the problem, the rule, its numbers, what went wrong before.
//!
//! | asked | gate | shut when |
//! |---|---|---|
//! | at a write | [`notsent_lowat`], [`sndbuf`] | enough is unsent, or the send buffer is full |
//! | at a write's end | [`autocork`] | the tail is small and a completion will send it |
//! | ① | [`pacing`] | it is not yet time |
//! | ② | congestion window | the network holds as much as it can; half of the window goes at once at most |
//! | ③ | [`tso_autosize`] | (sizes the packet) |
//! | ④ | peer's window | the next segment does not fit |
//! | ⑤ | [`nagle`], [`tso_defer`] | a partial segment should wait, or a super-packet will soon be bigger |
//! | ⑥ | | (cuts the packet) |
//! | ⑦ | [`tsq`] | enough is below TCP |

pub mod autocork;
pub mod blocked;
pub mod chrono;
pub(crate) mod emit;
pub mod ledger;
pub mod nagle;
pub mod notsent_lowat;
pub mod pacing;
pub mod sndbuf;
pub mod tso_autosize;
pub mod tso_defer;
pub mod tsq;
pub mod write_queue;

use alloc::boxed::Box;
use core::ops::Range;

pub use autocork::AutocorkMode;
pub use blocked::Blocked;
pub(crate) use blocked::Gate;
pub(crate) use ledger::{Ledger, Queue};
pub use notsent_lowat::LowatMode;
pub use pacing::PacingMode;
pub use tso_autosize::AutosizeMode;
pub use tsq::TsqMode;

use crate::buffers::BufferPool;
use crate::config::StackConfig;
use crate::congestion::Congestion;
use crate::conn::options::WriteFlags;
use crate::link::LinkCaps;
use crate::recovery::{CaState, Recovery, SendKind};
use crate::report::Totals;
use crate::units::{Duration, Instant};
use autocork::Autocork;
use chrono::Kind;
use nagle::Nagle;
use notsent_lowat::Room;
use pacing::{Pacing, Status};
use sndbuf::SendBuffer;
use tso_autosize::Autosize;
use tso_defer::{Defer, Limited};
use tsq::{Limit, Pass, SmallQueue};
use write_queue::WriteQueue;

/// What surrounds a decision: everything that is not the connection's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) link: &'a LinkCaps,
    pub(crate) config: &'a StackConfig,
    /// Payload bytes a segment can hold now, all options of this moment counted.
    pub(crate) mss: u32,
    /// TCP_TX_DELAY in microseconds: packets depart this much later.
    pub(crate) tx_delay_us: u32,
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
    /// Over the small queue's limit, and let through all the same.
    pub(crate) exempt: bool,
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
    /// The congestion control asks for pacing, or a maximum rate was set; never unwanted again.
    pub(crate) pacing_wanted: bool,
    /// The next packet may be smaller than a segment, so as to fit the peer's window.
    pub(crate) squeeze: bool,
    /// Which gate was shut when it was last asked for a packet.
    pub(crate) blocked: Gate,
    /// Something was sent since that was last noted.
    sent: bool,
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
            pacing: Pacing::new(),
            small_queue: SmallQueue::default(),
            buffer: SendBuffer::new(config.tcp_wmem.initial),
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
        let goal =
            tso_autosize::size_goal(cx.mss, cx.link.gso_max_bytes, cx.link.gso_max_segs, self.window.max);
        match cx.config.autosizing {
            AutosizeMode::AtWrite => goal.min(self.rate_sized_segs(cx).saturating_mul(cx.mss)),
            AutosizeMode::Off | AutosizeMode::AtTransmit => goal,
        }
    }

    /// Who spaces this connection's packets.
    fn pacing_status(&self, cx: &Context<'_>) -> Status {
        cx.config.pacing.status(self.pacing_wanted, cx.link.paces)
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
        cx: &Context<'_>,
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
    pub(crate) fn push(&mut self, cx: &Context<'_>) -> Push {
        if !self.nagle.more {
            self.pushed = self.queue.end();
        }
        let tail_start = self.queue.tail_start().max(self.nxt);
        let input = Autocork {
            mode: if cx.config.tcp_autocorking { cx.config.autocork } else { AutocorkMode::Off },
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
    fn note_app_limited(&mut self, cx: &Context<'_>) {
        if self.unsent() < u64::from(cx.mss)
            && self.small_queue.outstanding() < tsq::truesize(1)
            && self.recovery.in_flight() < self.congestion.cwnd()
            && self.recovery.lost_out() <= self.recovery.retrans_out()
        {
            self.recovery.set_app_limited();
        }
    }

    /// Segments of the next super-packet, by the rule in force.
    fn autosized_segs(&self, cx: &Context<'_>) -> u32 {
        let device_max = u32::from(cx.link.gso_max_segs);
        let segs = match (cx.config.autosizing, self.congestion.send_quantum()) {
            (AutosizeMode::AtTransmit, Some(bytes)) => (bytes / cx.mss).clamp(1, device_max),
            (AutosizeMode::AtTransmit, None) => self.rate_sized_segs(cx),
            (AutosizeMode::Off | AutosizeMode::AtWrite, _) => {
                (tso_autosize::gso_payload_max(cx.link.gso_max_bytes) / cx.mss).min(device_max).max(1)
            }
        };
        segs.min((cx.config.tsq.super_packet_max() / cx.mss).max(1))
    }

    /// Segments of a millisecond of the pacing rate, and more on a short path.
    fn rate_sized_segs(&self, cx: &Context<'_>) -> u32 {
        tso_autosize::segs(Autosize {
            pacing_rate: self.congestion.pacing_rate(),
            min_rtt: self.recovery.min_rtt(),
            mss: cx.mss,
            gso_max_bytes: cx.link.gso_max_bytes,
            gso_max_segs: cx.link.gso_max_segs,
            shift: cx.link.pacing_shift,
            min_tso_segs: cx.config.tcp_min_tso_segs,
            tso_rtt_log: cx.config.tcp_tso_rtt_log,
        })
    }

    /// The limit of the small queue for a packet of `payload` bytes.
    fn small_queue_limit(&self, cx: &Context<'_>, payload: u32, retransmit: bool) -> u64 {
        tsq::limit(Limit {
            mode: cx.config.tsq,
            candidate: tsq::truesize(payload),
            pacing_rate: self.congestion.pacing_rate(),
            shift: cx.link.pacing_shift,
            tx_delay_us: cx.tx_delay_us,
            cap: cx.config.tcp_limit_output_bytes,
            retransmit,
        })
    }

    /// Nothing more can be sent now, because of `why`: remembers what is to be done when that ends, and what that says
    /// of the windows. Returns whether the connection begins to wait for a completion.
    pub(crate) fn note_blocked(&mut self, cx: &Context<'_>, why: Blocked, totals: &mut Totals) -> bool {
        // What was said with one write holds for one attempt.
        self.nagle.more = false;
        let throttled = why == Blocked::SmallQueue && self.small_queue.throttle();
        let deferred_by = (why == Blocked::TsoDefer).then(|| {
            let candidate = Candidate::of(self, cx);
            self.deferral(cx, candidate, self.autosized_segs(cx)).limited_by()
        });
        let cwnd_limited = why == Blocked::Cwnd
            || deferred_by == Some(Limited::Cwnd)
            || self.recovery.in_flight() >= self.congestion.cwnd();
        let sent = core::mem::take(&mut self.sent);
        if sent || cwnd_limited {
            let packets_out = self.recovery.packets_out();
            self.congestion.note_limited(cx.now, packets_out, self.nxt, self.una(), cwnd_limited);
            if self.recovery.state() == CaState::Open && !self.buffer.nospace {
                self.congestion.restrain_unused(cx.now, self.recovery.rto(), cx.config);
            }
        }
        self.blocked = why.gate();
        let Some(ledger) = &mut self.ledger else { return throttled };
        ledger.on_gate(cx.now, why.gate(), totals);
        if why == Blocked::PeerWindow || deferred_by == Some(Limited::PeerWindow) {
            ledger.chrono.start(cx.now, Kind::PeerWindow);
        } else {
            ledger.chrono.stop(cx.now, Kind::PeerWindow, false);
        }
        if why == Blocked::NoData && sent && !cwnd_limited && self.buffer.nospace {
            ledger.chrono.start(cx.now, Kind::SendBuffer);
        }
        throttled
    }

    /// The tail is held by `gate` although nobody asked for a packet, or the device would not take one.
    pub(crate) fn note_held(&mut self, now: Instant, gate: Gate, totals: &mut Totals) {
        self.blocked = gate;
        if let Some(ledger) = &mut self.ledger {
            ledger.on_gate(now, gate, totals);
        }
    }

    /// Whether anything was sent since a gate was last found shut.
    pub(crate) const fn has_sent(&self) -> bool {
        self.sent
    }

    /// A sample of the delivery rate, in bytes per second. One that the application limited counts only if it is higher:
    /// the path can do at least that.
    pub(crate) fn note_delivery_rate(&mut self, rate: u64, app_limited: bool) {
        if let Some(ledger) = &mut self.ledger
            && (!app_limited || rate > ledger.delivery_rate)
        {
            ledger.delivery_rate = rate;
            ledger.app_limited = app_limited;
        }
    }

    /// The application that was refused has room again.
    pub(crate) fn note_space(&mut self, now: Instant) {
        if let Some(ledger) = &mut self.ledger {
            ledger.chrono.stop(now, Kind::SendBuffer, false);
        }
    }

    /// `una` moved.
    pub(crate) fn note_acked(&mut self, now: Instant, totals: &mut Totals) {
        let una = self.una();
        let empty = una == self.end();
        let Some(ledger) = &mut self.ledger else { return };
        ledger.on_acked(now, una, totals);
        if let Some(sent_at) = self.recovery.head_sent_at() {
            ledger.time_head(una, sent_at);
        }
        if empty {
            ledger.chrono.stop(now, Kind::Busy, true);
        }
    }

    /// A ticket came back. Returns whether the connection is to be resumed.
    pub(crate) fn note_completed(
        &mut self,
        now: Instant,
        truesize: u32,
        handed: Instant,
        totals: &mut Totals,
    ) -> bool {
        if truesize > tsq::ACK_TRUESIZE
            && let Some(ledger) = &mut self.ledger
        {
            ledger.on_completed(now, handed, truesize - tsq::OVERHEAD, totals);
        }
        self.small_queue.release(truesize)
    }

    /// Acts on a plan: the packet is below TCP from now on. Returns when it leaves the host and its truesize.
    pub(crate) fn commit(&mut self, cx: &Context<'_>, plan: &Plan, totals: &mut Totals) -> (Instant, u32) {
        let segs = plan.segs();
        if let Some(ledger) = &mut self.ledger {
            ledger.on_handed(cx.now, plan.payload);
            if plan.kind == SendKind::New {
                ledger.on_sent(cx.now, plan.range.start, plan.range.end, totals);
            }
        }
        if plan.kind == SendKind::New {
            self.nxt = plan.range.end;
            self.squeeze = false;
            self.nagle.note_sent(plan.payload, plan.mss, plan.range.start + u64::from(plan.payload));
        } else if let Some(ledger) = &mut self.ledger {
            ledger.bytes_retrans += u64::from(plan.payload);
        }
        self.sent = true;
        self.data_segs_out = self.data_segs_out.wrapping_add(segs);
        self.segs_out = self.segs_out.wrapping_add(segs);
        let truesize = tsq::truesize(plan.payload);
        self.small_queue.charge(truesize);
        let rate = self.congestion.pacing_rate();
        let status = self.pacing_status(cx);
        let departure = self.pacing.note_sent(status, cx.now, plan.payload, rate, self.data_segs_out);
        // Where nothing below waits, a packet that no gate held leaves now, whatever the clock of departures says.
        let leaves = match status {
            Status::Delegated => departure + Duration::from_micros(u64::from(cx.tx_delay_us)),
            Status::None | Status::Needed => cx.now,
        };
        self.recovery.on_transmit(
            leaves,
            plan.range.clone(),
            plan.mss,
            plan.kind,
            &self.congestion,
            cx.config,
        );
        (leaves, truesize)
    }

    /// Takes back what the device refused at once: as if [`commit`](Self::commit) had never happened. Returns how many
    /// segments that were.
    pub(crate) fn revoke(
        &mut self,
        now: Instant,
        range: Range<u64>,
        truesize: u32,
        kind: SendKind,
        mss: u32,
        prior_departure: Instant,
    ) -> u32 {
        self.pacing.restore(prior_departure);
        let _ = self.small_queue.release(truesize);
        let payload = truesize.saturating_sub(tsq::OVERHEAD);
        let segs = payload.div_ceil(mss.max(1)).max(1);
        if kind == SendKind::New && self.nxt == range.end {
            self.nxt = range.start;
        }
        if let Some(ledger) = &mut self.ledger {
            ledger.on_refused(payload);
            match kind {
                SendKind::New => ledger.on_unsent(now, range.start),
                SendKind::Retransmit | SendKind::Probe => ledger.bytes_retrans -= u64::from(payload),
            }
        }
        self.data_segs_out = self.data_segs_out.wrapping_sub(segs);
        self.segs_out = self.segs_out.wrapping_sub(segs);
        self.recovery.on_refused(&range, kind);
        segs
    }
}

/// Whether the end of a write starts a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Push {
    /// Yes.
    Go,
    /// A completion will. `throttled`: nobody waited for one already.
    Held { throttled: bool },
}

/// What to send next, or why nothing.
///
/// # Errors
///
/// The first gate that is shut.
pub(crate) fn plan(s: &Sender, cx: &Context<'_>) -> Result<Plan, Blocked> {
    match plan_retransmit(s, cx) {
        // What waits for its own copy to leave the host does not hold up what is new; a completion is awaited all the same.
        Some(Err(Blocked::SmallQueue)) => plan_new(s, cx).map_err(|_| Blocked::SmallQueue),
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
    s.pacing.gate(s.pacing_status(cx), cx.now)?;
    // ② Not more than the network is thought to hold.
    let quota = cwnd_quota(s)?;
    let segs = s.autosized_segs(cx);
    // ③ The candidate: a record, or all there is.
    let candidate = Candidate::of(s, cx);
    let Candidate { len, is_tail, fin, .. } = candidate;
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
    } else if !s.probe_due {
        tso_defer::gate(s.deferral(cx, candidate, segs))?;
    }
    // ⑥ Cut.
    let payload = split_point(s, cx, len, is_tail && !fin, window, quota.min(segs));
    // ⑦ Not more below TCP than keeps the device busy.
    let limit = s.small_queue_limit(cx, payload, false);
    let pass = tsq::gate(cx.config.tsq, s.small_queue.outstanding(), limit, s.recovery.records())?;

    let start = s.nxt;
    let end = start + u64::from(payload);
    let fin = fin && end == s.queue.end() && s.window_end() > end;
    let psh = payload > cx.mss || (start < s.pushed && s.pushed <= end);
    let range = start..end + u64::from(fin);
    let exempt = pass == Pass::Exempt;
    Ok(Plan { range, payload, fin, psh, mss: cx.mss, kind: SendKind::New, exempt })
}

/// The bytes that the next packet is cut from. They are contiguous, so they need not be joined first.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// Bytes from `nxt` on, up to the end of the record.
    len: u32,
    /// They reach the end of what was written.
    is_tail: bool,
    /// FIN follows them.
    fin: bool,
}

impl Candidate {
    fn of(s: &Sender, cx: &Context<'_>) -> Self {
        let data_end = s.queue.end();
        let mut end = s.queue.next_eor_after(s.nxt).unwrap_or(data_end).min(data_end);
        if cx.config.autosizing == AutosizeMode::AtWrite {
            end = s.queue.next_cut_after(s.nxt).unwrap_or(end).min(end);
        }
        let is_tail = end == data_end;
        let len = end.saturating_sub(s.nxt).min(u64::from(u32::MAX)) as u32;
        Self { len, is_tail, fin: is_tail && s.fin_queued }
    }
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

impl Sender {
    /// What decides whether a super-packet waits for the next ACK.
    fn deferral(&self, cx: &Context<'_>, candidate: Candidate, segs: u32) -> Defer {
        let cwnd_bytes = self.congestion.cwnd().saturating_mul(cx.mss);
        let in_flight_bytes = self.recovery.in_flight().saturating_mul(cx.mss);
        Defer {
            now: cx.now,
            last_departure: self.pacing.next_departure(),
            recovering: matches!(self.recovery.state(), CaState::Recovery | CaState::Loss),
            len: candidate.len,
            tail: candidate.is_tail,
            ends: self.fin_queued || self.queue.tail_has_eor(),
            send_window: self.window_room(),
            cong_window: cwnd_bytes.saturating_sub(in_flight_bytes),
            whole_window: self.window.bytes.min(cwnd_bytes),
            mss: cx.mss,
            segs,
            divisor: cx.config.tcp_tso_win_divisor,
            head_departure: self.recovery.head_sent_at(),
            srtt: self.recovery.srtt().unwrap_or(Duration::ZERO),
        }
    }

    /// What is to be sent again next, if anything.
    fn wanted_again(&self, cx: &Context<'_>) -> Option<Range<u64>> {
        if self.probe_due && !self.has_unsent() {
            self.recovery.probe_range(cx.mss)
        } else {
            let segs = self.autosized_segs(cx);
            self.recovery.next_retransmit(self.congestion.cwnd(), segs, self.window_end())
        }
    }

    /// Whether something is wanted again of which a copy has not even left this host.
    pub(crate) fn waits_for_own_copy(&self, cx: &Context<'_>) -> bool {
        self.wanted_again(cx).is_some_and(|range| self.recovery.in_device(&range))
    }
}

/// The gates for a retransmission: fewer, since it is wanted now. `None` when nothing is to be resent.
fn plan_retransmit(s: &Sender, cx: &Context<'_>) -> Option<Result<Plan, Blocked>> {
    let range = s.wanted_again(cx)?;
    let fin = s.fin_queued && range.end == s.end();
    let payload = (range.end - range.start - u64::from(fin)) as u32;
    // A probe, and the head after a timeout, are late already: they wait for nothing but their own copy.
    let head_due = s.recovery.timeouts() > 0 && s.recovery.retrans_out() == 0;
    let urgent = s.probe_due || (s.recovery.is_in_loss() && head_due);
    let mut exempt = false;
    if !urgent {
        let limit = s.small_queue_limit(cx, payload, true);
        let outstanding = s.small_queue.outstanding();
        let gates = s
            .pacing
            .gate(s.pacing_status(cx), cx.now)
            .and_then(|()| tsq::gate(cx.config.tsq, outstanding, limit, s.recovery.records()));
        match gates {
            Ok(pass) => exempt = pass == Pass::Exempt,
            Err(why) => return Some(Err(why)),
        }
    }
    if s.recovery.in_device(&range) {
        return Some(Err(Blocked::SmallQueue));
    }
    let kind = if s.probe_due { SendKind::Probe } else { SendKind::Retransmit };
    let psh = payload > cx.mss || range.end >= s.pushed;
    Some(Ok(Plan { range, payload, fin, psh, mss: cx.mss, kind, exempt }))
}

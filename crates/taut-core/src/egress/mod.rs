//! The send path: app → write queue → segment → pacing → small queue → device.
//!
//! `plan` decides and changes nothing: it is one list of gates, in the order in which Linux asks them.
//! `Sender::commit` (`commit.rs`) acts and is the only writer; `sender.rs` is the state they work on. [`Blocked`] says which gate was shut. Each gate is a file of its
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
//! | | `path_mtu` | (a larger segment goes now and then, to see whether it arrives) |
//! | ④ | peer's window | the next segment does not fit |
//! | ⑤ | [`nagle`], [`tso_defer`] | a partial segment should wait, or a super-packet will soon be bigger |
//! | ⑥ | | (cuts the packet) |
//! | ⑦ | [`tsq`] | enough is below TCP |

pub(crate) mod autocork;
pub(crate) mod blocked;
pub(crate) mod chrono;
mod commit;
mod config;
pub(crate) mod emit;
pub(crate) mod ledger;
pub(crate) mod nagle;
pub(crate) mod notsent_lowat;
pub(crate) mod pacing;
pub(crate) mod path_mtu;
mod sender;
pub(crate) mod sndbuf;
pub(crate) mod tso_autosize;
pub(crate) mod tso_defer;
pub(crate) mod tsq;
pub(crate) mod write_queue;

use core::ops::Range;

pub use autocork::AutocorkMode;
pub use blocked::Blocked;
pub(crate) use blocked::Gate;
pub use config::{MtuConfig, MtuProbing, SendConfig};
pub(crate) use ledger::{Ledger, Queue, Totals};
pub use notsent_lowat::LowatMode;
pub use pacing::PacingMode;
pub(crate) use sender::{Push, Sender};
pub use tso_autosize::AutosizeMode;
pub use tsq::TsqMode;

use crate::congestion::CongestionConfig;
use crate::recovery::{CaState, RecoveryConfig};
use crate::words::{Duration, Instant, LinkCaps, SendKind};
use path_mtu::{Decision, PathMtu, View};
use tso_autosize::Autosize;
use tso_defer::Defer;
use tsq::{Limit, Pass};

/// What surrounds a decision: everything that is not the connection's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendCx<'a> {
    pub(crate) now: Instant,
    pub(crate) link: &'a LinkCaps,
    pub(crate) config: &'a SendConfig,
    pub(crate) mtu: &'a MtuConfig,
    pub(crate) recovery: &'a RecoveryConfig,
    pub(crate) congestion: &'a CongestionConfig,
    /// Payload bytes a segment can hold now, all options of this moment counted.
    pub(crate) mss: u32,
    /// TCP_TX_DELAY in microseconds: packets depart this much later.
    pub(crate) tx_delay_us: u32,
    /// What is known of the path's MTU beyond the handshake.
    pub(crate) path: Option<PathMtu>,
    /// Packets hold one segment each: their flags would not survive being cut up.
    pub(crate) single: bool,
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
    /// One segment, larger than is known to fit.
    pub(crate) mtu_probe: bool,
    /// Over the small queue's limit, and let through all the same.
    pub(crate) exempt: bool,
}

impl Plan {
    /// Segments on the wire.
    pub(crate) fn segs(&self) -> u32 {
        self.payload.div_ceil(self.mss.max(1)).max(1)
    }
}

/// What to send next, or why nothing.
///
/// # Errors
///
/// The first gate that is shut.
pub(crate) fn plan(s: &Sender, cx: &SendCx<'_>) -> Result<Plan, Blocked> {
    // RFC 5682 §3.1 step 2.b: whether a timeout was needless shows by what new data brings back.
    if let Some(left) = s.recovery.prefers_new_data() {
        match plan_new(s, cx) {
            Err(
                Blocked::NoData | Blocked::SendBuffer | Blocked::PeerWindow | Blocked::Nagle | Blocked::Cork,
            ) if !left => {}
            decided => return decided,
        }
    }
    match plan_retransmit(s, cx) {
        // What waits for its own copy to leave the host does not hold up what is new; a completion is awaited all the same.
        Some(Err(Blocked::SmallQueue)) => plan_new(s, cx).map_err(|_| Blocked::SmallQueue),
        // Lost data goes before new data (RFC 6675 §5).
        Some(decided) => decided,
        None => plan_new(s, cx),
    }
}

/// The gates for new data, in Linux's order (6.12, `tcp_write_xmit`).
fn plan_new(s: &Sender, cx: &SendCx<'_>) -> Result<Plan, Blocked> {
    if !s.has_unsent() {
        return Err(if s.buffer.nospace { Blocked::SendBuffer } else { Blocked::NoData });
    }
    // ① Not before its time.
    s.pacing.gate(s.pacing_status(cx), cx.now)?;
    // ② Not more than the network is thought to hold.
    let quota = cwnd_quota(s)?;
    let segs = s.autosized_segs(cx);
    // ③ The candidate: a record, or all there is.
    let candidate = Candidate::of(s, cx);
    // Something larger than is known to fit, to see whether it arrives; or what the next gates leave.
    let probe = mtu_probe(s, cx, candidate.len)?;
    let (payload, mss) = match probe {
        Some(size) => (size, size),
        None => (cut(s, cx, candidate, segs, quota)?, cx.mss),
    };
    // ⑦ Not more below TCP than keeps the device busy.
    let limit = s.small_queue_limit(cx, payload, false);
    let pass = tsq::gate(cx.config.tsq, s.small_queue.outstanding(), limit, s.recovery.records())?;

    let start = s.nxt;
    let end = start + u64::from(payload);
    let fin = candidate.fin && end == s.queue.end() && s.window_end() > end;
    let psh = payload > mss || (start < s.pushed && s.pushed <= end);
    let range = start..end + u64::from(fin);
    let exempt = pass == Pass::Exempt;
    Ok(Plan { range, payload, fin, psh, mss, kind: SendKind::New, mtu_probe: probe.is_some(), exempt })
}

/// Gates ④ to ⑥: how much of the candidate may leave in segments of the usual size.
fn cut(s: &Sender, cx: &SendCx<'_>, candidate: Candidate, segs: u32, quota: u32) -> Result<u32, Blocked> {
    let Candidate { len, is_tail, fin } = candidate;
    // ④ Not beyond the peer's window.
    let window = s.window_room();
    let least = if s.squeeze { 1 } else { len.min(cx.mss).max(1) };
    if window < least {
        return Err(Blocked::PeerWindow);
    }
    // ⑤ Not a partial segment that should wait, nor a super-packet that will soon be bigger.
    if len <= cx.mss {
        // What is to bring an ACK does not wait for one (Linux: Nagle and cork are off for it).
        let asks = s.probe_due || s.recovery.prefers_new_data().is_some();
        if len < cx.mss && is_tail && !fin && !asks {
            s.nagle.gate(s.una(), s.nxt)?;
        }
    } else if !s.probe_due {
        tso_defer::gate(s.deferral(cx, candidate, segs))?;
    }
    // ⑥ Cut.
    Ok(split_point(s, cx, len, is_tail && !fin, window, quota.min(segs)))
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
    fn of(s: &Sender, cx: &SendCx<'_>) -> Self {
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

/// Size of a probe that is to leave now, if one is: Linux asks before it looks at the data, `tcp_mtu_probe`.
fn mtu_probe(s: &Sender, cx: &SendCx<'_>, len: u32) -> Result<Option<u32>, Blocked> {
    let Some(path) = cx.path.filter(|_| !s.probe_due) else { return Ok(None) };
    let view = View {
        mss: cx.mss,
        open: s.recovery.state() == CaState::Open,
        cwnd: s.congestion.cwnd(),
        in_flight: s.recovery.in_flight(),
        unsent: u64::from(len),
        window_room: s.window_room(),
        window: s.window.bytes,
    };
    match path.decide(cx.now, &view, cx.mtu) {
        Decision::No => Ok(None),
        Decision::WaitForCwnd => Err(Blocked::Cwnd),
        Decision::WaitForWindow => Err(Blocked::PeerWindow),
        Decision::Probe(size) => Ok(Some(size)),
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
fn split_point(s: &Sender, cx: &SendCx<'_>, len: u32, tail: bool, window: u32, quota: u32) -> u32 {
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
    /// Segments of the next super-packet, by the rule in force.
    fn autosized_segs(&self, cx: &SendCx<'_>) -> u32 {
        if cx.single {
            return 1;
        }
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
    fn rate_sized_segs(&self, cx: &SendCx<'_>) -> u32 {
        tso_autosize::segs(Autosize {
            pacing_rate: self.congestion.pacing_rate(),
            min_rtt: self.recovery.min_rtt(),
            mss: cx.mss,
            gso_max_bytes: cx.link.gso_max_bytes,
            gso_max_segs: cx.link.gso_max_segs,
            shift: cx.link.pacing_shift,
            min_tso_segs: cx.config.min_tso_segs,
            tso_rtt_log: cx.config.tso_rtt_log,
        })
    }

    /// The limit of the small queue for a packet of `payload` bytes.
    fn small_queue_limit(&self, cx: &SendCx<'_>, payload: u32, retransmit: bool) -> u64 {
        tsq::limit(Limit {
            mode: cx.config.tsq,
            candidate: tsq::truesize(payload),
            pacing_rate: self.congestion.pacing_rate(),
            shift: cx.link.pacing_shift,
            tx_delay_us: cx.tx_delay_us,
            cap: cx.config.limit_output_bytes,
            retransmit,
        })
    }

    /// What decides whether a super-packet waits for the next ACK.
    fn deferral(&self, cx: &SendCx<'_>, candidate: Candidate, segs: u32) -> Defer {
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
            divisor: cx.config.tso_win_divisor,
            head_departure: self.recovery.head_sent_at(),
            srtt: self.recovery.srtt().unwrap_or(Duration::ZERO),
        }
    }

    /// What is to be sent again next, if anything.
    fn wanted_again(&self, cx: &SendCx<'_>) -> Option<Range<u64>> {
        if self.probe_due && !self.has_unsent() {
            return self.recovery.probe_range(cx.mss);
        }
        // Asked for every packet: nothing is sized for a retransmission that there is not.
        if self.recovery.lost_out() == 0 {
            return None;
        }
        let segs = self.autosized_segs(cx);
        self.recovery.next_retransmit(self.congestion.cwnd(), segs, self.window_end())
    }

    /// Whether something is wanted again of which a copy has not even left this host.
    pub(crate) fn waits_for_own_copy(&self, cx: &SendCx<'_>) -> bool {
        self.wanted_again(cx).is_some_and(|range| self.recovery.in_device(&range))
    }
}

/// The gates for a retransmission: fewer, since it is wanted now. `None` when nothing is to be resent.
fn plan_retransmit(s: &Sender, cx: &SendCx<'_>) -> Option<Result<Plan, Blocked>> {
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
    Some(Ok(Plan { range, payload, fin, psh, mss: cx.mss, kind, mtu_probe: false, exempt }))
}

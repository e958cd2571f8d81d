//! The transmit decision: what to send next, or which gate is shut.
//! One list of gates in the order of Linux 6.12's `tcp_write_xmit`; called by [`Sender::next`] for every
//! packet.
//!
//! Nothing here changes state. The gates' inputs are computed in `inputs.rs`; each gate's rule is on its own
//! page.

use core::ops::Range;

use super::inputs::{Candidate, SendCx, cwnd_quota, mtu_probe, split_point};
use super::size::tso_defer;
use super::small_queue::Pass;
use super::{Blocked, Sender};
use crate::recovery::Mode;
use crate::words::SendKind;

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
    /// One segment, larger than any known to fit the path.
    pub(crate) mtu_probe: bool,
    /// Let through although the small queue's limit is reached.
    pub(crate) exempt: bool,
}

impl Plan {
    /// Segments on the wire.
    pub(crate) fn segs(&self) -> u32 {
        self.payload.div_ceil(self.mss.max(1)).max(1)
    }
}

/// What to send next, or why nothing may leave.
///
/// # Errors
///
/// The first gate that is shut.
pub(super) fn plan(s: &Sender, cx: &SendCx<'_>, mode: Mode) -> Result<Plan, Blocked> {
    match mode {
        Mode::Normal | Mode::NewDataOnly => plan_new(s, cx, mode),
        Mode::Repair | Mode::TailProbe => plan_repair(s, cx, mode),
        Mode::NewDataFirst => match plan_new(s, cx, mode) {
            // No new data could leave soon.
            Err(
                Blocked::NoData | Blocked::SendBuffer | Blocked::PeerWindow | Blocked::Nagle | Blocked::Cork,
            ) => plan_repair(s, cx, mode),
            decided => decided,
        },
    }
}

/// Lost data goes before new data (RFC 6675 §5).
fn plan_repair(s: &Sender, cx: &SendCx<'_>, mode: Mode) -> Result<Plan, Blocked> {
    match plan_retransmit(s, cx, mode) {
        // A retransmission that waits for its own copy to leave the host does not hold up new data; the
        // connection still waits for a completion.
        Some(Err(Blocked::SmallQueue)) => plan_new(s, cx, mode).map_err(|_| Blocked::SmallQueue),
        Some(decided) => decided,
        None => plan_new(s, cx, mode),
    }
}

/// The gates for new data, in Linux's order (6.12, `tcp_write_xmit`).
fn plan_new(s: &Sender, cx: &SendCx<'_>, mode: Mode) -> Result<Plan, Blocked> {
    if !s.has_unsent() {
        return Err(if s.buffer.nospace { Blocked::SendBuffer } else { Blocked::NoData });
    }
    // Not before its time.
    s.pacing.gate(s.pacing_status(cx), cx.now)?;
    // Not more than the network is thought to hold.
    let quota = cwnd_quota(s, mode)?;
    let segs = s.autosized_segs(cx);
    // The candidate: a record, or all there is.
    let candidate = Candidate::of(s, cx);
    // A probe larger than any segment known to fit, to see whether it arrives; or as much as the next gates
    // allow.
    let probe = match &cx.path {
        Some(path) if mode != Mode::TailProbe => mtu_probe(s, cx, path, candidate.len)?,
        _ => None,
    }
    .filter(|&size| s.in_pieces(s.nxt, size, size) == size);
    let (payload, mss) = match probe {
        Some(size) => (size, size),
        None => (s.in_pieces(s.nxt, cut(s, cx, mode, candidate, segs, quota)?, cx.mss), cx.mss),
    };
    // Not more below TCP than keeps the device busy.
    let pass = s.small_queue_gate(cx, payload, false)?;

    let start = s.nxt;
    let end = start + u64::from(payload);
    let fin = candidate.fin && end == s.queue.end() && s.window_end() > end;
    let psh = payload > mss || (start < s.pushed && s.pushed <= end) || s.queue.ends_record(end);
    let range = start..end + u64::from(fin);
    let exempt = pass == Pass::Exempt;
    Ok(Plan { range, payload, fin, psh, mss, kind: SendKind::New, mtu_probe: probe.is_some(), exempt })
}

/// How much of the candidate may leave in segments of the usual size.
fn cut(
    s: &Sender,
    cx: &SendCx<'_>,
    mode: Mode,
    candidate: Candidate,
    segs: u32,
    quota: u32,
) -> Result<u32, Blocked> {
    let Candidate { len, is_tail, fin } = candidate;
    // Not beyond the peer's window.
    let window = s.window_room();
    let least = if s.squeeze { 1 } else { len.min(cx.mss).max(1) };
    if window < least {
        return Err(Blocked::PeerWindow);
    }
    // Not a partial segment that should wait, nor a super-packet that will soon be bigger.
    if len <= cx.mss {
        // A packet that is sent to bring an ACK does not wait for one (Linux: Nagle and cork are off for it).
        if len < cx.mss && is_tail && !fin && !mode.asks_for_ack() {
            s.nagle.gate(s.una(), s.nxt)?;
        }
    } else if mode != Mode::TailProbe {
        tso_defer::gate(s.deferral(cx, candidate, segs))?;
    }
    // Cut.
    Ok(split_point(s, cx, len, is_tail && !fin, window, quota.min(segs)))
}

/// The gates for a retransmission: fewer, because it is urgent. `None` when there is nothing to retransmit.
fn plan_retransmit(s: &Sender, cx: &SendCx<'_>, mode: Mode) -> Option<Result<Plan, Blocked>> {
    let range = s.range_to_retransmit(cx, mode)?;
    let fin = s.fin_queued && range.end == s.end();
    let whole = (range.end - range.start - u64::from(fin)) as u32;
    let payload = s.in_pieces(range.start, whole, cx.mss);
    let fin = fin && payload == whole;
    let range = range.start..range.start + u64::from(payload) + u64::from(fin);
    // A probe and the head after a timeout are late already: they wait only for their own copy to leave the
    // host.
    let head_due = s.recovery.timeouts() > 0 && s.recovery.retrans_out() == 0;
    let urgent = mode == Mode::TailProbe || (s.recovery.is_in_loss() && head_due);
    let mut exempt = false;
    if !urgent {
        let gates =
            s.pacing.gate(s.pacing_status(cx), cx.now).and_then(|()| s.small_queue_gate(cx, payload, true));
        match gates {
            Ok(pass) => exempt = pass == Pass::Exempt,
            Err(why) => return Some(Err(why)),
        }
    }
    if s.recovery.in_device(&range) {
        return Some(Err(Blocked::SmallQueue));
    }
    let kind = if mode == Mode::TailProbe { SendKind::TailProbe } else { SendKind::Retransmit };
    let data_end = range.start + u64::from(payload);
    let psh = payload > cx.mss || (payload > 0 && (data_end >= s.pushed || s.queue.ends_record(data_end)));
    Some(Ok(Plan { range, payload, fin, psh, mss: cx.mss, kind, mtu_probe: false, exempt }))
}

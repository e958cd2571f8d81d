//! The inputs of the gates in `plan`: the candidate, its size, its limits.
//! Values only, computed from the [`Sender`] and the context of the decision; called by `plan.rs`.

use core::ops::Range;

use super::config::{MtuConfig, SendConfig};
use super::size::path_mtu::{Decision, PathMtu, View};
use super::size::tso_autosize::{self, Autosize};
use super::size::tso_defer::Defer;
use super::small_queue::{self, Ask, Device, Limit, Pass};
use super::{AutosizeMode, Blocked, Sender};
use crate::buffers::{BufferTuning, Spare};
use crate::congestion::CongestionConfig;
use crate::recovery::{CaState, Mode, RecoveryConfig};
use crate::words::{Duration, Instant, LinkCaps};

/// The context of a decision: everything that does not belong to the sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendCx<'a> {
    pub(crate) now: Instant,
    pub(crate) link: &'a LinkCaps,
    pub(crate) config: &'a SendConfig,
    pub(crate) mtu: &'a MtuConfig,
    pub(crate) buffers: BufferTuning,
    pub(crate) recovery: &'a RecoveryConfig,
    pub(crate) congestion: &'a CongestionConfig,
    /// Payload bytes that a segment can hold now, with all the options it would carry.
    pub(crate) mss: u32,
    /// The same without the SACK blocks and ECN counters of the moment: the segment size in which the window
    /// is counted.
    pub(crate) full_mss: u32,
    /// SO_MAX_PACING_RATE in bytes per second.
    pub(crate) max_pacing_rate: u64,
    /// TCP_TX_DELAY in microseconds: packets depart this much later.
    pub(crate) tx_delay_us: u32,
    /// What is known about the path's MTU beyond the handshake.
    pub(crate) path: Option<PathMtu>,
    /// Packets hold one segment each: their flags would not survive segmentation.
    pub(crate) single: bool,
    /// How scarce the stack's memory is.
    pub(crate) spare: Spare,
    /// The device as its completions show it, if they are measured.
    pub(crate) device: Option<Device>,
    /// Above a link that paces: how late the stack may look.
    pub(crate) ahead: Duration,
}

/// The bytes that the next packet is cut from. They are contiguous, so they need not be joined first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Bytes from `nxt` on, up to the end of the record.
    pub(super) len: u32,
    /// They reach the end of the written data.
    pub(super) is_tail: bool,
    /// FIN follows them.
    pub(super) fin: bool,
}

impl Candidate {
    pub(super) fn of(s: &Sender, cx: &SendCx<'_>) -> Self {
        let data_end = s.queue.end();
        let mut end = s.queue.next_eor_after(s.nxt).unwrap_or(data_end).min(data_end);
        if cx.config.autosizing.is_at_write() {
            end = s.queue.next_cut_after(s.nxt).unwrap_or(end).min(end);
        }
        let is_tail = end == data_end;
        let len = end.saturating_sub(s.nxt).min(u64::from(u32::MAX)) as u32;
        Self { len, is_tail, fin: is_tail && s.fin_queued }
    }
}

/// The size of the MTU probe that should leave now, if any. Linux (`tcp_mtu_probe`) also asks before it looks
/// at the data.
pub(super) fn mtu_probe(
    s: &Sender,
    cx: &SendCx<'_>,
    path: &PathMtu,
    len: u32,
) -> Result<Option<u32>, Blocked> {
    let view = View {
        mss: cx.mss,
        open: s.recovery.state() == CaState::Open,
        cwnd: s.congestion.cwnd(),
        in_flight: s.recovery.in_flight(),
        unsent: u64::from(len),
        window_room: s.window_room(),
        window: s.window.bytes(),
    };
    match path.decide(cx.now, &view, cx.mtu) {
        Decision::No => Ok(None),
        Decision::WaitForCwnd => Err(Blocked::Cwnd),
        Decision::WaitForWindow => Err(Blocked::PeerWindow),
        Decision::Probe(size) => Ok(Some(size)),
    }
}

/// Segments that the congestion window allows now: at most half of it at once, so that two bursts per window
/// keep the ACK clock running.
pub(super) fn cwnd_quota(s: &Sender, mode: Mode) -> Result<u32, Blocked> {
    if mode == Mode::TailProbe {
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
pub(super) fn split_point(s: &Sender, cx: &SendCx<'_>, len: u32, tail: bool, window: u32, quota: u32) -> u32 {
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
    /// As much of a packet of `payload` bytes from `start` on as lies in few enough pieces; whole segments,
    /// if there is one.
    #[inline]
    pub(super) fn in_pieces(&self, start: u64, payload: u32, mss: u32) -> u32 {
        let reach = self.queue.reach(start).saturating_sub(start);
        if u64::from(payload) <= reach {
            return payload;
        }
        let fits = reach as u32;
        if fits > mss { fits - fits % mss } else { fits }
    }

    /// Segments of the next super-packet, by the rule in force.
    pub(super) fn autosized_segs(&self, cx: &SendCx<'_>) -> u32 {
        if cx.single {
            return 1;
        }
        let fitting = |segs| tso_autosize::fitting(segs, cx.mss, cx.link.gso_max_bytes, cx.link.gso_max_segs);
        let segs = match (cx.config.autosizing, self.congestion.send_quantum()) {
            (AutosizeMode::AtTransmit, Some(bytes)) => fitting(bytes / cx.mss),
            (AutosizeMode::AtTransmit, None) => self.rate_sized_segs(cx),
            _ => fitting(u32::MAX),
        };
        if let Some(device) = cx.device {
            return segs.min(device.segs(cx.mss, self.measured_limit_of_size(cx, device)));
        }
        segs.min((cx.config.tsq.super_packet_max() / cx.mss).max(1))
    }

    /// Segments that a millisecond of the pacing rate carries, and more on a short path.
    pub(super) fn rate_sized_segs(&self, cx: &SendCx<'_>) -> u32 {
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

    /// Whether the small queue has room for a packet of `payload` bytes.
    pub(super) fn small_queue_gate(
        &self,
        cx: &SendCx<'_>,
        payload: u32,
        retransmit: bool,
    ) -> Result<Pass, Blocked> {
        if let Some(device) = cx.device {
            let ask = Ask {
                own: self.small_queue.metered,
                payload,
                mss: cx.mss,
                limit: self.measured_limit(cx, device),
                is_retransmission: retransmit,
            };
            return small_queue::measured_gate(device, ask);
        }
        let limit = self.small_queue_limit(cx, payload, retransmit);
        small_queue::gate(cx.config.tsq, self.small_queue.outstanding(), limit, self.recovery.records())
    }

    /// Payload bytes of all connections that may be below TCP for a packet of this one, where completions are
    /// measured.
    pub(crate) fn measured_limit(&self, cx: &SendCx<'_>, device: Device) -> u64 {
        let rate = self.congestion.pacing_rate();
        let limit = u64::from(device.limit(cx.mss, cx.config.limit_output_bytes));
        limit.saturating_add(small_queue::delayed(rate, cx.tx_delay_us))
    }

    /// The same for the size of super-packets: half of it is one packet. While nothing was measured, a packet
    /// is a millisecond of the pacing rate at most or `tcp_min_tso_segs`, also on a short path, where Linux's
    /// rule would let it be longer.
    fn measured_limit_of_size(&self, cx: &SendCx<'_>, device: Device) -> u64 {
        let limit = self.measured_limit(cx, device);
        if !device.is_unknown() {
            return limit;
        }
        let packet = self.congestion.pacing_rate() >> u32::from(cx.link.pacing_shift).min(63);
        let packet = packet.max(u64::from(cx.config.min_tso_segs) * u64::from(cx.mss));
        limit.min(packet.saturating_mul(2))
    }

    /// The limit of the small queue for a packet of `payload` bytes.
    pub(super) fn small_queue_limit(&self, cx: &SendCx<'_>, payload: u32, retransmit: bool) -> u64 {
        small_queue::limit(self.limit_of(cx, payload, retransmit))
    }

    /// Everything that this limit depends on.
    fn limit_of(&self, cx: &SendCx<'_>, payload: u32, retransmit: bool) -> Limit {
        Limit {
            mode: cx.config.tsq,
            candidate: small_queue::truesize(payload),
            pacing_rate: self.congestion.pacing_rate(),
            delivery_rate: self.delivery_rate(),
            shift: cx.link.pacing_shift,
            ahead: cx.ahead,
            tx_delay_us: cx.tx_delay_us,
            cap: cx.config.limit_output_bytes,
            retransmit,
        }
    }

    /// The rate of which that limit is so much time.
    pub(super) fn small_queue_rate(&self, cx: &SendCx<'_>) -> u64 {
        self.limit_of(cx, 0, false).rate()
    }

    /// The inputs that decide whether a super-packet waits for the next ACK.
    pub(super) fn deferral(&self, cx: &SendCx<'_>, candidate: Candidate, segs: u32) -> Defer {
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
            whole_window: self.window.bytes().min(cwnd_bytes),
            mss: cx.mss,
            segs,
            divisor: cx.config.tso_win_divisor,
            head_departure: self.recovery.head_sent_at(),
            srtt: self.recovery.srtt().unwrap_or(Duration::ZERO),
        }
    }

    /// The range to retransmit next, if any.
    pub(super) fn range_to_retransmit(&self, cx: &SendCx<'_>, mode: Mode) -> Option<Range<u64>> {
        if mode == Mode::TailProbe && !self.has_unsent() {
            return self.recovery.tail_probe_range(cx.mss);
        }
        let segs = self.autosized_segs(cx);
        let mut range = self.recovery.next_retransmit(self.congestion.cwnd(), segs, self.window_end())?;
        // A segment that was sent whole may be too long now, beside SACK blocks. Linux: `tcp_retransmit_skb`.
        range.end = range.end.min(range.start + u64::from(segs) * u64::from(cx.mss));
        if let Some(end) = self.queue.next_eor_after(range.start) {
            range.end = range.end.min(end);
        }
        Some(range)
    }

    /// Whether the range to retransmit has a copy that has not even left this host.
    pub(super) fn waits_for_own_copy(&self, cx: &SendCx<'_>) -> bool {
        self.recovery.lost_out() > 0
            && self.range_to_retransmit(cx, Mode::Repair).is_some_and(|range| self.recovery.in_device(&range))
    }
}

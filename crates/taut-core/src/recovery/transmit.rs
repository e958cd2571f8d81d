//! Recovery's notes when a packet is sent, is refused by the device, or has left the host; and the next range
//! to retransmit. RFC 6298 §5.1, RFC 6675 §5. Called by the send path (`egress/`).

use alloc::boxed::Box;
use core::ops::Range;

use super::log::delivery_rate::TxSnapshot;
use super::log::sent::{LOST, RETRANS, Record, segs_in};
use super::rules::frto::Frto;
use super::tail_probe::TailProbe;
use super::{Flight, Recovery, RecoveryConfig};
use crate::words::{Instant, SendKind};

/// Records of which one retransmission may consist: more than any path with segments of ordinary size needs,
/// and the search for them is made again whenever the send path asks.
const JOINED_MAX: usize = 64;

impl Recovery {
    /// A packet was handed to the device, which sends it at `now` or, if it paces, holds it until then. All
    /// that is measured and timed counts from there. `range` may include FIN's position.
    pub(crate) fn on_transmit(
        &mut self,
        now: Instant,
        range: Range<u64>,
        mss: u32,
        kind: SendKind,
        cfg: &RecoveryConfig,
    ) {
        if range.start >= range.end {
            return;
        }
        let mss = u16::try_from(mss.max(1)).unwrap_or(u16::MAX);
        let Self { base, flight } = self;
        let flight = flight.get_or_insert_with(|| {
            let mut flight = Box::new(Flight::new(now, base.una, mss));
            // As long as nothing is known about the path, the application counts as the limit.
            flight.sampler.set_app_limited(base.delivered, 0);
            flight
        });
        flight.mss = mss;
        base.last_sent_at = now;
        let new_segs = segs_in(range.end - range.start, mss);
        let in_flight = flight.log.in_flight() + new_segs;
        let idle = flight.log.is_empty();
        let lost = flight.log.total_lost();
        let snapshot = flight.sampler.on_transmit(now, base.delivered, idle, in_flight, lost);
        // The timer is the head's: the first packet in flight starts it (RFC 6298 §5.1), and so does each
        // retransmission of the head.
        let repeats_head = || flight.log.first().is_some_and(|head| range.start <= head.start);
        if idle || (kind != SendKind::New && repeats_head()) {
            flight.rto_at = Some(now + base.rto(cfg));
        }
        let segs = match kind {
            // Data that was never sent before.
            SendKind::New => {
                let Range { start, end } = range;
                let (flags, in_device, short_segs) = (0, 1, 0);
                flight.log.push(Record {
                    start,
                    end,
                    sent_at: now,
                    snapshot,
                    mss,
                    flags,
                    in_device,
                    short_segs,
                });
                new_segs
            }
            SendKind::Retransmit | SendKind::TailProbe => {
                let segs = flight.note_retransmission(now, range, snapshot);
                base.total_retrans = base.total_retrans.wrapping_add(segs);
                if kind == SendKind::TailProbe {
                    flight.tail_probe = Some(TailProbe { end: flight.log.nxt(), is_retransmission: true });
                }
                segs
            }
        };
        flight.prr.on_sent(segs);
        base.arm_tail_probe(flight, now, cfg);
    }

    /// The device would not take the packet that [`on_transmit`](Self::on_transmit) just noted.
    pub(crate) fn on_refused(&mut self, range: &Range<u64>, kind: SendKind) {
        let Some(flight) = &mut self.flight else { return };
        match kind {
            SendKind::New => {
                let segs = flight.log.last().map_or(0, Record::segs);
                if flight.log.pop(range) {
                    flight.cwr_due |= flight.cwr_at == range.start;
                    flight.prr.on_refused(segs);
                    flight.spoil_mtu_probe(range);
                }
                if flight.log.is_empty() {
                    flight.rto_at = None;
                    flight.tail_probe_at = None;
                }
            }
            SendKind::Retransmit | SendKind::TailProbe => {
                // All that was counted; and what is out, which is nothing if a timeout has come since.
                let (mut counted, mut segs) = (0, 0);
                let mut place = flight.log.isolate(range);
                while let Some(record) = flight.log.get(place).filter(|record| record.start < range.end) {
                    counted += record.segs();
                    if record.has(RETRANS) {
                        segs += flight.log.retransmission_refused(place);
                    }
                    place = flight.log.next(place);
                }
                flight.prr.on_refused(segs);
                flight.undo.on_refused(segs);
                self.base.total_retrans = self.base.total_retrans.wrapping_sub(counted);
                if kind == SendKind::TailProbe {
                    flight.tail_probe = None;
                    flight.tail_probe_due = true;
                }
            }
        }
    }

    /// The ticket of a packet came back: its bytes left the host.
    pub(crate) fn on_tx_completed(&mut self, range: &Range<u64>) {
        if let Some(flight) = &mut self.flight {
            flight.log.completed(range);
        }
    }

    /// The next range to retransmit, if there is one and cwnd allows: at most `max_segs` segments, not beyond
    /// `window_end`, except that a closed window still lets the head's first segment pass.
    pub(crate) fn next_retransmit(&self, cwnd: u32, max_segs: u32, window_end: u64) -> Option<Range<u64>> {
        let log = self.log()?;
        let room = cwnd.saturating_sub(log.in_flight()).min(max_segs);
        if room == 0 {
            return None;
        }
        let first = log.next_pending()?;
        let head = log.get(first)?;
        let (start, mss) = (head.start, head.mss);
        let longest = start + u64::from(room) * u64::from(mss);
        // Neighbours that are lost too are included, as long as segment boundaries stay where they were.
        let mut end = start;
        let mut place = first;
        for _ in 0..JOINED_MAX {
            let Some(record) = log.get(place) else { break };
            let resend = record.has(LOST) && !record.has(RETRANS) && record.mss == mss;
            if !resend || end >= longest || !(end - start).is_multiple_of(u64::from(mss)) {
                break;
            }
            end = record.end;
            place = log.next(place);
        }
        let end = end.min(longest);
        if end <= window_end {
            return Some(start..end);
        }
        let fits = window_end.saturating_sub(start) / u64::from(mss) * u64::from(mss);
        if fits > 0 {
            Some(start..start + fits)
        } else if start == self.base.una {
            Some(start..end.min(start + u64::from(mss)))
        } else {
            None
        }
    }
}

impl Flight {
    /// Data that was sent before. Returns its segments.
    fn note_retransmission(&mut self, now: Instant, range: Range<u64>, snapshot: TxSnapshot) -> u32 {
        let mut segs = 0;
        let mut place = self.log.isolate(&range);
        while self.log.get(place).is_some_and(|record| record.start < range.end) {
            segs += self.log.retransmitted(place, now, snapshot);
            place = self.log.next(place);
        }
        self.spoil_mtu_probe(&range);
        self.rack.on_retransmit(now, range);
        self.undo.on_retransmit(now, segs);
        self.resent_segs = self.resent_segs.saturating_add(segs);
        if self.frto == Frto::SendNew {
            // No new data could leave: ordinary recovery.
            self.frto = Frto::Off;
        }
        segs
    }
}

//! Selective acknowledgements, applied to the sent log. RFC 2018, RFC 2883 (D-SACK), RFC 6675 §4 (Update);
//! neighbours that were acknowledged are joined, as in Linux's `tcp_shift_skb_data`. Called by `ack.rs` for
//! every ACK that carries blocks.

use core::ops::Range;

use super::log::delivery_rate::TxSnapshot;
use super::log::sent::{EVER_RETRANS, Record, SACKED, SentLog};
use super::rack::Rack;
use crate::words::{Duration, Instant};

/// The segments that one ACK delivered, cumulatively and selectively.
#[derive(Debug)]
pub(super) struct Delivered {
    now: Instant,
    min_rtt: Option<Duration>,
    echo_rtt: Option<Duration>,
    /// Segments newly known to be delivered.
    pub(super) segs: u32,
    /// Segments below the ACK, known before or not.
    pub(super) acked_segs: u32,
    /// Newly sacked segments.
    pub(super) sacked_segs: u32,
    /// The one sent last, by which the rate is measured.
    pub(super) newest: Option<(Instant, TxSnapshot)>,
    newest_end: u64,
    /// First and last transmission times of those acknowledged that give an RTT (Karn).
    pub(super) acked_first: Option<Instant>,
    pub(super) acked_last: Option<Instant>,
    /// The same for those sacked.
    pub(super) sacked_first: Option<Instant>,
    pub(super) sacked_last: Option<Instant>,
    /// Some of what was acknowledged had been retransmitted.
    pub(super) acked_retransmitted: bool,
    /// A segment that was sent once arrived after one above it.
    pub(super) reordered: bool,
    /// The lowest position of such a segment.
    pub(super) overtaken: u64,
    fack_before: u64,
    /// A packet below this position that was sent once and is acknowledged shows F-RTO that the timeout was
    /// spurious.
    high_seq: u64,
    /// Such a packet was delivered. Linux: `FLAG_ORIG_SACK_ACKED`.
    pub(super) original: bool,
}

impl Delivered {
    pub(super) const fn new(
        now: Instant,
        fack: u64,
        high_seq: u64,
        min_rtt: Option<Duration>,
        echo_rtt: Option<Duration>,
    ) -> Self {
        Self {
            now,
            min_rtt,
            echo_rtt,
            segs: 0,
            acked_segs: 0,
            sacked_segs: 0,
            newest: None,
            newest_end: 0,
            acked_first: None,
            acked_last: None,
            sacked_first: None,
            sacked_last: None,
            acked_retransmitted: false,
            reordered: false,
            overtaken: u64::MAX,
            fack_before: fack,
            high_seq,
            original: false,
        }
    }

    fn common(&mut self, record: &Record, segs: u32, echo_rtt: Option<Duration>, rack: &mut Rack) {
        self.segs += segs;
        if self.newest.is_none_or(|(sent_at, _)| (sent_at, self.newest_end) < (record.sent_at, record.end)) {
            self.newest = Some((record.sent_at, record.snapshot));
            self.newest_end = record.end;
        }
        rack.on_delivered(self.now, record, self.min_rtt, echo_rtt);
        if !record.has(EVER_RETRANS) && record.end <= self.fack_before {
            // RFC 8985 §6.2 step 3.
            self.reordered = true;
            self.overtaken = self.overtaken.min(record.start);
        }
        self.original |= !record.has(EVER_RETRANS) && record.end <= self.high_seq;
        rack.fack = rack.fack.max(record.end);
    }

    pub(super) fn sacked(&mut self, record: &Record, segs: u32, rack: &mut Rack) {
        // While there is a hole, the peer echoes the timestamp from before it (RFC 7323 §4.3), which says
        // nothing about packets that arrived behind it. (RFC 8985 §6.2 step 2 uses it nevertheless; then the
        // answer to a tail loss probe could never show which packets are missing.)
        self.common(record, segs, None, rack);
        self.sacked_segs += segs;
        if !record.has(EVER_RETRANS) {
            self.sacked_first.get_or_insert(record.sent_at);
            self.sacked_last = Some(record.sent_at);
        }
    }

    pub(super) fn acked(&mut self, record: &Record, segs: u32, rack: &mut Rack) {
        self.acked_segs += segs;
        self.acked_retransmitted |= record.has(EVER_RETRANS);
        if record.has(SACKED) {
            return;
        }
        self.common(record, segs, self.echo_rtt, rack);
        if !record.has(EVER_RETRANS) {
            self.acked_first.get_or_insert(record.sent_at);
            self.acked_last = Some(record.sent_at);
        }
    }
}

/// The first block, when it reports data received twice. RFC 2883 §4.
pub(super) fn duplicate(ack: u64, nxt: u64, blocks: &[Range<u64>]) -> Option<Range<u64>> {
    let first = blocks.first()?;
    if first.start >= first.end || first.end > nxt {
        return None;
    }
    let below = first.start < ack && first.end <= ack;
    let inside = blocks.get(1).is_some_and(|outer| outer.start <= first.start && first.end <= outer.end);
    (below || inside).then(|| first.clone())
}

/// Marks the records that `blocks` cover. Blocks are not trusted: those outside the data sent are ignored,
/// and only whole segments count, so there are never more records than segments.
pub(super) fn apply(
    log: &mut SentLog,
    ack: u64,
    blocks: &[Range<u64>],
    rack: &mut Rack,
    delivered: &mut Delivered,
) {
    for block in blocks {
        let floor = log.una().max(ack);
        if block.start < block.end && block.end <= log.nxt() && block.end > floor {
            apply_one(log, &(block.start.max(floor)..block.end), rack, delivered);
        }
    }
}

/// Receivers repeat their blocks, but what was acknowledged before is one record: only what is new is walked
/// over.
fn apply_one(log: &mut SentLog, block: &Range<u64>, rack: &mut Rack, delivered: &mut Delivered) {
    let mut place = log.find(block.start);
    while let Some(&record) = log.get(place) {
        if record.start >= block.end {
            break;
        }
        if record.has(SACKED) {
            place = log.next(place);
            continue;
        }
        let mss = u64::from(record.mss.max(1));
        let low = match block.start.checked_sub(record.start) {
            Some(inside) => record.start + inside.div_ceil(mss) * mss,
            None => record.start,
        };
        let high = if block.end >= record.end {
            record.end
        } else {
            record.start + (block.end - record.start) / mss * mss
        };
        if low >= high {
            place = log.next(place);
            continue;
        }
        let piece = Record { start: low, end: high, ..record };
        delivered.sacked(&piece, piece.segs(), rack);
        if low == record.start && high < record.end && log.shift_to_sacked(place, high) {
            place = log.next(place);
            continue;
        }
        if low > record.start {
            place = log.cut(place, low);
        }
        if high < record.end {
            let upper = log.cut(place, high);
            place = log.prev(upper).unwrap_or(place);
        }
        place = log.mark_sacked(place);
    }
}

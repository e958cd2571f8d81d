//! When each data packet really leaves: a device around the device, and what its packets' times say of pacing.
//!
//! For each flow the recorder keeps the schedule that the rule of pacing prescribes at the rate asked for: a packet leaves
//! at its time or when the stack gets to it, the next one `payload / rate` later, less at most half of that for lateness
//! (`taut_core::egress::pacing`). How long after its time a packet is handed to the device is its lateness.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use hdrhistogram::Histogram;
use taut::device::{Device, News, Sent, TxDevice, TxPacket, TxTicket};
use taut_device::sys::monotonic_ns;

/// Segments of a connection that leave without regard to its rate, and one more.
const FREE_SEGMENTS: u64 = 10;
/// Times above this are recorded as this.
const MAX_NS: u64 = 60_000_000_000;
/// Place of the source port in an IPv4 packet without options, as the stack makes them.
const PORT_AT: usize = 20;

/// What has been recorded.
#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Record>>);

#[derive(Default)]
struct Record {
    /// By the port of this end.
    flows: BTreeMap<u16, Flow>,
    /// Bytes per second asked for; 0 while nothing is to be noted.
    rate: u64,
    measured: Option<Measured>,
}

#[derive(Default)]
struct Flow {
    segments: u64,
    /// When the next packet is to leave.
    due: Option<u64>,
    left: Option<Left>,
    /// Bytes since measuring began.
    bytes: u64,
}

/// The packet before.
#[derive(Clone, Copy)]
struct Left {
    at: u64,
    payload: u64,
}

/// Distributions over all flows.
#[derive(Clone)]
pub(super) struct Measured {
    /// From one data packet of a flow to the next, in nanoseconds.
    pub(super) gaps: Histogram<u64>,
    /// The gap that the rate asks for, in nanoseconds.
    pub(super) asked: Histogram<u64>,
    /// After its time, in nanoseconds.
    pub(super) lateness: Histogram<u64>,
    /// Payload of a packet.
    pub(super) payloads: Histogram<u64>,
    /// Bytes of each flow.
    pub(super) flows: Vec<u64>,
}

impl Measured {
    fn new() -> io::Result<Self> {
        let histogram = || Histogram::new_with_bounds(1, MAX_NS, 3).map_err(io::Error::other);
        Ok(Self {
            gaps: histogram()?,
            asked: histogram()?,
            lateness: histogram()?,
            payloads: histogram()?,
            flows: Vec::new(),
        })
    }
}

impl Recorder {
    /// Follows flows that ask for `rate` bytes per second.
    pub(super) fn follow(&self, rate: u64) {
        self.lock().rate = rate;
    }

    /// Begins to measure.
    pub(super) fn begin(&self) -> io::Result<()> {
        let mut record = self.lock();
        record.measured = Some(Measured::new()?);
        record.flows.values_mut().for_each(|flow| flow.bytes = 0);
        Ok(())
    }

    /// Ends it.
    pub(super) fn end(&self) -> Option<Measured> {
        let mut record = self.lock();
        let mut measured = record.measured.take()?;
        measured.flows = record.flows.values().map(|flow| flow.bytes).collect();
        Some(measured)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, packet: &TxPacket<'_>, now_ns: u64) {
        let payload = packet.payload.len() as u64;
        let Some(port) = packet.header.get(PORT_AT..PORT_AT + 2).filter(|_| payload > 0) else { return };
        let port = u16::from_be_bytes([port[0], port[1]]);
        let segments = packet.segments() as u64;
        self.lock().note(port, payload, segments, packet.departure.as_nanos(), now_ns);
    }
}

impl Record {
    fn note(&mut self, port: u16, payload: u64, segments: u64, stamp: u64, now: u64) {
        if self.rate == 0 {
            return;
        }
        let flow = self.flows.entry(port).or_default();
        flow.segments += segments;
        flow.bytes += payload;
        let gap = |payload: u64| payload.saturating_mul(1_000_000_000) / self.rate;
        if let Some(measured) = &mut self.measured {
            measured.payloads.saturating_record(payload);
            if let Some(left) = flow.left {
                measured.gaps.saturating_record(now.saturating_sub(left.at));
                measured.asked.saturating_record(gap(left.payload));
            }
            if let Some(due) = flow.due {
                measured.lateness.saturating_record(now.saturating_sub(due));
            }
        }
        flow.left = Some(Left { at: now, payload });
        flow.due = (flow.segments >= FREE_SEGMENTS).then(|| {
            let late = flow.due.map_or(0, |due| stamp.saturating_sub(due));
            stamp + gap(payload) - late.min(gap(payload) / 2)
        });
    }
}

/// The sending half of a device that tells a recorder of what it sends.
struct Recording {
    device: Box<dyn TxDevice>,
    recorder: Recorder,
}

impl Recorder {
    /// The device, with this recorder in front of it.
    pub(super) fn before(&self, device: Device) -> Device {
        Device { tx: Box::new(Recording { device: device.tx, recorder: self.clone() }), ..device }
    }
}

impl TxDevice for Recording {
    fn news(&mut self, waker: &Waker) -> io::Result<News> {
        self.device.news(waker)
    }
    fn send(&mut self, packet: &TxPacket<'_>, ticket: TxTicket) -> Sent {
        let now_ns = monotonic_ns();
        let sent = self.device.send(packet, ticket);
        if matches!(sent, Sent::Left(_) | Sent::Kept) {
            self.recorder.note(packet, now_ns);
        }
        sent
    }
    fn flush(&mut self) {
        self.device.flush();
    }
    fn poll_done(&mut self) -> Option<TxTicket> {
        self.device.poll_done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedule_is_that_of_pacing() {
        // 1448 bytes at 1.25 MB/s: a gap of 1,158,400 ns; 300 µs late makes the next 858,400 ns.
        let mut record =
            Record { rate: 1_250_000, measured: Some(Measured::new().unwrap()), ..Record::default() };
        record.note(1, 14_480, 10, 1_000_000_000, 1_000_000_000);
        let due = 1_000_000_000 + 11_584_000;
        assert_eq!(record.flows[&1].due, Some(due));
        record.note(1, 1_448, 1, due, due + 20_000);
        assert_eq!(record.flows[&1].due, Some(due + 1_158_400));
        record.note(1, 1_448, 1, due + 1_158_400 + 300_000, due + 1_158_400 + 310_000);
        assert_eq!(record.flows[&1].due, Some(due + 1_158_400 + 300_000 + 858_400));
        let measured = record.measured.unwrap();
        assert_eq!((measured.lateness.len(), measured.lateness.min()), (2, 20_000 / 16 * 16));
        assert!((309_000..=311_000).contains(&measured.lateness.max()));
        assert_eq!((measured.gaps.len(), measured.asked.len()), (2, 2));
    }

    #[test]
    fn the_first_segments_are_free_and_flows_are_apart() {
        let mut record = Record { rate: 1_000_000, ..Record::default() };
        record.note(1, 1_448, 9, 1_000, 1_000);
        assert_eq!(record.flows[&1].due, None);
        record.note(2, 14_480, 10, 1_000, 1_000);
        assert!(record.flows[&2].due.is_some());
        assert_eq!(record.flows[&1].due, None);
    }
}

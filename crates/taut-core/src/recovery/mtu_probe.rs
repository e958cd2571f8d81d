//! A probe of the path's MTU in flight: whether it arrives; its loss is not a sign of congestion. RFC 4821
//! §7.5 and §7.6, Linux 6.12's `tcp_fastretrans_alert`; called where losses are found, and by the connection.

use core::ops::Range;

use super::log::sent::{LOST, SACKED};
use super::{CaState, Flight, Recovery};

/// The fate of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MtuProbeFate {
    Arrived,
    /// It was lost, and nothing else was.
    Lost,
    /// It was lost with others, or retransmitted: nothing is learned.
    Unknown,
}

/// A probe in flight, or its fate until that is taken.
#[derive(Clone, Debug)]
pub(super) struct MtuProbe {
    range: Range<u64>,
    /// Size of the segments around it.
    mss: u16,
    fate: Option<MtuProbeFate>,
}

impl Recovery {
    /// The packet that was just noted is a probe; others are no longer than `mss`.
    pub(crate) fn on_mtu_probe_sent(&mut self, range: Range<u64>, mss: u32) {
        let mss = u16::try_from(mss.max(1)).unwrap_or(u16::MAX);
        if let Some(flight) = &mut self.flight {
            flight.mtu_probe = Some(MtuProbe { range, mss, fate: None });
            flight.mss = mss;
        }
    }

    /// The fate of the probe, once.
    pub(crate) fn take_mtu_probe_fate(&mut self) -> Option<MtuProbeFate> {
        let flight = self.flight.as_mut()?;
        let fate = flight.mtu_probe.as_ref()?.fate?;
        flight.mtu_probe = None;
        Some(fate)
    }
}

impl Flight {
    /// Checks the probe after an ACK, or after losses were marked. Returns whether the probe is lost in an
    /// otherwise healthy flight: in that case the window is not reduced.
    pub(super) fn judge_mtu_probe(&mut self, una: u64, state: CaState) -> bool {
        let Some(probe) = self.mtu_probe.as_mut().filter(|probe| probe.fate.is_none()) else {
            return false;
        };
        let covering = self.log.get(self.log.find(probe.range.start));
        let covering = covering.filter(|record| record.start <= probe.range.start);
        let whole = covering.is_some_and(|record| probe.range.end <= record.end);
        let has = |flag| covering.is_some_and(|record| record.has(flag));
        if una >= probe.range.end || (whole && has(SACKED)) {
            probe.fate = Some(MtuProbeFate::Arrived);
            return false;
        }
        if !has(LOST) {
            return false;
        }
        let alone = una == probe.range.start && self.log.lost_out() == 1 && state < CaState::Cwr;
        probe.fate = Some(if alone { MtuProbeFate::Lost } else { MtuProbeFate::Unknown });
        // It is retransmitted in segments that fit.
        self.log.resegment(probe.mss);
        alone
    }

    /// `range` was retransmitted: if it overlaps the probe, an acknowledgement of the probe says nothing any
    /// more.
    pub(super) fn spoil_mtu_probe(&mut self, range: &Range<u64>) {
        if let Some(probe) = self.mtu_probe.as_mut().filter(|probe| probe.fate.is_none())
            && range.start < probe.range.end
            && probe.range.start < range.end
        {
            probe.fate = Some(MtuProbeFate::Unknown);
            self.log.recount(&probe.range, probe.mss);
        }
    }
}

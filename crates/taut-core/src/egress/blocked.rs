//! Why nothing was sent: the single truth from which counters, time shares, timers and explanations derive.
//! Returned by every gate of `plan`; a deadline taken from anything else would make the driver spin while another gate
//! is shut.
//!
//! The order of the reasons is that of the gates: when two are shut, the earlier one is told. So "cwnd" does not say
//! that the peer's window would have had room, only that nobody asked.

use core::fmt;

use crate::words::Instant;

/// The gate that said no, in the order in which the gates stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blocked {
    /// Everything written has been sent.
    NoData,
    /// Everything written has been sent, and the application would write more: its send buffer is too small, or it has not
    /// come back yet since there is room.
    SendBuffer,
    /// The next packet departs at `until`.
    Pacing {
        /// When the gate opens by itself.
        until: Instant,
    },
    /// As much is in flight as the congestion window allows.
    Cwnd,
    /// The peer's window has no room for the next segment.
    PeerWindow,
    /// A small piece waits for the ACK of an earlier small one.
    Nagle,
    /// The application corked the tail.
    Cork,
    /// A small write waits for an earlier packet to leave the device.
    Autocork,
    /// A super-packet waits for the ACK that will make it bigger.
    TsoDefer,
    /// Enough of this connection is below TCP already.
    SmallQueue,
    /// The device has no room.
    Device,
}

/// A [`Blocked`] in one byte, for every connection to keep: without the time, which is the pacing's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Gate {
    NoData,
    SendBuffer,
    Pacing,
    Cwnd,
    PeerWindow,
    Nagle,
    Cork,
    Autocork,
    TsoDefer,
    SmallQueue,
    Device,
}

impl Gate {
    /// All there are, by their numbers.
    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::NoData,
        Self::SendBuffer,
        Self::Pacing,
        Self::Cwnd,
        Self::PeerWindow,
        Self::Nagle,
        Self::Cork,
        Self::Autocork,
        Self::TsoDefer,
        Self::SmallQueue,
        Self::Device,
    ];
    pub(crate) const COUNT: usize = Blocked::COUNT;

    /// The reason again, given when the next packet departs.
    pub(crate) const fn reason(self, departure: Instant) -> Blocked {
        match self {
            Self::NoData => Blocked::NoData,
            Self::SendBuffer => Blocked::SendBuffer,
            Self::Pacing => Blocked::Pacing { until: departure },
            Self::Cwnd => Blocked::Cwnd,
            Self::PeerWindow => Blocked::PeerWindow,
            Self::Nagle => Blocked::Nagle,
            Self::Cork => Blocked::Cork,
            Self::Autocork => Blocked::Autocork,
            Self::TsoDefer => Blocked::TsoDefer,
            Self::SmallQueue => Blocked::SmallQueue,
            Self::Device => Blocked::Device,
        }
    }

    /// One word for tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NoData => "no-data",
            Self::SendBuffer => "send-buffer",
            Self::Pacing => "pacing",
            Self::Cwnd => "cwnd",
            Self::PeerWindow => "peer-window",
            Self::Nagle => "nagle",
            Self::Cork => "cork",
            Self::Autocork => "autocork",
            Self::TsoDefer => "tso-defer",
            Self::SmallQueue => "small-queue",
            Self::Device => "device",
        }
    }
}

impl Blocked {
    /// How many reasons there are.
    pub const COUNT: usize = 11;

    pub(crate) const fn gate(self) -> Gate {
        match self {
            Self::NoData => Gate::NoData,
            Self::SendBuffer => Gate::SendBuffer,
            Self::Pacing { .. } => Gate::Pacing,
            Self::Cwnd => Gate::Cwnd,
            Self::PeerWindow => Gate::PeerWindow,
            Self::Nagle => Gate::Nagle,
            Self::Cork => Gate::Cork,
            Self::Autocork => Gate::Autocork,
            Self::TsoDefer => Gate::TsoDefer,
            Self::SmallQueue => Gate::SmallQueue,
            Self::Device => Gate::Device,
        }
    }

    /// One word for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.gate().name()
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

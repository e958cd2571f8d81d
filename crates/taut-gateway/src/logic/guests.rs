//! The use of each guest, beside its limits. A guest without flows takes no memory. Called by `gateway.rs`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use crate::logic::limits::{Amounts, Limits};

/// A guest, told apart by its source: an IPv4 address, or the first 64 bits of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Guest(IpAddr);

impl Guest {
    /// The guest with this source address.
    #[must_use]
    pub const fn of(source: IpAddr) -> Self {
        match source {
            IpAddr::V4(_) => Self(source),
            IpAddr::V6(v6) => Self(IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64))),
        }
    }

    pub(crate) const fn address(self) -> IpAddr {
        self.0
    }
}

/// An amount that is counted one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// [`Amounts::connections`].
    Connections,
    /// [`Amounts::half_open`].
    HalfOpen,
    /// [`Amounts::datagram_flows`].
    DatagramFlows,
    /// [`Amounts::questions`].
    Questions,
}

impl Counted {
    /// The words of a log line.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::HalfOpen => "half-open connections",
            Self::DatagramFlows => "flows of UDP and pings",
            Self::Questions => "questions to name servers",
        }
    }

    const fn of(self, amounts: &Amounts) -> u32 {
        match self {
            Self::Connections => amounts.connections,
            Self::HalfOpen => amounts.half_open,
            Self::DatagramFlows => amounts.datagram_flows,
            Self::Questions => amounts.questions,
        }
    }

    const fn of_mut(self, amounts: &mut Amounts) -> &mut u32 {
        match self {
            Self::Connections => &mut amounts.connections,
            Self::HalfOpen => &mut amounts.half_open,
            Self::DatagramFlows => &mut amounts.datagram_flows,
            Self::Questions => &mut amounts.questions,
        }
    }
}

/// The guests that have something.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    all: Amounts,
    each: BTreeMap<Guest, Amounts>,
}

impl Guests {
    pub(crate) const fn all(&self) -> Amounts {
        self.all
    }

    pub(crate) fn of(&self, guest: Guest) -> Amounts {
        self.each.get(&guest).copied().unwrap_or_default()
    }

    /// The guests that have something.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Guest, Amounts)> {
        self.each.iter().map(|(guest, amounts)| (*guest, *amounts))
    }

    /// Whether one more is within the limits.
    pub(crate) fn has_room(&self, limits: &Limits, guest: Guest, what: Counted) -> bool {
        what.of(&self.all) < what.of(&limits.all) && what.of(&self.of(guest)) < what.of(&limits.guest)
    }

    pub(crate) fn add(&mut self, guest: Guest, what: Counted) {
        *what.of_mut(&mut self.all) += 1;
        *what.of_mut(self.each.entry(guest).or_default()) += 1;
    }

    pub(crate) fn remove(&mut self, guest: Guest, what: Counted) {
        *what.of_mut(&mut self.all) -= 1;
        if let Some(amounts) = self.each.get_mut(&guest) {
            *what.of_mut(amounts) -= 1;
        }
        self.forget_if_empty(guest);
    }

    /// How many of the wanted bytes a flow may hold.
    pub(crate) fn grant(&self, limits: &Limits, guest: Guest, wanted: u64) -> u64 {
        let left = limits.all.bytes.saturating_sub(self.all.bytes);
        let own = limits.guest.bytes.saturating_sub(self.of(guest).bytes);
        wanted.min(left).min(own)
    }

    pub(crate) fn add_bytes(&mut self, guest: Guest, bytes: u64) {
        self.all.bytes += bytes;
        self.each.entry(guest).or_default().bytes += bytes;
    }

    pub(crate) fn remove_bytes(&mut self, guest: Guest, bytes: u64) {
        self.all.bytes -= bytes;
        if let Some(amounts) = self.each.get_mut(&guest) {
            amounts.bytes -= bytes;
        }
        self.forget_if_empty(guest);
    }

    fn forget_if_empty(&mut self, guest: Guest) {
        if self.of(guest) == Amounts::default() {
            self.each.remove(&guest);
        }
    }
}
